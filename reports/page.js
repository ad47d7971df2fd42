(function () {
  "use strict";
  var root = document.documentElement;
  var data = JSON.parse(document.getElementById("chart-data").textContent);
  var failed = 0;
  var drawn = new Map();

  function draw(chart, spec, datasets) {
    var place = document.getElementById(chart.id);
    var whole = Object.assign({}, spec, { datasets: datasets });
    // The interpreter (ast) evaluates Vega's expressions without eval, which the page's policy forbids.
    var options = { renderer: "svg", actions: false, ast: true, config: data.config, hover: false };
    return window.vegaEmbed(place, whole, options).then(function (result) {
      drawn.set(chart.id, result);
    }).catch(function (error) {
      failed += 1;
      place.textContent = "This chart could not be drawn; the table below holds its numbers.";
      place.removeAttribute("role");
      place.removeAttribute("aria-label");
      console.error(chart.id, error);
    });
  }

  function drawn_all() {
    root.dataset.charts = (failed ? "FAILED " : "READY ") + data.charts.length;
  }

  // The charts that are seen first, then the others, one after another, so that the page answers meanwhile.
  function draw_in_turn(charts) {
    return charts.reduce(function (before, chart) {
      return before.then(function () {
        if (!drawn.has(chart.id)) return draw(chart, chart.spec, data.datasets).then(breathe);
      });
    }, Promise.resolve());
  }

  function breathe() {
    return new Promise(function (done) { setTimeout(done, 0); });
  }

  // The parts of a report: one is shown, and its name stands in the address.
  var tabs = Array.from(document.querySelectorAll(".tab"));
  var tab_links = Array.from(document.querySelectorAll(".tabs a"));

  function tab_of(id) {
    var place = id && document.getElementById(id);
    return place && place.closest(".tab");
  }

  function show_tab() {
    if (!tabs.length) return;
    var id = decodeURIComponent(location.hash.slice(1));
    var shown = tab_of(id) || tabs[0];
    tabs.forEach(function (tab) { tab.classList.toggle("away", tab !== shown); });
    tab_links.forEach(function (a) {
      if (a.dataset.tab === shown.id) a.setAttribute("aria-current", "page"); else a.removeAttribute("aria-current");
    });
    if (!id || id === shown.id) { window.scrollTo({ top: 0, behavior: "instant" }); return; }
    var place = document.getElementById(id);
    for (var e = place; e && e !== shown; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    place.scrollIntoView({ behavior: "instant" });
  }

  if (tabs.length) {
    root.classList.add("tabbed");
    show_tab();
    window.addEventListener("hashchange", show_tab);
  }

  (function () {
    var first = data.charts.filter(function (chart) {
      var tab = tab_of(chart.id);
      return !tab || !tab.classList.contains("away");
    });
    Promise.all(first.map(function (chart) { return draw(chart, chart.spec, data.datasets); }))
      .then(function () { root.dataset.first = "READY"; return draw_in_turn(data.charts); })
      .then(drawn_all);
  })();

  // Filters: the rows of tables, and the charts whose data tell the column.
  var selects = Array.from(document.querySelectorAll("select[data-filter]"));

  function wanted() {
    var found = {};
    selects.forEach(function (s) { if (s.value !== "") found[s.dataset.filter] = data.filters[s.dataset.filter][s.value]; });
    return found;
  }

  function fits(row, filter) {
    return Object.keys(filter).every(function (name) { return !(name in row) || row[name] === filter[name]; });
  }

  function concerns(rows, filter) {
    return rows.some(function (row) { return Object.keys(filter).some(function (name) { return name in row; }); });
  }

  function named(node, found) {
    if (node && typeof node === "object") {
      if (node.data && node.data.name) found.push(node.data.name);
      Object.keys(node).forEach(function (key) { if (key !== "data") named(node[key], found); });
    }
    return found;
  }

  // Categories that have no row left lose their place on the axis.
  function prune(node, rows, whole) {
    if (!node || typeof node !== "object") return;
    Object.keys(node).forEach(function (key) { prune(node[key], rows, whole); });
    var domain = node.field && node.scale && node.scale.domain;
    if (!Array.isArray(domain) || typeof domain[0] !== "string") return;
    var kept = domain.filter(function (v) { return rows.some(function (row) { return row[node.field] === v; }); });
    if (node.scale.range && node.scale.range.length === domain.length) {
      node.scale.range = node.scale.range.filter(function (_, i) { return kept.indexOf(domain[i]) >= 0; });
    }
    if (node.axis && node.axis.grid === false && typeof whole.height === "number" && kept.length) {
      whole.height = Math.max(40, whole.height * kept.length / domain.length);
    }
    node.scale.domain = kept;
  }

  function filter_chart(chart, filter) {
    var names = named(chart.spec, []);
    var concerned = names.filter(function (n) { return concerns(data.datasets[n], chart.filter || filter); });
    if (!concerned.length) return null;
    var spec = JSON.parse(JSON.stringify(chart.spec));
    var datasets = Object.assign({}, data.datasets);
    var rows = [];
    names.forEach(function (n) {
      datasets[n] = data.datasets[n].filter(function (row) { return fits(row, filter); });
      rows = rows.concat(datasets[n]);
    });
    prune(spec, rows, spec);
    chart.filter = Object.keys(filter).length ? filter : null;
    if (drawn.has(chart.id)) drawn.get(chart.id).finalize();
    drawn.delete(chart.id);
    var place = document.getElementById(chart.id);
    place.textContent = rows.length ? "" : "Nothing is drawn for this choice.";
    return rows.length ? draw(chart, spec, datasets) : Promise.resolve();
  }

  function filter_table(table) {
    var chosen = {};
    selects.forEach(function (s) { if (s.value !== "") chosen[s.dataset.filter] = s.value; });
    var names = Object.keys(chosen).filter(function (n) { return table.dataset.columns.split(" ").indexOf(n) >= 0; });
    table.querySelectorAll("tbody tr").forEach(function (row) {
      row.hidden = names.length
        ? !names.every(function (n) { return row.dataset[n] === chosen[n]; })
        : "later" in row.dataset;
    });
    // How many rows are left out is known of the whole only.
    table.closest(".fold").querySelectorAll(".whole, .narrowed").forEach(function (words) {
      words.hidden = words.className === "whole" ? names.length > 0 : names.length === 0;
    });
    return names.length > 0;
  }

  function counted(things, word) {
    return things.length + " " + word + (things.length === 1 ? "" : "s");
  }

  function apply() {
    var filter = wanted();
    root.dataset.charts = "DRAWING";
    var tables = Array.from(document.querySelectorAll("table[data-columns]"));
    var touched = tables.filter(function (table) { return filter_table(table); });
    var redrawn = data.charts.map(function (chart) { return [chart, filter_chart(chart, filter)]; })
      .filter(function (pair) { return pair[1]; });
    var words = selects.filter(function (s) { return s.value !== ""; }).map(function (s) {
      return s.dataset.kind + " " + s.options[s.selectedIndex].text;
    });
    document.querySelectorAll(".only").forEach(function (p) { p.remove(); });
    if (words.length) {
      touched.concat(redrawn.map(function (pair) { return document.getElementById(pair[0].id); })).forEach(function (e) {
        var article = e.closest("article");
        if (!article || article.querySelector(".only")) return;
        var note = document.createElement("p");
        note.className = "notes only";
        note.textContent = "Below, charts and tables: only " + words.join(", ") + ".";
        article.querySelector("h3").insertAdjacentElement("afterend", note);
      });
    }
    document.getElementById("filter-status").textContent = words.length
      ? "Only " + words.join(", ") + ": " + counted(touched, "table") + " and " + counted(redrawn, "chart") + "; the sentences stay those of the whole."
      : "";
    Promise.all(redrawn.map(function (pair) { return pair[1]; })).then(drawn_all);
  }

  selects.forEach(function (s) { s.addEventListener("change", apply); });

  var theme = document.getElementById("theme");
  if (theme) {
    theme.addEventListener("click", function () {
      var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
  }

  // On paper charts are drawn for the room they get, a little wider and lower, so that their letters suit the text.
  var SHEET = 760, HALF = 400, THIRD = 300, LOWER = 0.8, LEAST = 140;

  function paper_width(place) {
    var pair = place.closest(".pair");
    if (pair && !place.closest("figure.wide")) return pair.children.length === 3 || pair.children.length > 4 ? THIRD : HALF;
    return place.closest(".halves") ? HALF : SHEET;
  }

  function resize(id, width, height) {
    drawn.get(id).view.width(width).height(height).run();
  }

  // On paper nothing can be unfolded: what matters is opened, and closed again afterwards.
  var opened = [], sizes = new Map();
  window.addEventListener("beforeprint", function () {
    if (sizes.size) return;
    opened = Array.from(document.querySelectorAll("details[data-print]:not([open])"));
    opened.forEach(function (d) { d.open = true; });
    drawn.forEach(function (result, id) {
      var place = document.getElementById(id), high = result.view.height();
      // What the view calls its width is that between the axes.
      sizes.set(id, [Number(place.querySelector("svg").getAttribute("width")), high]);
      resize(id, paper_width(place), Math.max(Math.min(high, LEAST), high * LOWER));
    });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
    sizes.forEach(function (size, id) { resize(id, size[0], size[1]); });
    sizes.clear();
  });

  // What is printed: the part that is shown, or all of them.
  function print_of(id, whole) {
    var button = document.getElementById(id);
    if (button) button.addEventListener("click", function () {
      root.classList.toggle("whole", whole);
      window.print();
    });
  }
  print_of("print-part", false);
  print_of("print-all", true);
  root.classList.add("whole");

  var links = new Map();
  document.querySelectorAll(".nav a").forEach(function (a) { links.set(a.hash.slice(1), a); });
  if (window.IntersectionObserver) {
    var observer = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        links.forEach(function (a) { a.removeAttribute("aria-current"); });
        links.get(entry.target.id).setAttribute("aria-current", "true");
      });
    }, { rootMargin: "0px 0px -75% 0px" });
    links.forEach(function (_, id) {
      var section = document.getElementById(id);
      if (section) observer.observe(section);
    });
  }
})();
