(function () {
  "use strict";
  var root = document.documentElement;
  var data = JSON.parse(document.getElementById("chart-data").textContent);
  var status = document.getElementById("part-status"), back = document.getElementById("part-clear");
  if (!data.asked || !status) return;

  // The requested part, its number, and its answers so far. An answer with another number is too late.
  var query = "", turn = 0, running = null, answered = new Set(), views = new Map(), failed = 0, asked_words = "";

  function query_of(detail) {
    var found = new URLSearchParams(), where = detail.where || {};
    ["since", "until"].forEach(function (name) { if (detail[name]) found.set(name, detail[name]); });
    Object.keys(where).sort().forEach(function (name) {
      if (where[name] !== null && where[name] !== undefined) found.set("where." + (name === "gpu_class" ? "size" : name), where[name]);
    });
    return found.toString();
  }

  function articles() {
    return Array.from(document.querySelectorAll("article")).filter(function (a) { return a.id in data.asked; });
  }

  function shown() {
    return articles().filter(function (a) { return !a.closest(".tab.away"); });
  }

  // Request the answers closest to the visible part of the page first.
  function next() {
    var open = shown().filter(function (a) { return !answered.has(a.id); });
    var middle = window.innerHeight / 2;
    function far(a) { var box = a.getBoundingClientRect(); return Math.max(box.top - middle, middle - box.bottom, 0); }
    return open.sort(function (a, b) { return far(a) - far(b); })[0];
  }

  function box_of(article) {
    var box = article.querySelector(".answered");
    if (box) return box;
    box = document.createElement("div");
    box.className = "answered";
    article.querySelector("h3").insertAdjacentElement("afterend", box);
    return box;
  }

  function forget(article) {
    (views.get(article.id) || []).forEach(function (result) { result.finalize(); });
    views.delete(article.id);
  }

  function say(box, words) {
    var note = box.querySelector(".asking") || document.createElement("p");
    note.className = "notes asking";
    note.textContent = words;
    box.prepend(note);
  }

  function put(article, answer) {
    var box = box_of(article);
    forget(article);
    box.innerHTML = answer.html;  // rendered by tracekit with every name escaped, and the page's policy blocks its scripts
    article.classList.add("asked");
    box.removeAttribute("aria-busy");
    views.set(article.id, []);
    return Promise.all(answer.charts.charts.map(function (chart) {
      return window.tracekit.embed(chart.id, chart.spec, answer.charts.datasets).then(function (result) {
        if (!result) failed += 1;
        else if (views.has(article.id)) views.get(article.id).push(result);
        else result.finalize();
      });
    }));
  }

  function refuse(article, words) {
    var box = box_of(article);
    forget(article);
    box.replaceChildren();
    article.classList.add("asked");
    box.removeAttribute("aria-busy");
    say(box, "No answer for this part: " + words);
  }

  function tell(words) {
    if (status.textContent !== words) status.textContent = words;
  }

  function progress() {
    var all = shown(), done = all.filter(function (a) { return answered.has(a.id); }).length;
    var part = asked_words ? " (" + asked_words + ")" : "";
    if (!all.length) return tell("Answers in the other tabs are computed for the chosen part" + part + ".");
    if (done < all.length) return tell("Querying the Trace" + part + ": " + done + " of " + all.length + " answers.");
    tell("Queried the Trace" + part + ": " + done + (done === 1 ? " answer" : " answers") + " in this tab.");
  }

  // The first sentence and numbers of the part, computed from the Trace, or null until they arrive.
  var first = window.tracekit.first, told = null;

  function show_first(answer) {
    told = answer;
    first.tell_state(answer.state);
    first.cards.forEach(function (one) { first.tell_number(one, answer.numbers[one.name] || answer.lacking); });
    wait_for_first(false);
  }

  function wait_for_first(waiting) {
    var place = document.querySelector(".opening");
    if (place) place.setAttribute("aria-busy", String(waiting));
    root.dataset.numbers = waiting ? "ASKING" : query ? "READY" : "WHOLE";
  }

  // Request them at once if they are visible, otherwise after the visible answers.
  function first_is_next(article) {
    var place = document.querySelector(".opening");
    return !told && first.cards.length > 0 && (!article || Boolean(place && !place.closest(".tab.away")));
  }

  function put_first(answer) {
    asked_words = answer.asked || asked_words;
    show_first(answer.error ? {
      state: "No first numbers for this part: " + answer.error, numbers: {}, lacking: { text: "unknown", path: "", note: "" }
    } : answer);
  }

  // Query the server and pass on its answer, unless another part has been chosen meanwhile.
  function fetched(address, take) {
    var mine = turn;
    running = new AbortController();
    root.dataset.part = "ASKING";
    progress();
    fetch(address + "?" + query, { signal: running.signal, credentials: "same-origin" })
      .then(function (response) { return response.json(); })
      .then(function (answer) { if (mine === turn) return take(answer); })
      .catch(function (error) {
        if (mine !== turn) return;
        take({ error: "the server does not answer (is tracekit serve still running?)" });
        console.warn(error);
      })
      .then(function () {
        if (mine !== turn) return;
        running = null;
        work();
      });
  }

  function work() {
    if (running || !query) return;
    var article = next();
    if (first_is_next(article)) return fetched("/first", put_first);
    if (!article) {
      progress();
      root.dataset.part = (failed ? "FAILED " : "READY ") + answered.size;
      return;
    }
    var box = box_of(article);
    box.setAttribute("aria-busy", "true");
    say(box, "Querying the Trace \u2026");
    fetched("/answer/" + data.asked[article.id], function (answer) {
      answered.add(article.id);
      if (answer.error) return refuse(article, answer.error);
      asked_words = answer.asked;
      return put(article, answer);
    });
  }

  function clear() {
    articles().forEach(function (article) {
      forget(article);
      article.classList.remove("asked");
      var box = article.querySelector(".answered");
      if (box) box.remove();
    });
    first.tell_whole();
    wait_for_first(false);
    tell("");
    root.dataset.part = "WHOLE";
  }

  function ask(detail) {
    var wanted = query_of(detail || {});
    if (wanted === query) {
      if (told) show_first(told);  // while a time was dragged, the page computed the numbers
      return;
    }
    query = wanted;
    turn += 1;
    if (running) running.abort();
    running = null;
    answered = new Set();
    asked_words = "";
    failed = 0;
    back.hidden = !query;
    told = null;
    first.mark_whole(Boolean(query));
    if (!query) return clear();
    wait_for_first(first.cards.length > 0);
    // Answers for another part stay visible but dimmed until they are replaced.
    document.querySelectorAll(".answered").forEach(function (box) { box.setAttribute("aria-busy", "true"); });
    work();
  }

  document.addEventListener("tracekit:part", function (event) { ask(event.detail); });
  window.addEventListener("hashchange", function () { setTimeout(work, 0); });

  back.addEventListener("click", function () {
    window.tracekit.choose_all({}, null, null);
    ask({});
  });

  // A part given in the address, such as /?where.user=alice, is chosen in the page's filters if they support it.
  var address = new URLSearchParams(location.search), where = {};
  address.forEach(function (value, name) {
    if (name.startsWith("where.")) where[name === "where.size" ? "gpu_class" : name.slice(6)] = value;
  });
  var stated = { since: address.get("since"), until: address.get("until"), where: where };
  if (query_of(stated)) {
    if (Object.keys(where).every(function (name) { return name in data.filters; })) {
      window.tracekit.choose_all(where, stated.since, stated.until);
    } else {
      ask(stated);
    }
  }
})();
