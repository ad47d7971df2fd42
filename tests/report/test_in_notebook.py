"""A report as a Python object: what `tracekit.analyze` writes, its charts in Altair, its page in a notebook."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import polars as pl
import pytest

import tracekit
from tests.report.asking import asking
from tests.report.conftest import END_OF_SCRIPT
from tracekit.errors import OutputError, QueryError, TraceError, UsageError
from tracekit.report.axes import Axis, names
from tracekit.report.charts import Chart, Hues, bar
from tracekit.report.in_notebook import charts_of, frame_of, in_altair
from tracekit.report.page import chart_id
from tracekit.settings import AnalysisSettings
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Route

    from tracekit.analysis import Analysis
    from tracekit.analysis.reporting import TraceReport
    from tracekit.report.structure import Report


@pytest.fixture(scope="module")
def found(hostile_trace: Trace) -> TraceReport:
    """Return the report without a fit and without replays, as it is by default."""
    return tracekit.report(hostile_trace)


@pytest.fixture(scope="module")
def charts(report: Report) -> dict[str, list[Any]]:
    """Return the charts of the whole report."""
    return dict(charts_of(report))


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def _differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    """Yield where two documents differ by more than the order in which numbers are added up."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _differences(one[key], other[key], f"{place}/{key}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{place}/{number}")
    elif isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9):
        return
    elif one != other:
        yield f"{place}: {one!r:.80} is not {other!r:.80}"


def test_it_saves_what_it_holds(found: TraceReport, analysis: Analysis, report: Report, tmp_path: Path) -> None:
    done = found.save(tmp_path / "out")
    written = json.loads(done.data.read_text(encoding="utf-8"))
    assert f" -o {tmp_path / 'out'} " in written["command"]
    assert list(_differences({**written, "command": found.data["command"]}, json.loads(json.dumps(found.data)))) == []
    assert _files(done.folder) < _files(analysis.folder)
    assert done.unanswered == found.unanswered
    for name, path in done.results.items():
        assert pl.read_parquet(path).equals(found.answer(name), null_equal=True)
    assert Trace.open(done.trace).validate() == []
    # What needs neither a fit nor a replay is that of the whole analysis.
    whole, own = ({a["name"]: a for s in r["sections"] for a in s["answers"]} for r in (report, found.data))
    assert [place for name in own for place in _differences(own[name], whole[name], name)] == []
    with pytest.raises(OutputError, match="exists already"):
        found.save(tmp_path / "out")
    with pytest.raises(UsageError, match="is in the output folder"):
        found.save(Path(found.data["source"]["path"]).parent, force=True)


