from __future__ import annotations

import base64
import copy
import hashlib
import html
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.report.page import ROWS, json_for_html, render_index, render_report
from tracekit.report.table_view import table_view
from tracekit.text import visible

if TYPE_CHECKING:
    from tracekit.analysis import Analysis
    from tracekit.report.charts import Chart
    from tracekit.report.structure import IndexEntry, Report


class _Reader(HTMLParser):
    """Collects elements, the text of scripts and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.shown = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.shown += data


@pytest.fixture(scope="module")
def reader(page: str) -> _Reader:
    return _Reader(page)


def test_whatever_is_expected_of_advice_it_has_a_sentence(report: Report) -> None:
    own = copy.deepcopy(report)
    assert own["guidelines"] is not None
    entry = next(e for e in own["guidelines"]["guidelines"] if e["verdict"] == "holds")
    ways: list[dict[str, Any]] = [
        {"effect": {"text": "Yes: waits get shorter.", "changes": [], "best_by_gpu_class": []}},
        {"losses": {"text": "Yes: outages cost less.", "changes": []}},
        {"no_effect": "Cannot tell: no twin was given."},
        {},
    ]
    nothing = {"effect": None, "losses": None, "no_effect": None}
    own["guidelines"]["guidelines"] = [{**entry, **nothing, **way, "id": f"way-{n}"} for n, way in enumerate(ways)]
    shown = " ".join(_Reader(render_report(own)).shown.split())
    for sentence in (
        "Yes: waits get shorter.",
        "Yes: outages cost less.",
        "Cannot tell: no twin was given.",
        "Not tried.",
    ):
        assert f"Does it help? {sentence}" in shown


def test_the_page_is_drawn_from_report_json_alone(report: Report, page: str) -> None:
    assert render_report(report) == page


def test_every_headline_number_of_the_page_is_in_report_json(report: Report, page: str) -> None:
    shown = [html.unescape(v) for v in re.findall(r'<dd class="value">(.*?)</dd>', page)]
    assert shown == [h["text"] for h in report["headline"]]
    assert len(shown) == 5


def test_every_finding_is_in_the_page_and_beside_its_chart(
    report: Report, reader: _Reader, drawn_charts: dict[str, list[Chart]]
) -> None:
    told = [a["finding"] for s in report["sections"] for a in s["answers"] if a["finding"]]
    assert len(told) >= 9
    shown = (
        reader.shown.replace("\N{NO-BREAK SPACE}", " ")
        .replace("\N{WORD JOINER}", "")
        .replace("\N{RIGHTWARDS ARROW}", "->")
    )
    labels = " ".join(a.get("aria-label") or "" for _, a in reader.elements)
    assert [t for t in told if t not in shown] == []
    drawn = [a for s in report["sections"] for a in s["answers"] if a["finding"] and drawn_charts[a["name"]]]
    assert len(drawn) >= 9
    assert [a["finding"] for a in drawn if (a["finding"] or "") not in labels] == []


def test_no_name_from_the_log_becomes_markup(reader: _Reader, page: str) -> None:
    tags = [tag for tag, _ in reader.elements]
    assert "img" not in tags
    assert tags.count("script") == 5
    assert not [a for _, attrs in reader.elements for a in attrs if a.startswith("on")]
    assert "\u202e" not in page
    assert "\u2028" not in page
    assert "{{ 7*7 }}" in html.unescape(page)


def test_a_long_name_is_shortened_and_its_beginning_is_in_the_title(page: str) -> None:
    assert "L" * 400 not in page
    assert f'title="{"L" * 300}… (99,700 more characters)"' in page
    assert f"<bdi>{'L' * 47}…</bdi>" in page


def test_a_direction_mark_is_shown_spelled_out(reader: _Reader) -> None:
    assert visible("\u202ereversed\u2066") in reader.shown


def test_the_data_of_the_charts_cannot_end_its_element(reader: _Reader) -> None:
    payload = reader.scripts[0]
    assert not set("<>&\u2028") & set(payload)
    assert set(json.loads(payload)) == {"config", "datasets", "charts", "filters", "parts"}


def test_only_the_two_scripts_of_the_page_may_run_and_nothing_may_be_fetched(reader: _Reader) -> None:
    (policy,) = [a["content"] for t, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in reader.scripts[1:]]
    assert policy.startswith(f"default-src 'none'; script-src {' '.join(repr(f'sha256-{h}') for h in hashes)};")


def test_the_page_loads_nothing_from_elsewhere(reader: _Reader) -> None:
    assert [a for _, a in reader.elements if "src" in a or "srcset" in a] == []
    assert [tag for tag, _ in reader.elements if tag in {"link", "iframe", "object", "embed"}] == []
    links = [a["href"] or "" for t, a in reader.elements if t == "a"]
    beside = ("#", "tables/", "report.json", "report.md", "guidelines.md", "workload.json")
    assert [h for h in links if not h.startswith(beside)] == []


def test_every_link_has_a_target(reader: _Reader, analysis: Analysis) -> None:
    ids = {a["id"] for _, a in reader.elements if "id" in a}
    links = {a["href"] or "" for t, a in reader.elements if t == "a"}
    assert {h[1:] for h in links if h.startswith("#")} <= ids
    assert [h for h in links if not h.startswith("#") and not (analysis.folder / h).is_file()] == []


def test_headings_go_down_one_level_at_a_time(reader: _Reader) -> None:
    levels = [int(t[1]) for t, _ in reader.elements if re.fullmatch(r"h[1-6]", t)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_tables_have_captions_and_charts_have_words(reader: _Reader) -> None:
    tags = [t for t, _ in reader.elements]
    # The page's script gives one table its rows, and its caption.
    filled = [a for t, a in reader.elements if t == "table" and a.get("id") == "closer-table"]
    assert tags.count("table") - len(filled) == tags.count("caption") > 9
    plots = [a for _, a in reader.elements if a.get("class") == "plot"]
    assert plots
    assert all(a["role"] == "img" and (a["aria-label"] or "").startswith("Chart. ") for a in plots)
    assert {"header", "nav", "main", "footer"} <= set(tags)


def test_the_page_weighs_little_more_than_its_script_bundle(page: str) -> None:
    assert len(page.encode()) < 2_480_000


def test_a_page_that_would_be_too_heavy_shows_fewer_rows(
    report: Report, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(page.encode())
    monkeypatch.setattr("tracekit.report.page.HEAVIEST", whole - 50_000)
    lighter = render_report(report)
    assert len(lighter.encode()) <= whole - 50_000
    assert lighter.count("<article") == page.count("<article")


def test_a_query_without_a_chart_shows_question_and_open_table(report: Report) -> None:
    own = copy.deepcopy(report)
    answer: Any = {
        **own["sections"][0]["answers"][0],
        "name": "mine/own",
        "question": "What about x?",
        "finding": None,
        "columns": [{"name": "x_s", "unit": "s", "meaning": "a duration"}],
        "rows": [{"x_s": i} for i in range(ROWS[0][0] + 10)],
        "row_count": 12_345,
        "files": ["tables/mine/own.parquet", "tables/mine/own.csv"],
        "published": [],
        "notes": ["the quota is a guess"],
        "intervals": [],
    }
    own["sections"] = [{"name": "mine", "title": "Mine", "lead": "", "answers": [answer]}]
    text = render_report(own)
    article = text[
        text.index('<article id="q-mine-own"') : text.index("</article>", text.index('<article id="q-mine-own"'))
    ]
    assert "What about x?" in article
    # A long table is folded, a short one is seen at once.
    assert article.index('<details class="more" data-print>') < article.index("<table")
    answer["rows"], answer["row_count"] = answer["rows"][:3], 3
    short = render_report(own)
    short = short[short.index('<article id="q-mine-own"') :]
    assert short.index("<table") < short.index('<details class="more">')
    assert article.count("<tr>") == 1 + ROWS[0][0]
    # On the screen and on paper, which shows fewer.
    assert re.findall(r"([\d,]+) more rows in ", article) == ["12,295", "12,335"]
    assert '<a href="tables/mine/own.csv">' in article


def _table(columns: list[tuple[str, str]], rows: int, *, drawn: bool) -> dict[str, Any]:
    answer: Any = {
        "columns": [{"name": name, "unit": unit, "meaning": ""} for name, unit in columns],
        "rows": [{name: "a" if unit == "text" else i for name, unit in columns} for i in range(rows)],
        "row_count": rows,
        "intervals": [],
    }
    return table_view(answer, 50, drawn=drawn)


@pytest.mark.parametrize(
    ("columns", "rows", "drawn", "printed"),
    [
        ([("user", "text"), ("jobs", "jobs")], 12, True, 12),
        ([("user", "text"), ("jobs", "jobs")], 20, True, 20),
        ([("user", "text"), ("jobs", "jobs")], 21, True, 10),
        ([("user", "text"), ("jobs", "jobs")], 20, False, 20),
        ([("user", "text"), ("jobs", "jobs")], 500, False, 10),
        ([("hour", "hour"), ("jobs", "jobs")], 24, True, 0),
        ([("vc", "text"), ("hour", "hour"), ("jobs", "jobs")], 24, True, 0),
        ([("hour", "hour"), ("jobs", "jobs")], 24, False, 5),
        ([("hour", "hour"), ("jobs", "jobs")], 10, True, 10),
    ],
)
def test_paper_shows_the_first_rows_and_no_curve_twice(
    columns: list[tuple[str, str]], rows: int, drawn: bool, printed: int
) -> None:
    view = _table(columns, rows, drawn=drawn)
    assert (view["printed"], view["unprinted"]) == (printed, rows - printed)


def test_paper_shows_no_table_of_nothing_but_zeros() -> None:
    rows: list[dict[str, Any]] = [{"cause": cause, "events": 0} for cause in "ab"]
    columns = [{"name": name, "unit": "", "meaning": ""} for name in ("cause", "events")]
    answer: Any = {"columns": columns, "rows": rows, "row_count": 2, "intervals": []}
    assert table_view(answer, 50)["printed"] == 0
    rows[0]["events"] = 1
    assert table_view(answer, 50)["printed"] == 2


def test_a_narrow_table_fits_beside_its_chart_on_paper() -> None:
    assert _table([("user", "text"), ("jobs", "jobs")], 5, drawn=True)["slim"]
    assert not _table([(f"column {i}", "text") for i in range(9)], 5, drawn=True)["slim"]


def test_the_assumptions_of_the_replays_are_folded(report: Report, page: str) -> None:
    answers = [a for s in report["sections"] for a in s["answers"]]
    assert "replay/assumptions" in {a["name"] for a in answers}
    article = page[page.index('<article id="q-replay-assumptions"') :]
    article = article[: article.index("</article>")]
    assert article.index('<details class="more" data-print>') < article.index("<table")


def test_each_question_stands_in_one_part_and_terms_are_explained_once(
    report: Report, page: str, reader: _Reader
) -> None:
    parts = re.split(r'<div class="tab(?: keyed)?" id="part-([\w-]+)"', page)[1:]
    inside = {
        name: re.findall(r'<article id="(q-[^"]+)"', text) for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    assert sorted(q for questions in inside.values() for q in questions) == sorted(
        "q-" + re.sub(r"\W|_", "-", a["name"]) for s in report["sections"] for a in s["answers"]
    )
    assert next(iter(inside)) == "overview"
    assert list(inside)[-1] == "quality-and-method"
    assert "q-queuing-queue-delay" in inside["queueing"]
    assert page.count("<dt>goodput</dt>") == 1
    assert [a["href"] for t, a in reader.elements if t == "a" and a.get("data-tab")] == [
        f"#part-{name}" for name in inside
    ]


def test_json_for_html_gives_the_value_back() -> None:
    value = {"</script>": ["<!--", "&amp;", "\u2028", "é", 1.5, None]}
    assert json.loads(json_for_html(value)) == value


def test_an_index_lists_reports_and_failures() -> None:
    entries: list[IndexEntry] = [
        {
            "name": "a b",
            "source": "logs/a b",
            "report": "a b/report.html",
            "format": "philly",
            "period": "10 days",
            "headline": [
                {
                    "name": "",
                    "label": "jobs",
                    "value": 5,
                    "unit": "jobs",
                    "text": "5",
                    "note": "submitted",
                    "change": None,
                    "series": [],
                }
            ],
            "faults": 2,
            "error": None,
        },
        {
            "name": "bad",
            "source": "<b>",
            "report": None,
            "format": None,
            "period": None,
            "headline": [],
            "faults": 0,
            "error": "no format fits <script>",
        },
    ]
    reader = _Reader(render_index(entries))
    assert [a["href"] for t, a in reader.elements if t == "a"] == ["a%20b/report.html"]
    assert "script" not in [t for t, _ in reader.elements]
    for words in ("2 sources", "5", "submitted", "10 days", "2 parts of this report", "no format fits <script>"):
        assert words in reader.shown
