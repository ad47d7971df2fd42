// The first numbers for a part of the cluster and a period, computed from sums embedded in the page.
(function () {
  "use strict";
  var page = window.tracekit;
  if (!page || !page.data.parts || !window.DecompressionStream) return;
  var told = page.data.parts, words = told.words;
  var parts = null, part = null;

  function unpack(text) {
    var bytes = Uint8Array.from(atob(text), function (c) { return c.charCodeAt(0); });
    var stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  // Format numbers as tracekit does (tracekit/text.py).
  function grouped(value, digits) {
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function three(value) { return String(Number(value.toPrecision(3))); }

  function count(value) {
    if (Number.isInteger(value) || Math.abs(value) >= 1000) return grouped(value, 0);
    return Math.abs(value) >= 10 ? grouped(value, 1) : three(value);
  }

  function duration(s) {
    var units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
    for (var i = 0; i < units.length; i++) {
      if (s >= units[i][0] * 0.9995) {
        var value = s / units[i][0];
        return (value >= 100 || units[i][1] === "s" && value >= 10 ? grouped(value, 0) : three(value)) + " " + units[i][1];
      }
    }
    return s ? Number(s.toPrecision(2)) + " s" : "0 s";
  }

  function percent(share) {
    var value = 100 * share;
    if (value <= 0) return "0 %";
    if (value < 0.05) return "< 0.1 %";
    if (value < 100 && value >= 99.95) return "> 99.9 %";
    return (value === 100 ? "100" : grouped(value, 1)) + " %";
  }

  function hours(h) { return count(h < 10 ? Math.round(h * 10) / 10 : Math.round(h)) + " h"; }

  function filled(form, values) {
    return form.replace(/\{(\w+)\}/g, function (_, name) { return values[name]; });
  }

  var NUMBERS = ["jobs", "started", "wait_s", "completed", "ended", "held", "waiting"];

  // The positions of the chosen values among the names, or null if a value has no position and is therefore unknown.
  function places(where) {
    var found = {};
    return Object.keys(where).every(function (name) {
      found[name] = (parts.names[name] || []).indexOf(where[name]);
      return found[name] >= 0;
    }) ? found : null;
  }

  function table_of(chosen, sums, user_sums) {
    var names = Object.keys(chosen);
    var users = names.indexOf("user") >= 0;
    if (users && names.some(function (n) { return n !== "user" && n !== "cluster"; })) return null;
    return users ? user_sums : sums;
  }

  function empty() {
    var one = { owned: 0, samples: 0, used: 0 };
    NUMBERS.forEach(function (n) { one[n] = 0; });
    return one;
  }

  // Sum rows by the group that `of` returns. `of` may return null to skip a row.
  function sum(rows, chosen, time, of) {
    var names = Object.keys(chosen), columns = names.map(function (n) { return rows[n] || []; });
    var wanted = names.map(function (n) { return chosen[n]; });
    var found = new Map(), length = rows.span.length, last = told.edges.length - 2;
    for (var i = 0; i < length; i++) {
      var span = rows.span[i], fit = !time || span >= time[0] && span < time[1];
      for (var k = 0; fit && k < names.length; k++) fit = columns[k][i] === wanted[k];
      if (!fit) continue;
      var group = of(i, span, last);
      if (group === null) continue;
      var one = found.get(group);
      if (!one) found.set(group, one = empty());
      for (k = 0; k < NUMBERS.length; k++) one[NUMBERS[k]] += rows[NUMBERS[k]][i];
    }
    return found;
  }

  // Owned GPUs and the utilization of all GPUs belong to nodes and not to jobs, so only the cluster filter applies.
  function add_machines(found, chosen, time, of) {
    var rows = parts.sums, only = Object.keys(chosen).every(function (n) { return n === "cluster"; });
    for (var i = 0; i < rows.span.length; i++) {
      var span = rows.span[i];
      if (!rows.owned[i] && !rows.samples[i]) continue;
      if (time && (span < time[0] || span >= time[1])) continue;
      if ("cluster" in chosen && rows.cluster && rows.cluster[i] !== chosen.cluster) continue;
      var group = of(i, span);
      if (group === null) continue;
      var one = found.get(group);
      if (!one) found.set(group, one = empty());
      one.owned += rows.owned[i];
      if (only) { one.samples += rows.samples[i]; one.used += rows.used[i]; }
    }
    return found;
  }

  function numbers(one) {
    return {
      jobs: one.jobs,
      mean_wait_s: one.started ? one.wait_s / one.started : null,
      waited_h: one.started ? one.wait_s / 3600 : null,
      held_share: one.owned ? one.held / one.owned : null,
      used_share: one.samples ? one.used / 100 / one.samples : null,
      completed_share: one.ended ? one.completed / one.ended : null
    };
  }

  // The 90th percentile of a part's waits, from job counts by wait class, or null if these are unknown.
  function percentile(chosen, time) {
    var blocks = table_of(chosen, parts.waits, parts.user_waits);
    var block = (blocks || []).find(function (rows) {
      return (!time || rows.span) && Object.keys(chosen).every(function (n) { return rows[n]; });
    });
    if (!block) return null;
    var at = new Map(), all = 0, names = Object.keys(chosen);
    for (var i = 0; i < block.bin.length; i++) {
      if (time && (block.span[i] < time[0] || block.span[i] >= time[1])) continue;
      if (!names.every(function (n) { return block[n][i] === chosen[n]; })) continue;
      at.set(block.bin[i], (at.get(block.bin[i]) || 0) + block.jobs[i]);
      all += block.jobs[i];
    }
    if (!all) return null;
    var rank = 0.9 * (all - 1) + 0.5, below = 0, width = block.width[0];
    var bins = Array.from(at.keys()).sort(function (a, b) { return a - b; });
    for (i = 0; i < bins.length; i++) {
      var here = at.get(bins[i]);
      if (below + here >= rank) {
        return bins[i] < 0 ? 0 : Math.pow(10, (bins[i] + width * (rank - below) / here) / 20);
      }
      below += here;
    }
    return null;
  }

  function all_of(chosen, time) {
    var rows = table_of(chosen, parts.sums, parts.user_sums);
    if (!rows) return null;
    var whole = function () { return 0; };
    var found = add_machines(sum(rows, chosen, time, whole), chosen, time, whole);
    return Object.assign(numbers(found.get(0) || empty()), { p90_wait_s: percentile(chosen, time) });
  }

  function by_span(chosen, time) {
    var rows = table_of(chosen, parts.sums, parts.user_sums);
    var span = function (_, number) { return number; };
    var found = add_machines(sum(rows, chosen, time, span), chosen, time, span);
    var first = time ? time[0] : 0, last = time ? time[1] : told.edges.length - 1, series = [];
    for (var i = first; i < last; i++) series.push(found.get(i) || empty());
    series.late = time ? empty() : found.get(-1) || empty(); // jobs that ended after the last span
    return series;
  }

  function added(several) {
    return several.reduce(function (all, one) {
      Object.keys(all).forEach(function (n) { all[n] += one[n]; });
      return all;
    }, empty());
  }

  var WRITE = {
    mean_wait_s: duration, waited_h: hours, held_share: percent, used_share: percent, completed_share: percent
  };

  // As `runs` in tracekit/report/telling.py: no line for a single number or for only zeros.
  function sparkline(series) {
    var most = Math.max.apply(null, series.map(function (v) { return v || 0; }));
    if (!most || series.filter(function (v) { return v !== null; }).length < 2) return "";
    var step = 120 / Math.max(series.length - 1, 1), path = "", drawing = false;
    series.forEach(function (value, i) {
      if (value === null) { drawing = false; return; }
      var single = !drawing && (i + 1 === series.length || series[i + 1] === null);
      path += (drawing ? "L" : "M") + (i * step).toFixed(1) + " " + (26 - value / most * 24).toFixed(1) + (single ? "h0.01" : "");
      drawing = true;
    });
    return path;
  }

  function show_cards(found, series, of_jobs) {
    var half = Math.ceil(series.length / 2);
    var halves = [series.slice(0, half), series.slice(half).concat(series.late || [])].map(function (some) { return numbers(added(some)); });
    page.first.cards.forEach(function (one) {
      var name = one.name, value = found && found[name];
      var known = value !== null && value !== undefined, ends = halves.map(function (h) { return h[name]; });
      var both = known && series.length > 1 && ends.every(function (v) { return v !== null; });
      var note = words.of_part[name];
      if (!known) {
        note = !found ? "the page has no numbers for this part"
          : words.lacking[name === "used_share" && of_jobs ? "machines" : "none"];
      } else if (name === "mean_wait_s") {
        note = found.p90_wait_s === null ? "of this part's jobs"
          : found.p90_wait_s < 1 ? words.tails.none : filled(words.tails.long, { most: "about " + duration(found.p90_wait_s) });
      }
      page.first.tell_number(one, {
        text: known ? WRITE[name](value) : words.lacking.number,
        change: both ? ends.map(WRITE[name]).join(" \u2192 ") : null,
        path: known ? sparkline(series.map(function (s) { return numbers(s)[name]; })) : "",
        note: note
      });
    });
  }

  function sentence(found, of_jobs) {
    if (!found) return "The first numbers are not available for this part.";
    if (found.mean_wait_s === null) return words.lacking[found.jobs ? "waits" : "jobs"];
    var mean = found.mean_wait_s, most = found.p90_wait_s, least = words.at_once_s;
    var known = most !== null;
    var form = mean < least && (!known || most < least) ? "at once" : known && most < least ? "few" : known && mean > most ? "tail" : "long";
    var text = known || form === "at once" ? words.states[form] : words.states.long.replace(/,[^,]*$/, "");
    var waits = filled(text, { mean: duration(mean), most: known ? "about " + duration(most) : "" });
    var held = found.held_share;
    if (held === null) return filled(words.held.unknown, { waits: waits });
    var ending = of_jobs ? "part" : held >= words.full ? "full" : "free";
    return filled(words.held[ending], { waits: waits, held: percent(held), free: percent(1 - held) });
  }

  // The strip shows its own rows if only a time is chosen, otherwise the part's sums by span.
  function lengths_s() {
    var found = told.edges.map(function () { return 0; });
    parts.sums.time_s.forEach(function (s, i) { found[parts.sums.span[i]] += s; });
    return found;
  }

  function strip_charts() {
    return page.data.charts.filter(function (chart) {
      var place = document.getElementById(chart.id);
      return place && place.closest(".strip");
    });
  }

  function show_strip(chosen) {
    var whole = !chosen || !Object.keys(chosen).length;
    var series = whole ? null : by_span(chosen, null), length = lengths_s();
    return strip_charts().map(function (chart) {
      var column = (chart.spec.layer || [chart.spec])[0].encoding.y.field;
      if (column === "nodes_down" || whole && !chart.narrowed) return Promise.resolve();
      chart.narrowed = !whole;
      chart.rows = null;
      if (whole) return page.redraw(chart, chart.spec, page.data.datasets, 1);
      var rows = series.map(function (one, i) {
        return { time: told.shown[i], held: one.held / length[i], waiting: one.waiting / length[i], owned: one.owned / length[i] || null };
      }).filter(function (_, i) { return length[i] > 0; });
      if (!rows.length) return page.redraw(chart, chart.spec, {}, 0);
      rows.push(Object.assign({}, rows[rows.length - 1], { time: told.shown[series.length] }));
      chart.rows = rows;
      var datasets = Object.assign({}, page.data.datasets);
      page.named(chart.spec, []).forEach(function (name) { datasets[name] = rows; });
      return page.redraw(chart, chart.spec, datasets, rows.length);
    });
  }

  // A brush over the strip highlights the chosen spans; dragging chooses others.
  var shades = [];

  function time_axis(chart) {
    var result = page.drawn.get(chart.id);
    if (!result) return null;
    var scale = result.view.scale("x"), left = result.view.padding().left + result.view.origin()[0];
    var range = scale.range();
    var axis = told.shown.map(function (t) {
      var x = scale(typeof t === "string" ? Date.parse(t) : t);
      return left + Math.min(Math.max(x, range[0]), range[1]);
    });
    return axis.concat(left + range[1]);
  }

  function span_at(axis, x) {
    for (var i = axis.length - 3; i > 0; i--) if (x >= axis[i]) return i;
    return 0;
  }

  function shade(time) {
    shades.forEach(function (one) {
      var axis = time_axis(one.chart), all = !time;
      one.before.hidden = one.after.hidden = all || !axis;
      if (all || !axis) return;
      var place = document.getElementById(one.chart.id);
      one.before.style.left = axis[0] + "px";
      one.before.style.width = axis[time[0]] - axis[0] + "px";
      // The last span extends to the end of the log, although jobs were submitted only in its first part.
      var end = axis[axis.length - 1], from = time[1] === axis.length - 2 ? end : axis[time[1]];
      one.after.style.left = from + "px";
      one.after.style.width = end - from + "px";
      place.append(one.before, one.after);
    });
  }

  function brush(chart) {
    var place = document.getElementById(chart.id), from = null, to = null;
    var one = { chart: chart };
    ["before", "after"].forEach(function (name) {
      one[name] = document.createElement("span");
      one[name].className = "unchosen";
      one[name].hidden = true;
    });
    shades.push(one);
    place.classList.add("brushed");
    function spot(event) { return span_at(time_axis(chart), event.clientX - place.getBoundingClientRect().left); }
    place.addEventListener("pointerdown", function (event) {
      if (event.button !== 0 || event.pointerType === "touch" || !time_axis(chart)) return;
      from = to = spot(event);
      place.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    place.addEventListener("pointermove", function (event) {
      if (from === null) return;
      to = spot(event);
      var time = [Math.min(from, to), Math.max(from, to) + 1];
      shade(time);
      show_numbers(part ? part.chosen : {}, time, true);
    });
    ["pointerup", "pointercancel"].forEach(function (kind) {
      place.addEventListener(kind, function (event) {
        if (from === null) return;
        var first = Math.min(from, to), last = Math.max(from, to) + 1;
        // A click without dragging clears the selection.
        if (first + 1 === last && part && part.time) { first = 0; last = told.edges.length - 1; }
        from = null;
        if (kind === "pointerup") page.choose_spans(first, last); else shade(part && part.time);
      });
    });
  }

  // Keyboard control: arrow keys move the time, Shift with arrow keys changes its length, Escape clears it.
  var IDLE_MS = 300, handle = null, waiting = null;

  function time_words(time) {
    return time ? told.moments[time[0]] + " to " + told.moments[time[1]] : "all, " + told.moments[0] + " to " + told.moments[told.moments.length - 1];
  }

  function mark_handle(time) {
    if (!handle) return;
    handle.setAttribute("aria-valuenow", String(time ? time[0] : 0));
    handle.setAttribute("aria-valuetext", time_words(time));
  }

  // The time that a key selects among `spans`. Null means all times, and undefined means that the key does nothing.
  function keyed(event, time, spans) {
    var step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key], length = time ? time[1] - time[0] : 1;
    if (event.altKey || event.ctrlKey || event.metaKey) return undefined;
    if (event.key === "Escape") return null;
    if (event.key === "Home") return [0, length];
    if (event.key === "End") return [spans - length, spans];
    if (!step) return undefined;
    if (!time) return step > 0 ? [0, 1] : [spans - 1, spans];
    if (event.shiftKey) return [time[0], Math.min(Math.max(time[1] + step, time[0] + 1), spans)];
    var first = Math.min(Math.max(time[0] + step, 0), spans - length);
    return [first, first + length];
  }

  function make_handle(place) {
    var spans = told.edges.length - 1, aimed;
    handle = document.createElement("div");
    handle.className = "handle screen";
    handle.tabIndex = 0;
    var said = { role: "slider", "aria-valuemin": "0", "aria-valuemax": String(spans - 1),
      "aria-label": "Time shown. Arrow keys move it, Shift with arrow keys changes its length, and Escape shows all" };
    Object.keys(said).forEach(function (name) { handle.setAttribute(name, said[name]); });
    handle.addEventListener("keydown", function (event) {
      var time = keyed(event, aimed === undefined ? part && part.time : aimed, spans);
      if (time === undefined || !parts) return;
      event.preventDefault();
      aimed = time && time[0] === 0 && time[1] === spans ? null : time;
      shade(aimed);
      mark_handle(aimed);
      show_numbers(part ? part.chosen : {}, aimed, true);
      clearTimeout(waiting);
      // Redraw the charts when no key has been pressed for a short time.
      waiting = setTimeout(function () {
        var chosen = aimed || [0, spans];
        aimed = undefined;
        page.choose_spans(chosen[0], chosen[1]);
      }, IDLE_MS);
    });
    place.prepend(handle);
    mark_handle(null);
  }

  // A server computes the numbers for a choice from the Trace. While a time is dragged, the page computes them.
  function show_numbers(chosen, time, dragged) {
    var none = !time && !Object.keys(chosen || {}).length;
    if (none) page.first.tell_whole();
    else if (dragged || !document.documentElement.dataset.served) {
      var found = chosen && all_of(chosen, time);
      var of_jobs = chosen && Object.keys(chosen).some(function (n) { return n !== "cluster"; });
      show_cards(found, found ? by_span(chosen, time) : [], of_jobs);
      page.first.tell_state(sentence(found, of_jobs));
    }
    page.first.mark_whole(!none);
    show_closer(chosen || {}, time);
  }

  // The table of numbers by part. Each name is a button that chooses the part.
  var by = document.getElementById("closer-by"), table = document.getElementById("closer-table");
  var COLUMNS = [["jobs", "jobs"], ["mean_wait_s", "mean wait"], ["waited_h", "total wait"], ["held_share", "GPU time allocated"],
    ["completed_share", "GPU time completed"]];
  var FEW = 25;

  function cell(row, tag, text, kind) {
    var made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    row.append(made);
    return made;
  }

  function show_closer(chosen, time) {
    if (!table) return;
    // Keep the keyboard focus on the same name or heading.
    var at = table.contains(document.activeElement) ? document.activeElement.textContent : null;
    var name = by.value, rest = Object.assign({}, chosen);
    delete rest[name];
    if (name === "user") Object.keys(rest).forEach(function (n) { if (n !== "cluster") delete rest[n]; });
    else delete rest.user;
    var rows = name === "user" ? parts.user_sums : parts.sums;
    var group = function (i) { return rows[name][i] < 0 ? null : rows[name][i]; };
    var found = sum(rows, rest, time, group);
    var owned = add_machines(new Map(), rest, time, name === "cluster" ? group : function () { return 0; });
    table.textContent = "";
    cell(table, "caption", "Numbers by part", "unseen");
    var head = document.createElement("tr");
    var thead = document.createElement("thead"), body = document.createElement("tbody");
    thead.append(head);
    table.append(thead, body);
    cell(head, "th", by.options[by.selectedIndex].text).scope = "col";
    var groups = Array.from(found.keys()).sort(function (a, b) { return found.get(b).wait_s - found.get(a).wait_s || found.get(b).jobs - found.get(a).jobs; });
    var lines = groups.slice(0, FEW).map(function (place) {
      var one = found.get(place), machines = owned.get(name === "cluster" ? place : 0);
      one.owned = machines ? machines.owned : 0;
      return { place: place, values: numbers(one) };
    });
    // Columns that are unknown for all parts are left out.
    var columns = COLUMNS.filter(function (c) { return lines.some(function (line) { return line.values[c[0]] !== null; }); });
    columns.forEach(function (c) { cell(head, "th", c[1], "number").scope = "col"; });
    lines.forEach(function (line) {
      var place = line.place, values = line.values, row = document.createElement("tr");
      var button = document.createElement("button");
      button.type = "button";
      button.className = "choice";
      button.textContent = parts.names[name][place];
      button.setAttribute("aria-pressed", String(chosen[name] === place));
      button.addEventListener("click", function () { page.choose(name, chosen[name] === place ? "" : String(page.data.filters[name].indexOf(parts.names[name][place]))); });
      cell(row, "th", "").append(button);
      row.firstChild.scope = "row";
      columns.forEach(function (c) {
        var value = values[c[0]];
        var made = cell(row, "td", value === null ? "" : (WRITE[c[0]] || count)(value), "number");
        if (value !== null) made.dataset.value = value;
      });
      body.append(row);
    });
    if (groups.length > FEW) {
      var last = document.createElement("tr");
      cell(last, "td", groups.length - FEW + " more with less waiting").colSpan = columns.length + 1;
      last.className = "rest";
      body.append(last);
    }
    document.dispatchEvent(new CustomEvent("tracekit:table", { detail: table }));
    var again = at !== null && Array.from(table.querySelectorAll("button")).find(function (one) { return one.textContent === at; });
    if (again) again.focus({ preventScroll: true });
  }

  // Sentences embedded in the page for a choice.
  function show_sentences(detail) {
    document.querySelectorAll(".finding[data-of]").forEach(function (p) {
      var bdi = p.querySelector("bdi"), of = parts.sentences[p.dataset.of];
      if (p.dataset.whole === undefined) p.dataset.whole = bdi.textContent;
      var words_of = null;
      if (of) {
        // Names in the order of the page's filters.
        var key = Object.keys(page.data.filters).filter(function (n) { return n in detail.where; })
          .map(function (n) { return [n, page.data.filters[n].indexOf(detail.where[n])]; });
        var keys = [key.map(function (k) { return k.join(" "); }).join(" ")].concat(key.map(function (k) { return k.join(" "); }));
        keys.some(function (k) { words_of = of[k] || null; return words_of; });
        if (key.length > 1 && words_of && !of[keys[0]]) words_of = null;
      }
      bdi.textContent = words_of || p.dataset.whole;
      if (words_of) page.remark(p.closest("article"), "Only " + detail.words + ".");
    });
  }

  function show(detail) {
    var chosen = places(detail.where);
    part = { chosen: chosen || {}, time: detail.spans };
    var drawing = show_strip(chosen);
    detail.waits.push.apply(detail.waits, drawing);
    show_numbers(chosen, detail.spans);
    show_sentences(detail);
    mark_handle(detail.spans);
    Promise.all(drawing).then(function () { shade(detail.spans); });
  }

  var packed = unpack(told.packed).then(function (value) {
    parts = value;
    show_closer({}, null);
    document.documentElement.dataset.parts = "READY";
  });
  document.addEventListener("tracekit:part", function (event) {
    // If there are no charts, there is nothing to wait for.
    if (!event.detail.waits) return;
    if (parts) show(event.detail); else packed.then(function () { show(event.detail); });
  });
  if (by) by.addEventListener("change", function () { show_closer(part ? part.chosen : {}, part ? part.time : null); });
  window.addEventListener("resize", function () { if (part) shade(part.time); });
  strip_charts().forEach(brush);
  if (shades.length && told.edges.length > 2) make_handle(document.querySelector(".strip"));
})();