@pytest.mark.thorough
def test_it_holds_and_saves_what_the_analysis_writes(
    hostile_trace: Trace, analysis: Analysis, report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a fit, in a process of its own, and replays; and until it is saved nothing is written."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("tracekit.analysis.answering.LARGE", 1)
    before = _files(hostile_trace.path)
    found = tracekit.report(hostile_trace, AnalysisSettings())
    assert _files(hostile_trace.path) == before
    assert [p.name for p in (tmp_path / "temporary").iterdir() if not p.name.startswith("tracekit-spill")] == []

    own = {"created": report["created"], "command": report["command"]}
    assert list(_differences({**found.data, **own}, report)) == []
    assert found.data["command"].endswith(" -o report")
    assert report["workload"] is not None
    assert report["workload"]["file"] == "workload.json"
    assert report["replay"] is not None
    assert report["replay"]["reason"] is None
    assert found.workload is not None
    assert found.workload.document["source"]["jobs"] == 140

    done = found.save(tmp_path / "out")
    assert _files(done.folder) == _files(analysis.folder)
    assert done.results.keys() == analysis.results.keys()
    assert done.unanswered == analysis.unanswered
    written = json.loads(done.data.read_text(encoding="utf-8"))
    assert written["command"].endswith(f" -o {tmp_path / 'out'}")
    assert list(_differences({**written, "command": found.data["command"]}, json.loads(json.dumps(found.data)))) == []
    for name in ("workload.json", "guidelines.md"):
        assert (done.folder / name).read_bytes() == (analysis.folder / name).read_bytes()
    for name, path in done.results.items():
        assert pl.read_parquet(path).equals(found.answer(name), null_equal=True)
    assert Trace.open(done.trace).validate() == []


def test_findings_are_a_frame_in_the_order_of_the_page(found: TraceReport) -> None:
    frame = found.findings
    assert frame.schema == {
        "section": pl.String,
        "name": pl.String,
        "question": pl.String,
        "finding": pl.String,
        "rows": pl.Int64,
    }
    assert frame["name"].to_list() == [a["name"] for s in found.data["sections"] for a in s["answers"]]
    (status,) = frame.filter(pl.col("name") == "overview/status").rows(named=True)
    (title,) = (s["title"] for s in found.data["sections"] if any(a["name"] == "overview/status" for a in s["answers"]))
    assert status["section"] == title
    assert status["rows"] == found.answer("overview/status").height == 3
    assert found.answer("overview/status").select("status", "jobs").sort("status").rows() == [
        ("cancelled", 35),
        ("completed", 70),
        ("failed", 35),
    ]
    assert set(found.unanswered).isdisjoint(frame["name"])
    assert found.workload is None
    assert "--no-fit" in found.unanswered["fit/run_time"][0]


def test_a_question_without_an_answer_tells_why(found: TraceReport) -> None:
    name, reasons = next(iter(found.unanswered.items()))
    with pytest.raises(QueryError, match=re.escape(f"{name}: no answer: {reasons[0].rstrip('.')}")):
        found.answer(name)
    with pytest.raises(QueryError, match="no question 'overview/statu'; did you mean 'overview/status'"):
        found.answer("overview/statu")


def test_it_prints_its_first_screen(found: TraceReport) -> None:
    lines = repr(found).splitlines()
    assert lines[0] == found.data["opening"]["about"]
    assert len(lines) < 15
    for number in found.data["headline"]:
        assert any(number["label"] in line and line.endswith(number["text"]) for line in lines)
    assert "<img" not in found._repr_html_()


@pytest.mark.thorough
def test_its_charts_are_those_of_the_page_and_valid(
    found: TraceReport, charts: dict[str, list[Any]], page: str
) -> None:
    assert len(charts) > 20
    assert {name: len(some) for name, some in found.charts.items()} == {
        name: len(some) for name, some in charts.items() if not name.startswith(("fit/", "replay/"))
    }
    drawn = re.search(r'<script type="application/json" id="chart-data">(.*?)</script>', page, re.DOTALL)
    assert drawn is not None
    ids = {chart["id"] for chart in json.loads(drawn[1])["charts"]}
    assert {chart_id(name, i) for name, some in charts.items() for i in range(len(some))} <= ids
    for some in charts.values():
        for number, chart in enumerate(some):
            text = json.dumps(chart.to_dict(validate=number == 0))
            assert "var(--" not in text
            assert "</" not in text


def test_no_name_gets_out_of_a_chart(charts: dict[str, list[Any]]) -> None:
    """Altair's usual renderer writes a chart into a script as it is."""
    hostile = [one for some in charts.values() for one in some if "onerror" in json.dumps(one.to_dict(validate=False))]
    assert len(hostile) > 3
    harmless = alt.Chart(alt.InlineData(values=[{"a": 1}])).mark_bar().encode(x="a:Q")
    with alt.renderers.enable("html"):
        plain = _html(harmless)
        for chart in hostile[:3]:
            assert _html(chart).lower().count("</script") == plain.lower().count("</script")
            assert "<!--" not in _html(chart)


def _html(chart: Any) -> str:
    return str(chart._repr_mimebundle_()["text/html"])


def test_names_stay_what_they_are_but_for_what_ends_a_script() -> None:
    hostile = ["var(--ink)", "var(--none)", "</script>", "<1 GPU", "<!--", "a</SCRIPT x"]
    rows = [{"vc": name, "n": 1} for name in hostile]
    chart = Chart(rows, x=Axis("n"), y=names("vc", hostile, step=9), marks=[bar(5, "series-1")])
    spec = in_altair(replace(chart, title="var(--ink)", note="</b>"), "unused").to_dict()
    (rows,) = spec["datasets"].values()
    joined = "<\u2060"
    shown = ["var(--ink)", "var(--none)", f"{joined}/script>", "<1 GPU", f"{joined}!--", f"a{joined}/SCRIPT x"]
    assert [row["vc"] for row in rows] == shown
    assert spec["encoding"]["y"]["scale"]["domain"] == shown
    assert spec["mark"]["color"] == "#0072b2"
    assert spec["title"] == {"text": ["var(--ink)"], "subtitle": [f"{joined}/b>"]}
    assert spec["config"]["text"]["color"].startswith("#")


def test_a_key_that_no_column_gives_is_drawn_by_a_layer_of_its_own() -> None:
    chart = Chart([{"n": 1}], x=Axis("n"), y=Axis("n"), marks=[bar(5, "series-1")], height=9)
    by = Hues("", {"measured": "var(--series-1)", "expected": "var(--series-2)"})
    spec = in_altair(replace(chart, by=by), "What?").to_dict()
    bars, legend = spec["layer"]
    assert bars["mark"] == {"type": "bar", "height": 5, "color": "#0072b2"}
    assert legend["encoding"]["color"]["scale"]["domain"] == ["measured", "expected"]
    assert legend["mark"]["opacity"] == 0
    assert "disable" not in spec["config"]["legend"]
    assert in_altair(chart, "What?").to_dict()["config"]["legend"] == {"disable": True}


def test_charts_can_be_changed_and_joined(charts: dict[str, list[Any]]) -> None:
    found = {type(some[0]): some[0] for some in charts.values()}
    assert set(found) == {alt.Chart, alt.LayerChart}
    for chart in found.values():
        assert chart.properties(width=99).to_dict()["width"] == 99
        assert chart.encode(opacity=alt.value(0.25)).to_dict()["encoding"]["opacity"] == {"value": 0.25}
        bare = chart.copy()
        bare.config = alt.Undefined
        assert len((bare | bare).to_dict()["hconcat"]) == 2
        assert bare.interactive().to_dict()["params"]


class _Frames(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_is_one_frame_without_the_origin_of_the_notebook(page: str) -> None:
    html = frame_of(page, 640)
    ((tag, attributes),) = _Frames(html).found
    assert tag == "iframe"
    assert "height:640px" in str(attributes["style"])
    assert {"allow-same-origin", "allow-top-navigation"}.isdisjoint(str(attributes["sandbox"]).split())
    inner = str(attributes["srcdoc"])
    assert inner == unescape(html[html.index('srcdoc="') + 8 : html.rindex('"></iframe>')])
    assert re.findall(r'<a\b[^>]*href="(?!#)', re.sub(r"<script.*?</script>", "", inner, flags=re.DOTALL)) == []
    assert re.findall(r"<script.*?</script>", inner, re.DOTALL) == re.findall(r"<script.*?</script>", page, re.DOTALL)


def test_outside_of_a_notebook_it_says_where_the_page_goes(found: TraceReport, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"needs a notebook; .* save\('FOLDER'\)"):
        found.show()
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(UsageError, match=r"needs a notebook; .* save\('FOLDER'\)"):
        found.show()
    with pytest.raises(UsageError, match="height: must be above 0, not 0"):
        found.show(height=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pdf": True}, "pdf: tracekit.report writes no files, so it cannot write a PDF"),
        ({"anonymize": True}, "anonymize: pseudonyms are only for files"),
        ({"salt_file": Path("salt")}, "salt_file: pseudonyms are only for files"),
        ({"partition": "day"}, "--partition: a report's Trace"),
        ({"format_name": "csv"}, "--format: applies only to raw logs, but the source is a Trace"),
        ({"replay_jobs": -1}, "replay_jobs: is below 0"),
        ({"twin": Path("none.toml")}, "none.toml: cannot read the twin: No such file or directory"),
        ({"by": "nobody"}, "--by: 'nobody' is not a tenant"),
    ],
)
def test_what_cannot_be_is_refused(hostile_trace: Trace, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        tracekit.report(hostile_trace, **changes)


@pytest.mark.parametrize(
    ("first", "then"), [("", "import tracekit.report.theme"), ("from tracekit.report import theme", "")]
)
def test_the_package_is_the_function_before_and_after_its_modules_are_imported(first: str, then: str) -> None:
    ask = "try: tracekit.report('none')\nexcept tracekit.TracekitError as e: print(e)"
    code = f"import tracekit\n{first}\n{ask}\n{then}\n{ask}"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [line.partition(";")[0] for line in told.splitlines()] == ["none: no such Trace"] * 2


def test_logs_are_not_a_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is not a Trace"):
        tracekit.report(tmp_path)


@pytest.fixture
def two_questions() -> Iterator[None]:
    with asking("overview/status", "queuing/queue_delay"):
        yield


@pytest.mark.usefixtures("two_questions")
def test_a_part_is_asked_alone_with_its_tenant_in_memory_and_in_files(
    make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    """Of three jobs one is submitted on the second day, by another account."""
    jobs = [
        {
            "job_id": name,
            "vc": "v",
            "account": account,
            "status": "completed",
            "submit_time": f"{day} 00:00",
            "start_time": f"{day} 00:01",
            "end_time": f"{day} 01:01",
            "queue_s": 60.0,
            "run_s": 3600.0,
            "gpu_count": 1.0,
        }
        for name, account, day in (("a", "x", "2020-01-01"), ("b", "x", "2020-01-01"), ("c", "y", "2020-01-02"))
    ]
    attempts = [
        {k: job[k] for k in ("job_id", "start_time", "end_time", "run_s", "gpu_count", "status")}
        | {"attempt": 0, "wait_s": 60.0}
        for job in jobs
    ]
    trace = make_trace(jobs=jobs, attempts=attempts)
    second = Trace.open(trace.path).window(start=_day(2)).by("account")
    done = tracekit.report(second)
    assert done.answer("overview/status").select("status", "jobs").rows() == [("completed", 1)]
    assert done.answer("queuing/queue_delay").select("account", "waits").rows() == [("y", 1)]
    assert "--from '2020-01-02 00:00:00' --by account" in done.data["command"]
    for place, source, settings in (("given", second, {}), ("named", trace, {"start": _day(2), "by": "account"})):
        written = tracekit.analyze(source, tmp_path / place, fit=False, replay_jobs=0, **settings)
        report = json.loads(written.data.read_text(encoding="utf-8"))
        same = {"created": report["created"], "command": report["command"]}
        assert list(_differences({**done.data, **same}, report)) == []
    saved = done.save(tmp_path / "saved")
    assert Trace.open(saved.trace).scan("jobs").collect()["job_id"].to_list() == ["c"]
    with pytest.raises(UsageError, match="the Trace is already a part: only jobs submitted from 2020-01-02"):
        tracekit.report(second, start=_day(1))


def _day(number: int) -> Any:
    import datetime as dt

    return dt.datetime(2020, 1, number)


@pytest.mark.usefixtures("two_questions")
def test_logs_of_another_time_are_compared_and_forgotten(
    sample_source: Callable[[str], Path], sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    """The same log twice: nothing changed, and no Trace of the second is left."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        done = tracekit.report(sample_trace("helios"), compare=str(sample_source("helios")))
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("tracekit-spill")] == []
    verdicts = done.answer("change/measures")["verdict"].unique().to_list()
    assert verdicts
    assert set(verdicts) <= {"noise", "too few", "the same"} | {None}


# The same page, shown as a notebook shows it.

_HOST = "http://notebook.test/lab/tree/x.ipynb"


@pytest.mark.thorough
@pytest.mark.browser
def test_in_a_browser_the_frame_draws_follows_its_links_and_reaches_nothing(browser: Browser, page: str) -> None:
    host = f"<!DOCTYPE html><title>notebook</title><script>var secret = 1</script>{frame_of(page, 700)}"
    view = browser.new_page(viewport={"width": 1200, "height": 900})
    asked, complaints = [], []

    def answer(route: Route) -> None:
        if route.request.url == _HOST:
            route.fulfill(body=host, content_type="text/html; charset=utf-8")
        else:
            asked.append(route.request.url)
            route.abort()

    view.route("**/*", answer)
    view.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else None)
    view.on("pageerror", lambda e: complaints.append(str(e)))
    view.on("dialog", lambda d: complaints.append(d.message))
    view.goto(_HOST)
    (inner,) = view.frames[1:]
    # The policy of the page lets Playwright wait for selectors alone.
    state = ", ".join(f"html[data-charts^={word}]" for word in ("READY", "FAILED"))
    inner.wait_for_selector(state, state="attached", timeout=60_000)
    assert inner.evaluate("document.documentElement.dataset.charts").startswith("READY ")
    links = inner.locator("a[href^='#']")
    assert links.count() > 5
    target = links.nth(1).get_attribute("href")
    links.nth(1).evaluate("a => a.click()")
    inner.wait_for_url(f"about:srcdoc{target}", timeout=10_000)
    assert [frame.url for frame in view.frames] == [_HOST, f"about:srcdoc{target}"]
    assert inner.evaluate("document.documentElement.dataset.charts").startswith("READY ")
    assert inner.evaluate("(() => { try { return parent.secret } catch (e) { return e.name } })()") == "SecurityError"
    assert END_OF_SCRIPT in inner.locator("body").inner_text()
    assert (asked, complaints) == ([], [])
    view.close()
