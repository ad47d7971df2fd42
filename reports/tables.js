// Tables can be searched and sorted by their headings, and each chart offers its data.
(function () {
  "use strict";
  var page = window.tracekit;
  if (!page) return;
  var SEARCHED = 12;
  var SIZES = { s: 1, min: 60, h: 3600, d: 86400 };
  var collator = new Intl.Collator("en", { numeric: true });

  // Sort key of a cell: its number, a duration in seconds, or its text, and null for an empty cell.
  function value_of(cell) {
    if (!cell) return null;
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    var text = "";
    cell.childNodes.forEach(function (node) {
      if (node.nodeType === 3 || node.nodeName !== "SMALL" && node.nodeName !== "ABBR") text += node.textContent;
    });
    text = text.trim();
    if (!text || text === "\u2013") return null;
    var number = /^[<>]?\s*([-\u2212+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(s|min|h|d|%)?$/i.exec(text);
    if (!number) return text;
    return Number(number[1].replace(/,/g, "").replace("\u2212", "-")) * (SIZES[number[2]] || 1);
  }

  function compare(a, b) {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return collator.compare(String(a), String(b));
  }

  function sort(heading) {
    var table = heading.closest("table"), place = heading.cellIndex, down = heading.getAttribute("aria-sort") === "ascending";
    var body = table.tBodies[0];
    var rows = Array.from(body.rows).filter(function (row) { return !row.classList.contains("rest"); });
    var keyed = rows.map(function (row) { return [value_of(row.cells[place]), row]; });
    keyed.sort(function (a, b) {
      // Empty cells come last in both directions.
      return a[0] === null || b[0] === null || !down ? compare(a[0], b[0]) : compare(b[0], a[0]);
    });
    table.querySelectorAll("th[aria-sort]").forEach(function (th) { th.removeAttribute("aria-sort"); });
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    keyed.reverse().forEach(function (pair) { body.prepend(pair[1]); });
  }

  function make_sortable(table) {
    if (!table.tHead || !table.tBodies[0] || table.tBodies[0].rows.length < 2) return;
    Array.from(table.tHead.rows[0].cells).forEach(function (heading) {
      if (heading.querySelector("button") || !heading.textContent.trim()) return;
      var button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      while (heading.firstChild) button.append(heading.firstChild);
      heading.append(button);
      button.addEventListener("click", function () { sort(heading); });
    });
  }

  function make_searchable(table) {
    var rows = Array.from(table.tBodies[0] ? table.tBodies[0].rows : []);
    var shown = rows.filter(function (row) { return !row.hidden; }).length;
    var place = table.closest(".scroll");
    if (shown < SEARCHED || !place) return;
    var box = document.createElement("input");
    box.type = "search";
    box.className = "search screen";
    box.placeholder = "Search these rows";
    box.setAttribute("aria-label", "Search the rows of: " + (table.caption ? table.caption.textContent : "this table"));
    box.addEventListener("input", function () {
      var wanted = box.value.trim().toLowerCase();
      rows.forEach(function (row) {
        row.classList.toggle("unfound", wanted !== "" && row.textContent.toLowerCase().indexOf(wanted) < 0);
      });
    });
    place.before(box);
  }

  // A spreadsheet would treat such text as a formula (tracekit/text.py).
  var RUN = /^(?:[\t\r\n]|[\s\p{Cc}\p{Cf}]*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20])/u;

  function field(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    var text = typeof value === "string" ? value : JSON.stringify(value);
    if (RUN.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
  }

  function csv(rows) {
    var columns = [];
    rows.forEach(function (row) {
      Object.keys(row).forEach(function (name) { if (columns.indexOf(name) < 0) columns.push(name); });
    });
    return [columns].concat(rows.map(function (row) { return columns.map(function (name) { return row[name]; }); }))
      .map(function (line) { return line.map(field).join(",") + "\r\n"; }).join("");
  }

  function save(name, text) {
    var link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff" + text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(function () { URL.revokeObjectURL(link.href); }, 1000);
  }

  function offer(box, words, title, act) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    button.title = title;
    button.addEventListener("click", act);
    box.append(button);
  }

  function show(place) {
    for (var e = place; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
    place.scrollIntoView({ block: "center", behavior: "instant" });
    place.focus({ preventScroll: true });
  }

  function make_offers(chart) {
    var plot = document.getElementById(chart.id), figure = plot && plot.closest("figure");
    if (!figure) return;
    var box = document.createElement("p"), article = figure.closest("article");
    box.className = "offers screen";
    offer(box, "CSV", "Save the numbers of this chart", function () {
      save(chart.id.replace(/^q-/, "") + ".csv", csv(page.rows_of(chart)));
    });
    var sql = article && article.querySelector("pre[aria-label^=SQL]");
    if (sql) offer(box, "SQL", "Show the query behind this chart", function () { show(sql); });
    var commands = article && article.querySelector("pre[aria-label^=Commands]");
    if (commands) offer(box, "Command", "Show the commands that compute this chart again", function () { show(commands); });
    if (figure.closest(".strip")) {
      offer(box, "SQL", "Show the query behind this chart", function () { location.hash = "#q-queuing-cluster-timeline"; });
    }
    figure.append(box);
  }

  document.querySelectorAll("main table").forEach(function (table) {
    make_sortable(table);
    make_searchable(table);
  });
  document.addEventListener("tracekit:table", function (event) { make_sortable(event.detail); });
  page.data.charts.forEach(make_offers);
})();
