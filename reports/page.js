(function () {
  "use strict";
  var root = document.documentElement;
  var data = JSON.parse(document.getElementById("chart-data").textContent);
  var failed = 0;
  var drawn = new Map();

  // Draw a chart in its placeholder. The promise resolves to the view, or to null if the chart could not be drawn.
  function embed(id, spec, datasets) {
    var place = document.getElementById(id);
    var whole = Object.assign({}, spec, { datasets: datasets });
    // The interpreter (ast) evaluates Vega's expressions without eval, which the page's policy forbids.
    var options = { renderer: "svg", actions: false, ast: true, config: data.config, hover: false };
    return window.vegaEmbed(place, whole, options).catch(function (error) {
      place.textContent = "This chart could not be shown. The table below has its numbers.";
      place.removeAttribute("role");
      place.removeAttribute("aria-label");
      console.error(id, error);
      return null;
    });
  }

  function draw(chart, spec, datasets) {
    return embed(chart.id, spec, datasets).then(function (result) {
      if (result) drawn.set(chart.id, result); else failed += 1;
    });
  }

  function drawn_all() {
    root.dataset.charts = (failed ? "FAILED " : "READY ") + data.charts.length;
  }

  // Draw one chart after another, so that the page stays responsive.
  function in_turn(things, act) {
    return things.reduce(function (before, one) {
      return before.then(function () { return act(one); }).then(breathe);
    }, Promise.resolve());
  }

  function breathe() {
    return new Promise(function (done) { setTimeout(done, 0); });
  }

  // Tabs of a report. One tab is shown, and its name is in the address.
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
    window.addEventListener("hashchange", function () {
      show_tab();
      // Move the focus to the chosen tab. For a question, the browser does this itself.
      var part = document.getElementById(location.hash.slice(1));
      if (part && part.classList.contains("tab")) part.focus({ preventScroll: true });
    });
  }

  function seen(chart) {
    var tab = tab_of(chart.id);
    return !tab || !tab.classList.contains("away");
  }

  // Draw the visible charts first, then the others.
  Promise.all(data.charts.filter(seen).map(function (chart) { return draw(chart, chart.spec, data.datasets); }))
    .then(function () {
      root.dataset.first = "READY";
      return in_turn(data.charts, function (chart) {
        return drawn.has(chart.id) ? null : draw(chart, chart.spec, data.datasets);
      });
    })
    .then(drawn_all);

  // Filters by part of the cluster and by time, for table rows and charts with these data. parts.js handles the rest.
  var selects = Array.from(document.querySelectorAll("select[data-filter]"));
  var since = document.getElementById("since"), until = document.getElementById("until");
  var show_all = document.getElementById("all");
  var shown = data.parts ? data.parts.shown : [];
  // Times of a part that begin or end within a span. Only a server can answer for these times.
  var between = [null, null];

  function wanted() {
    var found = {};
    selects.forEach(function (s) { if (s.value !== "") found[s.dataset.filter] = data.filters[s.dataset.filter][s.value]; });
    return found;
  }

  // The first chosen span and the span after the last one, or null if all spans are chosen.
  function spans() {
    if (!since) return null;
    var first = Number(since.value), last = Number(until.value);
    return first === 0 && last === shown.length - 1 ? null : [first, last];
  }

  function fits(row, filter) {
    return Object.keys(filter).every(function (name) { return !(name in row) || row[name] === filter[name]; });
  }

  function within(row, time) {
    return !time || !("time" in row) || (row.time >= shown[time[0]] && row.time < shown[time[1]]);
  }

  function concerns(rows, filter, time) {
    return rows.some(function (row) {
      return time && "time" in row || Object.keys(filter).some(function (name) { return name in row; });
    });
  }

  function named(node, found) {
    if (node && typeof node === "object") {
      if (node.data && node.data.name) found.push(node.data.name);
      Object.keys(node).forEach(function (key) { if (key !== "data") named(node[key], found); });
    }
    return found;
  }

  // Categories without rows are removed from the axis, and a shorter period fills the full width.
  function prune(node, rows, whole, time) {
    if (!node || typeof node !== "object") return;
    Object.keys(node).forEach(function (key) { prune(node[key], rows, whole, time); });
    if (time && node.field === "time" && node.axis) delete node.axis.values;
    if (time && node.field === "time" && node.scale) { delete node.scale.domain; delete node.scale.domainMax; delete node.scale.domainMin; }
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

  // A layer without rows, such as the label at the end of a line, would have axes without a domain.
  function drop_empty(node, datasets) {
    if (!node || typeof node !== "object") return;
    if (Array.isArray(node.layer)) {
      node.layer = node.layer.filter(function (one) { return !(one.data && one.data.name && !datasets[one.data.name].length); });
    }
    Object.keys(node).forEach(function (key) { drop_empty(node[key], datasets); });
  }

  function redraw(chart, spec, datasets, rows) {
    if (drawn.has(chart.id)) drawn.get(chart.id).finalize();
    drawn.delete(chart.id);
    var place = document.getElementById(chart.id), figure = place.closest("figure");
    place.textContent = rows ? "" : "There is nothing to show for this choice.";
    // If there are several charts, hide those with nothing to draw.
    figure.hidden = !rows && Boolean(figure.parentElement.querySelector("figure:not([hidden]) .plot svg"));
    return rows ? draw(chart, spec, datasets) : Promise.resolve();
  }

  // Return the function that draws a chart for a choice, or null if the chart's data do not support the choice.
  function narrowed(chart, filter, time) {
    var names = named(chart.spec, []);
    var before = chart.part || [{}, null];
    var concerned = names.filter(function (n) {
      return concerns(data.datasets[n], Object.assign({}, before[0], filter), before[1] || time);
    });
    if (!concerned.length) return null;
    var spec = JSON.parse(JSON.stringify(chart.spec));
    var datasets = Object.assign({}, data.datasets);
    var rows = [];
    names.forEach(function (n) {
      datasets[n] = data.datasets[n].filter(function (row) { return fits(row, filter) && within(row, time); });
      rows = rows.concat(datasets[n]);
    });
    prune(spec, rows, spec, time);
    // The ends of lines, with their labels, may be outside the chosen time.
    var legend = document.getElementById(chart.id).closest("figure").querySelector(".legend.ends");
    if (legend) legend.classList.toggle("unseen", !time);
    if (rows.length) drop_empty(spec, datasets);
    chart.part = [filter, time];
    return function () { return redraw(chart, spec, datasets, rows.length); };
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
    // The number of rows left out is known only for the whole log.
    (table.closest(".fold") || table.closest("article")).querySelectorAll(".whole, .narrowed").forEach(function (words) {
      words.hidden = words.className === "whole" ? names.length > 0 : names.length === 0;
    });
    return names.length > 0;
  }

  function part_in_words(time) {
    var words = selects.filter(function (s) { return s.value !== ""; }).map(function (s) {
      return s.dataset.kind + " " + s.options[s.selectedIndex].text;
    });
    if (time) words.push(data.parts.moments[time[0]] + " to " + data.parts.moments[time[1]]);
    return words.join(", ");
  }

  function remark(article, words) {
    var note = document.createElement("p");
    note.className = "notes only";
    note.textContent = words;
    article.querySelector("h3").insertAdjacentElement("afterend", note);
  }

  // Number of the current choice. A later choice takes over drawing from an earlier choice.
  var choice = 0;

  function apply() {
    var mine = choice += 1;
    var filter = wanted(), time = spans(), words = part_in_words(time);
    if (time) between = [null, null];
    root.dataset.charts = "DRAWING";
    if (show_all) show_all.disabled = !words;
    var tables = Array.from(document.querySelectorAll("table[data-columns]"));
    var touched = new Set();
    tables.forEach(function (table) { if (filter_table(table)) touched.add(table.closest("article")); });
    var redrawn = data.charts.filter(function (chart) { return !document.getElementById(chart.id).closest(".strip"); })
      .map(function (chart) { return { chart: chart, draw: narrowed(chart, filter, time) }; })
      .filter(function (one) { return one.draw; });
    redrawn.forEach(function (one) { touched.add(document.getElementById(one.chart.id).closest("article")); });
    var first = redrawn.filter(function (one) { return seen(one.chart); });
    var others = redrawn.filter(function (one) { return first.indexOf(one) < 0; });
    document.querySelectorAll(".only").forEach(function (p) { p.remove(); });
    var status = document.getElementById("filter-status");
    status.textContent = status.title = words ? "Only " + words + "." : "";
    var event = new CustomEvent("tracekit:part", { detail: {
      // The first span begins with the log, and the last span includes its last submission.
      since: time ? (time[0] > 0 ? data.parts.edges[time[0]] : null) : between[0],
      until: time ? (time[1] < shown.length - 1 ? data.parts.edges[time[1]] : null) : between[1],
      where: filter,
      spans: time,
      words: words,
      touched: touched,
      waits: first.map(function (one) { return one.draw(); })
    } });
    document.dispatchEvent(event);
    if (words) {
      document.querySelectorAll("article").forEach(function (article) {
        if (article.querySelector(".only")) return;
        remark(article, touched.has(article) ? "Below, only " + words + ". The sentence covers the whole log." : "This answer covers the whole log, because the filter does not apply to it.");
      });
    }
    Promise.all(event.detail.waits).then(function () {
      return in_turn(others, function (one) { return mine === choice ? one.draw() : null; });
    }).then(function () { if (mine === choice) drawn_all(); });
  }

  function choose(name, value) {
    var select = selects.find(function (s) { return s.dataset.filter === name; });
    if (!select) return;
    select.value = value;
    alone(select);
    apply();
  }

  // The page combines users only with cluster and time; a server queries the Trace.
  function alone(select) {
    if (select.value === "" || root.dataset.served) return;
    var user = select.dataset.filter === "user";
    selects.forEach(function (other) {
      if (other !== select && other.dataset.filter !== "cluster" && select.dataset.filter !== "cluster" &&
          (user || other.dataset.filter === "user")) other.value = "";
    });
  }

  function choose_spans(first, last) {
    since.value = first;
    until.value = last;
    apply();
  }

  selects.forEach(function (s) { s.addEventListener("change", function () { alone(s); apply(); }); });
  if (since) {
    since.addEventListener("change", function () {
      if (Number(until.value) <= Number(since.value)) until.value = Number(since.value) + 1;
      apply();
    });
    until.addEventListener("change", function () {
      if (Number(until.value) <= Number(since.value)) since.value = Number(until.value) - 1;
      apply();
    });
  }
  // All choices: names by filter, and times from the page or other times for which only a server can answer.
  function choose_all(where, first, last) {
    selects.forEach(function (s) {
      var value = where[s.dataset.filter];
      if (value === undefined) { s.value = ""; return; }
      var values = data.filters[s.dataset.filter];
      if (values.indexOf(value) < 0) {
        values.push(value);
        s.add(new Option(value, String(values.length - 1)));
      }
      s.value = String(values.indexOf(value));
    });
    between = [first, last];
    if (since) {
      var edges = data.parts.edges, begin = edges.indexOf(first), end = edges.indexOf(last);
      var known = (!first || begin >= 0) && (!last || end > 0);
      since.value = known && first ? begin : 0;
      until.value = known && last ? end : edges.length - 1;
    }
    apply();
  }

  if (show_all) show_all.addEventListener("click", function () { choose_all({}, null, null); });

  // Show the first sentence and numbers for a part, and again for the whole log.
  var state = document.querySelector("#state bdi"), stated = state && state.textContent;
  var cards = Array.from(document.querySelectorAll(".cards [data-number]")).map(function (card) {
    return { name: card.dataset.number, card: card, before: card.innerHTML };
  });

  function tell_state(words) {
    if (state) state.textContent = words;
  }

  // `told` contains a number's text, the path of its sparkline and, if known, its change and note.
  function tell_number(one, told) {
    function within(name) { return one.card.querySelector(name); }
    within(".value").textContent = told.text;
    if (within(".change")) {
      within(".change").firstChild.textContent = told.change ? told.change + " " : "";
      within(".change").hidden = !told.change;
    }
    var line = within(".sparkline path");
    if (line) {
      line.setAttribute("d", told.path);
      line.closest("dd").hidden = !told.path;
    }
    if (told.note) within(".note").textContent = told.note;
  }

  function tell_whole() {
    tell_state(stated);
    cards.forEach(function (one) { one.card.innerHTML = one.before; });
  }

  // Hide numbers that are known only for the whole log.
  function mark_whole(narrowed) {
    document.querySelectorAll(".cards > div:not([data-number])").forEach(function (card) {
      card.classList.toggle("of-whole", narrowed);
    });
    document.querySelectorAll(".opening .cluster, .opening .changes > h3").forEach(function (words) {
      words.classList.toggle("said-of-whole", narrowed);
    });
  }

  // The rows that a chart currently shows.
  function rows_of(chart) {
    if (chart.rows) return chart.rows;
    var part = chart.part || [{}, null], rows = [];
    new Set(named(chart.spec, [])).forEach(function (n) {
      rows = rows.concat(data.datasets[n].filter(function (row) { return fits(row, part[0]) && within(row, part[1]); }));
    });
    return rows;
  }

  window.tracekit = {
    embed: embed, rows_of: rows_of, data: data, drawn: drawn, redraw: redraw, named: named, remark: remark, choose: choose,
    choose_spans: choose_spans, choose_all: choose_all,
    first: { cards: cards, tell_state: tell_state, tell_number: tell_number, tell_whole: tell_whole, mark_whole: mark_whole }
  };

  var theme = document.getElementById("theme");
  if (theme) {
    theme.addEventListener("click", function () {
      var dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
    });
  }

  // For printing, charts are drawn for their space on paper, slightly wider and lower, so their fonts match the text.
  var SHEET = 760, HALF = 400, THIRD = 300, LOWER = 0.8, LEAST = 140;

  function paper_width(place) {
    var pair = place.closest(".pair");
    if (pair && !place.closest("figure.wide")) return pair.children.length === 3 || pair.children.length > 4 ? THIRD : HALF;
    return place.closest(".halves") ? HALF : SHEET;
  }

  function resize(id, width, height) {
    drawn.get(id).view.width(width).height(height).run();
  }

  // Nothing can be unfolded on paper, so important details are opened for printing and closed again afterwards.
  var opened = [], sizes = new Map();
  window.addEventListener("beforeprint", function () {
    if (sizes.size) return;
    opened = Array.from(document.querySelectorAll("details[data-print]:not([open])"));
    opened.forEach(function (d) { d.open = true; });
    drawn.forEach(function (result, id) {
      var place = document.getElementById(id), high = result.view.height();
      // The view's width is the width between the axes.
      sizes.set(id, [Number(place.querySelector("svg").getAttribute("width")), high]);
      resize(id, paper_width(place), Math.max(Math.min(high, LEAST), high * LOWER));
    });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
    sizes.forEach(function (size, id) { resize(id, size[0], size[1]); });
    sizes.clear();
  });

  // Print the tab that is shown, or all tabs.
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
