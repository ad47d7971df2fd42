"""`tracekit.compare`: what is written, names, several kinds of sources, and mistakes."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit
import tracekit.characterize
from tracekit.characterize import list_queries
from tracekit.comparison import NAME_LIMIT, compare
from tracekit.errors import OutputError, QueryError, SourceError, UsageError
from tracekit.manifest import Capability
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.characterize import Query
    from tracekit.trace import Trace


@pytest.fixture(autouse=True)
def small_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare these tests the script bundle, which others look at."""
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")


def _job(name: str, gpus: int, run_s: int, status: str, **more: Any) -> dict[str, Any]:
    return {"job_id": name, "gpu_count": gpus, "run_s": run_s, "status": status, "queue_s": 10, **more}


def _attempts(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    same = ("job_id", "gpu_count", "run_s", "status")
    return [{**{k: job[k] for k in same}, "attempt": 0, "wait_s": 10} for job in jobs]


@pytest.fixture(scope="module")
def philly(make_trace: Callable[..., Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Trace of Philly's format: three 1-GPU jobs of 1 h, two completed, and one 4-GPU job of 2 h."""
    jobs = [_job(f"j{i}", 1, 3600, "failed" if i == 2 else "completed", vc="=v") for i in range(3)]
    jobs.append(_job("big", 4, 7200, "cancelled", vc="=v"))
    made = make_trace(manifest_overrides={"format": "philly"}, jobs=jobs, attempts=_attempts(jobs))
    return _placed(made, tmp_path_factory.mktemp("a") / "philly")


@pytest.fixture(scope="module")
def ours(make_trace: Callable[..., Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Trace of another format, which knows nothing of retries: one CPU job and one 16-GPU job."""
    jobs = [_job("c", 0, 60, "completed", vc="v"), _job("g", 16, 1800, "failed", vc="v")]
    lacking = {"capabilities": {"retries": Capability(available=False, note="no attempts")}}
    return _placed(
        make_trace(manifest_overrides=lacking, jobs=jobs, attempts=_attempts(jobs)),
        tmp_path_factory.mktemp("b") / "ours",
    )


def _placed(trace: Trace, place: Path) -> Path:
    shutil.copytree(trace.path, place)
    return place


class Heard(Progress):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(params=["few", pytest.param("all", marks=pytest.mark.thorough)])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the queries that are asked; a few each time."""
    queries = [q for q in list_queries() if request.param == "all" or q.name.startswith(("overview/", "failures/"))]
    monkeypatch.setattr("tracekit.characterize.list_queries", lambda: queries)
    return {query.name for query in queries}


def test_two_traces_give_a_page_its_data_and_tables(philly: Path, ours: Path, asked: set[str], tmp_path: Path) -> None:
    done = tracekit.compare([philly, ours], tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert sorted(p.name for p in done.folder.iterdir()) == ["compare.html", "compare.json", "published.csv", "tables"]
    data = json.loads(done.data.read_text(encoding="utf-8"))
    assert data["title"] == "philly, ours"
    assert [(t["name"], t["format"], t["jobs"]) for t in data["traces"]] == [
        ("philly", "philly", 4),
        ("ours", "csv", 2),
    ]
    assert data["traces"][0]["release"]["public"] is False
    assert data["traces"][1]["release"] is None
    answered = {a["name"] for s in data["sections"] for a in s["answers"]}
    assert answered | {u["name"] for u in data["unanswered"]} == asked
    assert set(done.tables) == answered
    assert data["command"] == f"tracekit compare {philly} {ours} -o {tmp_path / 'out'}"


def test_the_table_of_a_query_holds_every_trace_and_the_published_cells(
    philly: Path, ours: Path, tmp_path: Path
) -> None:
    done = compare([philly, ours], tmp_path / "out", queries=["overview/status"])
    assert list(done.tables) == ["overview/status"]
    found = pl.read_csv(done.tables["overview/status"])
    base = ["trace", "status", "jobs", "jobs_share", "gpu_hours", "gpu_hours_share"]
    assert found.columns == [*base, "gpu_jobs", "gpu_jobs_share", "cpu_jobs_share"]
    assert found.select(base).rows()[:5] == [
        ("philly", "cancelled", 1, 0.25, 8.0, 8 / 11),
        ("philly", "completed", 2, 0.5, 2.0, 2 / 11),
        ("philly", "failed", 1, 0.25, 1.0, 1 / 11),
        ("ours", "completed", 1, 0.5, 0.0, 0.0),
        ("ours", "failed", 1, 0.5, 8.0, 1.0),
    ]
    assert found.select("gpu_jobs", "gpu_jobs_share", "cpu_jobs_share").rows()[3:5] == [(0, 0.0, 1.0), (1, 1.0, 0.0)]
    assert found.select(base).rows()[5] == ("philly, published (Table 6)", "completed", 66_696, 0.693, None, 0.4453)
    (answer,) = json.loads(done.data.read_text(encoding="utf-8"))["sections"][0]["answers"]
    first = answer["rows"][0]
    assert first["key"] == {"status": "completed"}
    assert first["values"]["philly"]["jobs"] == 2
    assert first["values"]["ours"]["jobs_share"] == 0.5
    assert first["published"]["philly"]["jobs_share"] == 0.693
    assert answer["shared"]


def test_every_published_number_is_listed_with_the_difference(philly: Path, ours: Path, tmp_path: Path) -> None:
    done = compare([philly, ours], tmp_path / "out", queries=["overview/status", "overview/job_size"])
    found = pl.read_csv(done.folder / "published.csv")
    row = found.filter((pl.col("row") == "status=completed") & (pl.col("column") == "jobs_share")).row(0, named=True)
    assert (row["trace"], row["query"], row["artefact"], row["confidence"]) == (
        "philly",
        "overview/status",
        "Table 6",
        "E",
    )
    assert (row["value"], row["measured"]) == (0.693, 0.5)
    assert row["difference"] == pytest.approx(-0.193)
    assert row["relative"] == pytest.approx(-0.193 / 0.693)
    bound = found.filter(pl.col("query") == "overview/job_size").row(0, named=True)
    assert (bound["kind"], bound["low"], bound["measured"], bound["value"]) == ("above", 0.82, 0.75, None)
    assert bound["difference"] == pytest.approx(-0.07)


def test_traces_without_published_numbers_have_no_list_of_them(ours: Path, tmp_path: Path) -> None:
    done = compare([("one", ours), ("two", ours)], tmp_path / "out", queries=["overview/status"])
    assert sorted(p.name for p in done.folder.iterdir()) == ["compare.html", "compare.json", "tables"]


def test_who_cannot_answer_is_named_with_the_reason(philly: Path, ours: Path, tmp_path: Path, golden: Golden) -> None:
    done = compare([philly, ours], tmp_path / "out", queries=["failures/retries", "utilization/host"])
    (lacking,) = done.unanswered["failures/retries"]["ours"]
    golden(lacking)
    assert set(done.unanswered["failures/retries"]) == {"ours"}
    assert set(done.unanswered["utilization/host"]) == {"philly", "ours"}
    assert list(done.tables) == ["failures/retries"]
    page = done.page.read_text(encoding="utf-8")
    assert lacking in page
    assert "Questions that none of the traces can answer" in page


def test_a_query_that_fails_is_a_reason(
    philly: Path, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = tracekit.characterize.answer_query

    def failing(trace: Trace, query: Query, **given: Any) -> Any:
        if trace.path == ours:
            raise QueryError("ran out of memory")
        return answer(trace, query, **given)

    monkeypatch.setattr("tracekit.characterize.answer_query", failing)
    heard = Heard()
    done = compare([philly, ours], tmp_path / "out", queries=["overview/status"], progress=heard)
    assert done.unanswered == {"overview/status": {"ours": ("Could not be made: ran out of memory.",)}}
    (fault,) = done.faults
    assert (fault.part, fault.reason) == ("the answer of ours to overview/status", "ran out of memory")
    assert heard.notes == [fault.sentence]


def test_cells_that_would_run_as_formulas_get_a_quote(philly: Path, tmp_path: Path) -> None:
    done = compare([("=1+1", philly), ("b", philly)], tmp_path / "out", queries=["queuing/queue_delay"])
    lines = done.tables["queuing/queue_delay"].read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith("'=1+1,'=v,1,")
    published = (done.folder / "published.csv").read_text(encoding="utf-8").splitlines()
    assert published[1].startswith("'=1+1,queuing/queue_delay,")


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (["a/x", "b/y"], ["x", "y"]),
        (["a/x", "b/x"], ["a/x", "b/x"]),
        (["a/x/trace", "b/trace"], ["x", "b"]),
        (["a/x", "a/x"], ["a/x", "a/x (2)"]),
    ],
)
def test_names_come_from_the_folders_and_are_unique(
    layout: list[str], expected: list[str], philly: Path, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in layout]
    for place in dict.fromkeys(places):
        shutil.copytree(philly, place)
    done = compare(places, tmp_path / "out", queries=["overview/status"])
    assert [t["name"] for t in json.loads(done.data.read_text(encoding="utf-8"))["traces"]] == expected


def test_a_report_represents_its_trace(philly: Path, ours: Path, tmp_path: Path) -> None:
    shutil.copytree(philly, tmp_path / "report" / "trace")
    done = compare([tmp_path / "report", ours], tmp_path / "out", queries=["overview/status"])
    assert [t["name"] for t in json.loads(done.data.read_text(encoding="utf-8"))["traces"]] == ["report", "ours"]


def test_raw_logs_are_ingested_into_the_output(
    ours: Path, sample_source: Callable[[str], Path], tmp_path: Path
) -> None:
    done = compare([sample_source("alibaba-openb"), ours], tmp_path / "out", queries=["overview/summary"])
    inner = tracekit.Trace.open(done.folder / "traces" / "alibaba-openb")
    assert inner.validate() == []
    assert json.loads(done.data.read_text(encoding="utf-8"))["traces"][0]["jobs"] == 601


def test_a_query_of_ones_own_is_compared_too(philly: Path, ours: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.sql"
    own.write_text("SELECT status, count(*) AS n FROM jobs GROUP BY status ORDER BY status", encoding="utf-8")
    done = compare([philly, ours], tmp_path / "out", queries=[str(own)])
    assert pl.read_csv(done.tables["own"]).rows()[0] == ("philly", "cancelled", 1)


def test_an_earlier_comparison_is_replaced_by_force_only(philly: Path, ours: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    compare([philly, ours], out, queries=["overview/status"])
    with pytest.raises(OutputError, match="exists"):
        compare([philly, ours], out, queries=["overview/status"])
    done = compare([philly, ours], out, queries=["overview/job_size"], force=True)
    assert list(done.tables) == ["overview/job_size"]
    assert not (out / "tables" / "overview" / "status.csv").exists()


def test_force_spares_what_is_not_a_comparison(philly: Path, ours: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    with pytest.raises(OutputError):
        compare([philly, ours], tmp_path / "precious", force=True)
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_mistakes_leave_nothing_behind(philly: Path, ours: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="at least two traces, not 1"):
        compare([philly], out)
    with pytest.raises(SourceError, match="the trace or source does not exist"):
        compare([philly, tmp_path / "nothing"], out)
    with pytest.raises(UsageError, match="two traces have the name 'a'"):
        compare([("a", philly), ("a", ours)], out)
    with pytest.raises(UsageError, match="1 to 100 characters"):
        compare([("n" * (NAME_LIMIT + 1), philly), ours], out)
    with pytest.raises(QueryError, match="no query 'overview/statsu'"):
        compare([philly, ours], out, queries=["overview/statsu"])
    with pytest.raises(UsageError, match="not a memory size"):
        compare([philly, ours], out, memory_limit="lots")
    (tmp_path / "junk").mkdir()
    with pytest.raises(SourceError):
        compare([philly, tmp_path / "junk"], out)
    assert [p.name for p in tmp_path.iterdir()] == ["junk"]


def test_two_queries_of_one_name_are_distinguished_by_the_user(philly: Path, ours: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.sql").write_text("SELECT 1 AS one", encoding="utf-8")
    with pytest.raises(UsageError, match="two queries have the name 'x'"):
        compare([philly, ours], tmp_path / "out", queries=[str(tmp_path / f / "x.sql") for f in ("a", "b")])


def test_the_output_may_not_hold_a_source(philly: Path, ours: Path, tmp_path: Path) -> None:
    shutil.copytree(philly, tmp_path / "out" / "philly")
    with pytest.raises(UsageError, match="is in the output folder"):
        compare([tmp_path / "out" / "philly", ours], tmp_path / "out", force=True)
    assert (tmp_path / "out" / "philly" / "manifest.json").is_file()
