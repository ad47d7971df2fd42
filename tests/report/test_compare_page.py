"""compare.html: what it shows, that names from a log stay text, and which columns fit."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.comparison import compare
from tracekit.report.compare_charts import compare_charts, trace_hues
from tracekit.report.compare_page import main_measures, render_comparison
from tracekit.report.published import difference, published_text, published_view

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.comparison import ComparisonFiles
    from tracekit.report.compare import Comparison
    from tracekit.report.structure import ColumnInfo, PublishedNumber
    from tracekit.trace import Trace

BAD_NAME = "</script><img src=x onerror=alert(2)>"


# Those whose parts of the page tests look at, and one of users.
_FEW = (
    "overview/summary",
    "overview/status",
    "queuing/run_time",
    "queuing/queue_delay",
    "queuing/timeline",
    "failures/status_by_size",
    "workload/gpu_request",
    "users/queueing",
)


@pytest.fixture(
    scope="module", params=[pytest.param(_FEW, id="few"), pytest.param((), id="all", marks=pytest.mark.thorough)]
)
def done(
    request: pytest.FixtureRequest,
    hostile_trace: Trace,
    make_trace: Callable[..., Trace],
    tmp_path_factory: pytest.TempPathFactory,
) -> ComparisonFiles:
    jobs = [
        {
            "job_id": f"j{i}",
            "vc": "a",
            "user": "u",
            "status": "completed",
            "gpu_count": i % 3,
            "run_s": 60,
            "queue_s": 5,
        }
        for i in range(9)
    ]
    attempts = [
        {"job_id": j["job_id"], "attempt": 0, "run_s": 60, "wait_s": 5, "gpu_count": j["gpu_count"]} for j in jobs
    ]
    other = make_trace(jobs=jobs, attempts=attempts)
    out = tmp_path_factory.mktemp("compare") / "out"
    return compare([(BAD_NAME, hostile_trace.path), ("plain", other.path)], out, queries=request.param)


@pytest.fixture(scope="module")
def comparison(done: ComparisonFiles) -> Comparison:
    loaded: Comparison = json.loads(done.data.read_text(encoding="utf-8"))
    return loaded


@pytest.fixture(scope="module")
def page(done: ComparisonFiles) -> str:
    return done.page.read_text(encoding="utf-8")


class _Reader(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def test_the_page_is_drawn_from_the_data_alone(comparison: Comparison, page: str) -> None:
    assert render_comparison(comparison) == page


def test_names_from_traces_and_logs_stay_text(page: str) -> None:
    tags = [tag for tag, _ in _Reader(page).elements]
    assert "img" not in tags
    assert tags.count("script") == 5
    assert "<img src=x" not in page
    assert "&lt;/script&gt;&lt;img s" in page


def test_nothing_is_fetched_and_every_id_is_there_once(page: str) -> None:
    reader = _Reader(page)
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    links = [str(a["href"]) for tag, a in reader.elements if tag == "a"]
    assert [link for link in links if not link.startswith(("#", "tables/", "compare.json"))] == []
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    assert not any("src" in a for _, a in reader.elements)


def test_both_traces_stand_in_the_header_with_what_they_are_compared_with(page: str) -> None:
    top = page[page.index("<header") : page.index("</header>")]
    assert all(number in top for number in ("(140 jobs here", "3,362,981 in the Helios release"))
    assert "9 jobs, source format csv" in top
    assert "<bdi>plain</bdi>" in top


def test_an_answer_has_a_group_of_columns_for_each_trace_and_for_its_published_numbers(page: str) -> None:
    article = page[page.index('<article id="q-overview-status"') :]
    article = article[: article.index("</article>")]
    assert article.count('scope="colgroup"') == 2
    assert article.count("plain") >= 1
    summary = page[page.index('<article id="q-overview-summary"') :]
    summary = summary[: summary.index("</article>")]
    assert summary.count('scope="colgroup"') == 3
    assert "<small>published</small>" in summary
    assert ">3,362,981<" in summary
    assert "Published and measured: " in summary


def test_moments_in_time_are_counted_and_not_shown(page: str, done: ComparisonFiles) -> None:
    if "queuing/timeline" not in done.tables:
        pytest.skip("there is no query of moments in time")
    article = page[page.index('<article id="q-queuing-timeline"') :]
    article = article[: article.index("</article>")]
    assert "too many for a page" in article
    assert "<tbody>" not in article


def _columns(*names: str) -> list[ColumnInfo]:
    units = {"jobs": "jobs", "waits": "waits"}
    return [{"name": n, "unit": units.get(n, "share" if n.endswith("_share") else "s"), "meaning": ""} for n in names]


@pytest.mark.parametrize(
    ("columns", "groups", "expected"),
    [
        (("jobs", "mean_s"), 2, ["jobs", "mean_s"]),
        (("jobs", "mean_s", "p10_s", "p50_s", "p90_s", "max_s"), 3, ["jobs", "p50_s", "p90_s"][:3]),
        (("jobs", "jobs_share", "gpu_hours", "gpu_hours_share"), 5, ["jobs_share", "gpu_hours_share"]),
        (("waits", "mean_s", "p50_s", "p90_s"), 12, ["p50_s"]),
    ],
)
def test_the_columns_that_say_most_are_shown_where_not_all_fit(
    columns: tuple[str, ...], groups: int, expected: list[str]
) -> None:
    assert [c["name"] for c in main_measures(_columns(*columns), groups)] == expected


def test_each_trace_has_one_colour_and_a_label_of_its_own() -> None:
    long = "a" * 40
    colours = trace_hues([long + "1", long + "2", "b"]).colours
    assert len(colours) == len(set(colours.values())) == 3
    assert list(colours) == ["a" * 21 + "…", "a" * 21 + "… (2)", "b"]


def test_charts_know_the_shapes_of_results(comparison: Comparison) -> None:
    names = [t["name"] for t in comparison["traces"]]
    drawn = {a["name"]: compare_charts(a, names) for s in comparison["sections"] for a in s["answers"]}
    assert [p.title for p in drawn["overview/status"]] == ["Share of jobs", "Share of GPU time"]
    for name in ("queuing/run_time", "queuing/queue_delay", "failures/status_by_size", "workload/gpu_request"):
        assert len(drawn[name]) == 1, name
        assert [words for words, _ in drawn[name][0].legend][-1] == "plain"
    assert drawn["overview/summary"] == []


def test_a_chart_holds_the_numbers_of_every_trace(comparison: Comparison) -> None:
    names = [t["name"] for t in comparison["traces"]]
    answer = next(a for s in comparison["sections"] for a in s["answers"] if a["name"] == "failures/status_by_size")
    (chart,) = compare_charts(answer, names)
    spec = chart.to_dict()
    (values,) = spec["datasets"].values()
    own = {v["gpu_class"]: v["share"] for v in values if v["trace"] == "plain"}
    assert own == {"0": 0.0, "1": 0.0, "2-4": 0.0}
    hostile = {v["gpu_class"]: v["share"] for v in values if v["trace"] != "plain"}
    assert set(hostile) == {"0", "<1", "1", "2-4", "5-8", ">8"}
    assert max(hostile.values()) > 0


_MINUS = "\N{MINUS SIGN}"
_LESS = f"{_MINUS}10 ({_MINUS}1.0 %)"


def _number(**given: Any) -> PublishedNumber:
    facts: dict[str, Any] = {"what": "x", "unit": "share", "kind": "number", "value": None, "low": None, "high": None}
    facts |= {"measured": 0.5, "difference": 0.0, "relative": None, "artefact": "Table 1", "source": "s"}
    facts |= {
        "confidence": "A",
        "accuracy": "",
        "population_note": "",
        "as_printed": "1",
        "column": "",
        "row": "",
        "params": "",
    }
    found: PublishedNumber = {**facts, **given}  # type: ignore[typeddict-item]
    return found


@pytest.mark.parametrize(
    ("given", "published", "differs"),
    [
        ({"value": 0.445, "difference": 0.055, "relative": 0.12}, "44.5 %", "+5.5 points"),
        ({"value": 0.5, "difference": -0.0001}, "50.0 %", "0.0 points"),
        ({"unit": "percent", "value": 52.0, "difference": -3.25}, "52.0 %", f"{_MINUS}3.2 points"),
        ({"unit": "s", "value": 60.0, "difference": 30.0, "relative": 0.5}, "1 min", "+30 s (+50.0 %)"),
        ({"unit": "jobs", "value": 1000.0, "difference": -10.0, "relative": -0.01}, "1,000", _LESS),
        ({"unit": "GPUs", "value": 4.0, "difference": 0.0, "relative": 0.0}, "4", "0"),
        ({"kind": "range", "low": 0.65, "high": 0.9}, "65.0 % to 90.0 %", "none"),
        ({"kind": "above", "low": 0.5, "difference": -0.1}, "more than 50.0 %", f"{_MINUS}10.0 points"),
        ({"kind": "below", "high": 0.1}, "less than 10.0 %", "none"),
        ({"kind": "about", "value": 0.4, "difference": 0.04}, "about 40.0 %", "+4.0 points"),
        ({"value": 0.4, "measured": None, "difference": None}, "40.0 %", "\N{EN DASH}"),
    ],
)  # fmt: skip
def test_a_published_number_and_its_difference_in_words(given: dict[str, Any], published: str, differs: str) -> None:
    number = _number(**given)
    assert (published_text(number), difference(number)) == (published, differs)


def test_numbers_without_a_counterpart_are_counted_and_notes_are_numbered() -> None:
    numbers = [
        _number(population_note="other jobs", confidence="D"),
        _number(measured=None, difference=None),
        _number(population_note="other jobs", artefact="Fig 1; README; text"),
        _number(population_note="a window"),
    ]
    view = published_view(numbers, ["a", "a", "b", "b"])
    assert [(r["trace"], r["note"], r["artefact"]) for r in view["rows"]] == [
        ("a", 1, "Table 1"),
        ("b", 1, "Fig 1 and 2 more"),
        ("b", 2, "Table 1"),
    ]
    assert view["notes"] == ["other jobs", "a window"]
    assert list(view["letters"]) == ["A", "D"]
    assert (view["count"], view["unmeasured"], view["more"]) == (3, 1, 0)
    assert published_view(numbers, limit=1)["more"] == 2
