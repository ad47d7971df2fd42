from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit.characterize
from tests.guidelines.planted import DAY, Log
from tests.report.asking import asking
from tracekit.analysis import analyze, analyze_many
from tracekit.characterize import list_queries
from tracekit.errors import OutputError, QueryError, SourceError, TraceError, UsageError
from tracekit.progress import Progress
from tracekit.report.fit_answers import FITTED
from tracekit.report.replay_answers import REPLAY_QUESTIONS
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.analysis import Analysis
    from tracekit.answer import Answer
    from tracekit.characterize import Query

BRIEF: dict[str, Any] = {"fit": False, "replay_jobs": 0}
"""Settings for tests that look at neither the fit nor the replays."""


@pytest.fixture(autouse=True)
def small_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare these tests the script bundle, which others look at."""
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")


@pytest.fixture(scope="module")
def small_trace(make_trace: Callable[..., Trace]) -> Trace:
    shared = {
        "job_id": "a",
        "start_time": "2020-01-01 00:01",
        "end_time": "2020-01-01 01:01",
        "gpu_count": 2,
        "run_s": 3600,
    }
    job = {**shared, "vc": "=v", "user": "u", "status": "completed", "submit_time": "2020-01-01 00:00", "queue_s": 60}
    attempt = {**shared, "attempt": 0, "wait_s": 60, "node_count": 1, "status": "completed"}
    return make_trace(jobs=[job], attempts=[attempt])


@pytest.fixture(scope="module")
def full(small_trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Return the whole report of a small Trace that is gone by now; no test may change the report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")
        folder = tmp_path_factory.mktemp("full")
        source = shutil.copytree(small_trace.path, folder / "trace")
        done = analyze(source, folder / "out")
        shutil.rmtree(source)
        return done


@pytest.fixture
def few_queries() -> Iterator[None]:
    """Spare tests of files and folders most of the queries and all guidelines, which others look at."""
    with asking("overview/status", "overview/job_size", guidelines=()):
        yield


@pytest.fixture(scope="module")
def with_nodes(make_trace: Callable[..., Trace]) -> Trace:
    place = {"job_id": "a", "attempt": 0, "node_id": "n", "gpu_index": [0, 1, 2], "gpu_count": 3}
    return make_trace(jobs=[{"job_id": "a"}], attempts=[{"job_id": "a", "attempt": 0}], placements=[place])


class Heard(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def _left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_trace_gives_a_page_its_data_the_tables_and_a_trace_of_its_own(full: Analysis) -> None:
    done = full
    assert _left(done.folder.parent) == ["out"]
    pages = ["guidelines.md", "report.html", "report.json", "report.md"]
    assert _left(done.folder) == [*pages, "tables", "trace", "workload.json"]
    assert done.report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert Trace.open(done.trace).validate() == []  # although the analyzed Trace is gone
    every = {q.name for q in (*list_queries(), *FITTED, *REPLAY_QUESTIONS)}
    # The sums by which the page is narrowed have no file of their own.
    assert set(done.results) | set(done.unanswered) == every - {"overview/parts"}
    wait = pl.read_parquet(done.results["queuing/queue_delay"])
    assert wait.select("vc", "gpu_class", "waits", "p50_s").rows() == [("=v", "2-4", 1, 60.0)]
    csv = (done.folder / "tables/queuing/queue_delay.csv").read_text(encoding="utf-8")
    assert csv.splitlines()[1].startswith("'=v,2-4,1,")


@pytest.mark.usefixtures("few_queries")
def test_tables_that_cannot_be_linked_are_copied(
    small_trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("os.link", refuse)
    assert Trace.open(analyze(small_trace.path, tmp_path / "out", **BRIEF).trace).validate() == []


@pytest.mark.usefixtures("few_queries")
def test_raw_logs_are_read_first_and_what_their_analysis_needs_is_said_before_it(
    sample_source: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out, heard = sample_source("helios"), tmp_path / "out dir", Heard()
    monkeypatch.setattr("tracekit.estimate.LONG_S", 0.01)
    done = analyze(source, out, format_name="helios", capacity="listed", memory_limit="1GB", progress=heard, **BRIEF)
    (need,) = (note for note in heard.notes if note.startswith("the analysis reads 3,002 rows"))
    assert need.endswith(" MiB of memory")
    report = json.loads(done.data.read_text(encoding="utf-8"))
    assert report["source"]["format"] == "helios"
    given = "--format helios --memory-limit 1GB --no-fit --replay-jobs 0"
    assert report["command"] == f"tracekit analyze {source} -o '{tmp_path}/out dir' {given}"
    assert report["quality"]["records"] == report["quality"]["kept"] + report["quality"]["rejected"]
    assert done.results


@pytest.mark.usefixtures("few_queries")
def test_an_output_that_exists_is_refused_before_any_work_or_made_again_from_its_own_trace(
    small_trace: Trace, full: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    shutil.copytree(full.folder, out)
    before = (out / "report.json").read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tracekit.analysis.source.copy_trace", lambda *_: pytest.fail("work was done"))
        with pytest.raises(OutputError, match="exists already"):
            analyze(small_trace.path, out)
    assert (out / "report.json").read_bytes() == before
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    again = analyze(out / full.trace.relative_to(full.folder), out, force=True, **BRIEF)
    assert Trace.open(again.trace).validate() == []
    assert json.loads(again.data.read_text())["created"] == "1970-01-01T00:00:00Z"
    assert _left(tmp_path) == ["out"]


def test_a_folder_that_is_not_a_report_is_never_replaced(small_trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("precious")
    with pytest.raises(OutputError, match="is not a report"):
        analyze(small_trace.path, tmp_path / "out", force=True)
    assert (tmp_path / "out" / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize("inside", ["out", "out/logs", "out/trace/deeper"])
def test_a_source_inside_the_output_is_refused(tmp_path: Path, inside: str) -> None:
    source = tmp_path / inside
    source.mkdir(parents=True)
    with pytest.raises(UsageError, match="is in the output folder"):
        analyze(source, tmp_path / "out", force=True)


@pytest.mark.usefixtures("few_queries")
def test_a_failure_leaves_nothing(small_trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("tracekit.report.files.render_report", stop)
    with pytest.raises(KeyboardInterrupt):
        analyze(small_trace.path, tmp_path / "out", **BRIEF)
    assert _left(tmp_path) == []
    with pytest.raises(SourceError):
        analyze(tmp_path / "missing", tmp_path / "out")
    assert _left(tmp_path) == []


@pytest.mark.usefixtures("few_queries")
def test_one_failing_query_is_named_and_the_others_are_answered(
    small_trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    answer = tracekit.characterize.answer_query

    def fail_one(trace: Trace, query: Query, *params: Any, **more: Any) -> Answer:
        if query.name == "overview/status":
            raise QueryError("ran out of memory", hint="raise --memory-limit")
        return answer(trace, query, *params, **more)

    monkeypatch.setattr("tracekit.guidelines.evidence.answer_query", fail_one)
    heard = Heard()
    done = analyze(small_trace.path, tmp_path / "out", progress=heard, **BRIEF)
    golden([*done.unanswered["overview/status"], *(note for note in heard.notes if "overview/status" in note)])
    assert "overview/job_size" in done.results


@pytest.mark.usefixtures("few_queries")
def test_a_capacity_that_the_trace_lacks_is_replaced_by_the_other_and_said(
    with_nodes: Trace, tmp_path: Path, golden: Golden
) -> None:
    heard = Heard()
    done = analyze(with_nodes.path, tmp_path / "out", progress=heard, **BRIEF)
    capacity = json.loads(done.data.read_text())["capacity"]
    assert (capacity["requested"], capacity["used"], capacity["gpus"]) == ("listed", "observed", 3.0)
    (note,) = heard.notes
    golden(note)
    assert note.partition(", since ")[2] in done.report.read_text(encoding="utf-8")


def test_where_no_machine_is_known_the_most_gpus_in_use_are_observed(full: Analysis, golden: Golden) -> None:
    found = json.loads(full.data.read_text())
    capacity = found["capacity"]
    assert (capacity["used"], capacity["gpus"], capacity["alternatives"]) == ("observed", 2.0, {})
    golden(capacity["note"])
    assert "2 GPUs (observed)" in found["opening"]["about"]
    assert "at least 2 GPUs" in found["opening"]["about"]
    assert [t["gpus"] for t in found["gpu_totals"] if t["used_for"] != "replays"] == [2.0]


@pytest.mark.usefixtures("few_queries")
def test_a_capacity_file_is_used_or_refused(with_nodes: Trace, tmp_path: Path) -> None:
    (tmp_path / "gpus.csv").write_text("node_id,gpu_count\nn,8\n")
    done = analyze(with_nodes.path, tmp_path / "out", capacity=str(tmp_path / "gpus.csv"), **BRIEF)
    capacity = json.loads(done.data.read_text())["capacity"]
    assert (capacity["gpus"], capacity["alternatives"]) == (8.0, {"observed": 3.0})
    with pytest.raises(UsageError, match="the capacity file does not exist"):
        analyze(with_nodes.path, tmp_path / "other", capacity=str(tmp_path / "nothing.csv"))
    assert not (tmp_path / "other").exists()


def test_shares_of_the_cluster_are_of_the_capacity_that_is_used(
    small_trace: Trace, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "gpus.csv").write_text("node_id,gpu_count\nn,8\n")
    with asking("queuing/cluster_timeline", "queuing/gpu_time_held", "utilization/cluster_by_hour", guidelines=()):
        done = analyze(small_trace.path, tmp_path / "out", capacity=str(tmp_path / "gpus.csv"), **BRIEF)
    found = json.loads(done.data.read_text())
    answers = {a["name"]: a for section in found["sections"] for a in section["answers"]}
    assert {r["capacity_gpus"] for r in answers["queuing/cluster_timeline"]["rows"]} == {8.0}
    # 2 GPUs in 59 of the minutes of the first hour, and in 1 of the 30 that the second has.
    hours = [r["allocated_share"] for r in answers["utilization/cluster_by_hour"]["rows"]]
    assert hours == pytest.approx([2 / 8 * 59 / 60, 2 / 8 / 30], abs=1e-6)
    first = found["gpu_totals"][0]
    assert (first["gpus"], first["source"]) == (8.0, "the file gpus.csv, 1 nodes")
    (held,) = [h for h in found["headline"] if h["label"] == "GPUs allocated"]
    golden(held["note"])


def test_shares_are_those_of_the_time_of_submissions(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    """A week in which eight nodes are held for five hours of six, and one job that runs for twenty days more."""
    log = Log()
    log.nodes("abcdefgh", 8)
    for node in "abcdefgh":
        for turn in range(28):
            log.job(turn * DAY / 4, 5 * DAY / 24, gpus=8, node=node)
    log.job(7 * DAY, 20 * DAY, gpus=8, node="a")
    asked = ("utilization/vc", "utilization/cluster_by_hour", "queuing/timeline", "queuing/gpu_time_held")
    with asking(*asked, guidelines=("power-down",)):
        found = json.loads(analyze(make_trace(**log.tables).path, tmp_path / "out", **BRIEF).data.read_text())
    (held,) = [h["value"] for h in found["headline"] if h["label"] == "GPUs allocated"]
    assert held == pytest.approx(5 / 6, abs=0.005)
    answers = {a["name"]: a for section in found["sections"] for a in section["answers"]}
    (of_vc,) = [r["allocated_share_mean"] for r in answers["utilization/vc"]["rows"]]
    assert of_vc == pytest.approx(5 / 6)
    hours = [r["allocated_share"] for r in answers["utilization/cluster_by_hour"]["rows"]]
    # Four hours of a day, one in six, are those in which nobody holds anything.
    assert sorted(hours) == pytest.approx([0.0] * 4 + [1.0] * 20)
    assert answers["queuing/timeline"]["finding"].startswith("v used the most GPUs, 53.3 on average")
    assert "83.3 % of the cluster's GPU time" in answers["queuing/gpu_time_held"]["finding"]
    (idle,) = [g["finding"] for g in found["guidelines"]["guidelines"] if g["id"] == "power-down"]
    numbers = {n["key"]: n["value"] for n in idle["numbers"]}
    assert numbers["idle_share"] == pytest.approx(1 / 6, abs=0.005)


@pytest.mark.parametrize("given", [{"format_name": "philly"}, {"options": {"a": "b"}}])
def test_a_trace_takes_no_options_of_a_source_format(
    small_trace: Trace, tmp_path: Path, given: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="the source is a Trace"):
        analyze(small_trace.path, tmp_path / "out", **given)  # type: ignore[arg-type]


@pytest.mark.usefixtures("few_queries")
def test_sources_have_a_report_each_if_given_twice_too_and_a_page_that_lists_them(
    small_trace: Trace, tmp_path: Path
) -> None:
    sources = []
    for site in ("north", "south"):
        source = tmp_path / site / "logs"
        shutil.copytree(small_trace.path, source)
        sources.append(source)
    other = tmp_path / "other site"
    shutil.copytree(small_trace.path, other)
    index = analyze_many([*sources, other, sources[0]], tmp_path / "out", **BRIEF)
    assert index == tmp_path / "out" / "index.html"
    names = ["north-logs", "south-logs", "other-site", "north-logs-2"]
    assert _left(tmp_path / "out") == ["index.html", "index.json", *sorted(names)]
    entries = json.loads((tmp_path / "out" / "index.json").read_text())["reports"]
    assert [(e["name"], e["report"], e["error"]) for e in entries] == [
        (name, f"{name}/report.html", None) for name in names
    ]
    command = json.loads((tmp_path / "out" / "north-logs" / "report.json").read_text())["command"]
    assert command == f"tracekit analyze {sources[0]} -o {tmp_path}/out/north-logs --no-fit --replay-jobs 0"


@pytest.mark.usefixtures("few_queries")
def test_a_source_that_fails_is_listed_and_raised_after_the_others(small_trace: Trace, tmp_path: Path) -> None:
    heard = Heard()
    failure = r"1 of 2 sources failed, starting with .*missing: .*the others are in"
    with pytest.raises(SourceError, match=failure) as caught:
        analyze_many([tmp_path / "missing", small_trace.path], tmp_path / "out", progress=heard, **BRIEF)
    assert "\n" not in str(caught.value)
    bad, good = json.loads((tmp_path / "out" / "index.json").read_text())["reports"]
    assert bad["report"] is None
    assert bad["error"]
    assert (tmp_path / "out" / good["report"]).is_file()
    assert any(n.startswith("source ") and "failed" in n for n in heard.notes)


def test_when_every_source_fails_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"2 of 2 sources failed, .*nothing was written"):
        analyze_many([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert _left(tmp_path) == []


def test_no_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no source"):
        analyze_many([], tmp_path / "out")


@pytest.mark.thorough
@pytest.mark.usefixtures("few_queries")
def test_several_reports_are_replaced_only_on_request(small_trace: Trace, tmp_path: Path) -> None:
    analyze_many([small_trace.path], tmp_path / "out", **BRIEF)
    with pytest.raises(OutputError, match="exists already"):
        analyze_many([small_trace.path], tmp_path / "out")
    analyze_many([small_trace.path], tmp_path / "out", force=True, **BRIEF)
    assert _left(tmp_path) == ["out"]


def test_a_damaged_trace_is_a_clear_error(small_trace: Trace, tmp_path: Path) -> None:
    source = tmp_path / "trace"
    shutil.copytree(small_trace.path, source)
    (source / "jobs.parquet").unlink()
    with pytest.raises(TraceError, match="the table jobs is missing"):
        analyze(source, tmp_path / "out")
    assert _left(tmp_path) == ["trace"]


def test_the_limit_of_inflation_reaches_the_reader_of_files(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for run in (analyze, lambda source, out, **given: analyze_many([source], out, **given)):
        with pytest.raises(
            (UsageError, SourceError), match=r"--max-inflation: 0\.5 is too small; give a number of at least 1"
        ):
            run(tmp_path / "log", tmp_path / "out", max_inflation=0.5)


@pytest.mark.usefixtures("few_queries")
def test_a_fault_of_the_program_is_not_called_a_damaged_trace(
    sample_source: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Trace of an unfinished analysis is gone when the failure is looked into; that is no damage."""

    def fails(*_: object, **__: object) -> None:
        raise NameError("a fault")

    monkeypatch.setattr("tracekit.report.files.write_report", fails)
    with pytest.raises(NameError, match="a fault"):
        analyze(sample_source("swf"), tmp_path / "out", fit=False, replay_jobs=0)
    assert _left(tmp_path) == []
