(function () {
  "use strict";
  var root = document.documentElement;
  var data = JSON.parse(document.getElementById("chart-data").textContent);
  var failed = 0;

  function draw(chart) {
    var place = document.getElementById(chart.id);
    var spec = Object.assign({}, chart.spec, { datasets: data.datasets });
    // The interpreter (ast) evaluates Vega's expressions without eval, which the page's policy forbids.
    var options = { renderer: "svg", actions: false, ast: true, config: data.config, hover: false };
    return window.vegaEmbed(place, spec, options).catch(function (error) {
      failed += 1;
      place.textContent = "This chart could not be drawn; the table below holds its numbers.";
      place.removeAttribute("role");
      place.removeAttribute("aria-label");
      console.error(chart.id, error);
    });
  }

  Promise.all(data.charts.map(draw)).then(function () {
    root.dataset.charts = (failed ? "FAILED " : "READY ") + data.charts.length;
  });

  // On paper nothing can be unfolded: what matters is opened, and closed again afterwards.
  var opened = [];
  window.addEventListener("beforeprint", function () {
    opened = Array.from(document.querySelectorAll("details[data-print]:not([open])"));
    opened.forEach(function (d) { d.open = true; });
  });
  window.addEventListener("afterprint", function () {
    opened.forEach(function (d) { d.open = false; });
  });

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
