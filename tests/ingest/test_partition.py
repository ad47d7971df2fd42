"""Ingests into partitions: the same rows and answers as in files, and appends that leave other days alone."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.command import run
from tests.effort import examples
from tests.ingest.test_append import DAY1, DAY2, DAY3, dump, line
from tests.older_traces import as_version_1
from tracekit.anonymous import anonymous_trace
from tracekit.characterize import answer_query, list_queries
from tracekit.characterize.joblogs.run import add_to_trace
from tracekit.characterize.run import lacks
from tracekit.characterize.session import Session
from tracekit.errors import SourceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.replay.api import replay
from tracekit.tables import partitions
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def in_partitions(trace: Trace) -> set[str]:
    return {table for table, info in trace.manifest.tables.items() if info.partitions is not None}


def rows_of(trace: Trace) -> dict[str, pl.DataFrame]:
    """Return the rows of each table in an order that does not depend on the layout."""
    frames = {table: trace.scan(table).collect() for table in trace.tables}
    return {table: frame.sort(frame.columns, nulls_last=True) for table, frame in frames.items()}


def assert_same_rows(found: Trace, expected: Trace) -> None:
    left, right = rows_of(found), rows_of(expected)
    assert left.keys() == right.keys()
    for table, frame in left.items():
        assert_frame_equal(frame, right[table])


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("philly", 18),
        pytest.param("philly", 1, marks=pytest.mark.thorough),
        pytest.param("helios", 6, marks=pytest.mark.thorough),
        pytest.param("helios", 1, marks=pytest.mark.slow),
    ],
)
def test_every_query_has_the_same_answer_in_both_layouts(
    name: str, step: int, sample_trace: Callable[[str], Trace], sample_source: Callable[[str], Path], tmp_path: Path
) -> None:
    plain = sample_trace(name)
    parts = ingest_logs(sample_source(name), tmp_path / "parts", partition="day")
    assert parts.validate(deep=True) == []
    assert in_partitions(plain) == set()
    assert in_partitions(parts) == set(parts.tables) & set(partitions.PARTITIONED_TABLES)
    assert_same_rows(parts, plain)
    assert (parts.manifest.checks, parts.manifest.capabilities) == (plain.manifest.checks, plain.manifest.capabilities)
    sessions = [Session(trace) for trace in (plain, parts)]
    answered = 0
    for query in list_queries()[::step]:
        if lacks(query, plain):
            assert lacks(query, parts)
            continue
        one, two = (answer_query(t, query, session=s) for t, s in zip((plain, parts), sessions, strict=True))
        assert_frame_equal(one.frame, two.frame, rel_tol=1e-9, abs_tol=1e-9)
        assert one.notes == two.notes
        answered += 1
    assert answered > 25 // step


@pytest.mark.thorough
def test_replays_are_the_same_in_both_layouts(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    plain = sample_trace("philly")
    parts = ingest_logs(plain.path, tmp_path / "parts", partition="day")
    tables = [replay(trace, "fifo", limit=400).jobs() for trace in (plain, parts)]
    assert tables[0].height == 400
    assert_frame_equal(*tables)


@pytest.mark.parametrize(("rows", "size", "cut"), [(64, 2**40, False), (63, 2**40, True), (10**9, 1, True)])
def test_a_table_above_a_limit_is_cut_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, size: int, *, cut: bool
) -> None:
    monkeypatch.setattr(partitions, "AUTO_ROWS", rows)
    monkeypatch.setattr(partitions, "AUTO_BYTES", size)
    (tmp_path / "logs").mkdir()
    jobs = [line(str(n), "04T08", "04T09", "04T10", "COMPLETED") for n in range(64)]
    (tmp_path / "logs" / "sacct.txt").write_text(dump(*jobs))
    found = ingest_logs(tmp_path / "logs", tmp_path / "trace")
    # All tables of jobs or none, so that a job lies together.
    assert in_partitions(found) == ({"jobs", "attempts", "placements"} if cut else set())


def test_a_trace_is_laid_out_again_both_ways(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    plain = sample_trace("slurm")
    parts = ingest_logs(plain.path, tmp_path / "parts", partition="day")
    shown = run("ingest", parts.path, "-o", tmp_path / "back", "--partition", "none")
    assert shown.returncode == 0, shown.stderr
    back = Trace.open(tmp_path / "back")
    assert (in_partitions(parts), in_partitions(back)) == ({"jobs", "attempts", "placements", "job_usage"}, set())
    for trace in (parts, back):
        assert trace.validate(deep=True) == []
        assert_same_rows(trace, plain)
        assert (trace.manifest.files, trace.manifest.checks) == (plain.manifest.files, plain.manifest.checks)
    assert back.manifest.schema_version == "5"


def test_an_older_trace_is_laid_out_again(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    copied = shutil.copytree(sample_trace("slurm").path, tmp_path / "older")
    as_version_1(copied)
    older = Trace.open(copied)
    parts = ingest_logs(older.path, tmp_path / "parts", partition="day")
    assert parts.validate(deep=True) == []
    assert_same_rows(parts, older)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({}, SourceError, "is already a Trace; use it unchanged, name the raw files, or change its layout"),
        ({"partition": "days"}, UsageError, "^--partition: the layout 'days' does not exist; did you mean 'day'"),
        ({"partition": "day", "format_name": "slurm"}, UsageError, "only allows --partition and --memory-limit"),
        ({"partition": "day", "append": True}, UsageError, "only allows --partition and --memory-limit"),
    ],
)
def test_layouts_that_cannot_be_are_refused(
    sample_trace: Callable[[str], Trace],
    tmp_path: Path,
    changes: Mapping[str, Any],
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        ingest_logs(sample_trace("slurm").path, tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


def histories(folder: Path, exports: Sequence[str], layouts: Sequence[str]) -> list[Trace]:
    """Return a history of exports in each layout."""
    found = []
    for layout in layouts:
        for number, export in enumerate(exports):
            logs = folder / f"logs-{number}"
            logs.mkdir(exist_ok=True)
            (logs / f"sacct-{number}.txt").write_text(export)
            trace = ingest_logs(logs, folder / layout, append=True, partition=layout)
        found.append(trace)
    return found


@pytest.mark.thorough
def test_appends_to_partitions_are_those_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    plain, parts = histories(tmp_path, [DAY1, DAY2, DAY3], ["none", "day"])
    assert parts.validate(deep=True) == []
    assert_same_rows(parts, plain)
    assert parts.manifest.additions == plain.manifest.additions
    assert parts.manifest.capabilities == plain.manifest.capabilities
    assert parts.manifest.checks == plain.manifest.checks
    assert [(p.cluster, p.day, p.rows) for p in parts.manifest.tables["jobs"].partitions or []] == [
        ("c", "2024-03-04", 3), ("c", "2024-03-05", 1), ("c", "2024-03-06", 1)
    ]  # fmt: skip


hours = st.integers(0, 71).map(lambda hour: f"{4 + hour // 24:02}T{hour % 24:02}")
states = st.sampled_from(["COMPLETED", "RUNNING", "PENDING", "FAILED", "NODE_FAIL"])


@st.composite
def exports(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(1, 5))):
        times = sorted(draw(st.tuples(hours, hours, hours)))
        state = draw(states)
        submit, start, end = times[0], "" if state == "PENDING" else times[1], times[2]
        if state in ("PENDING", "RUNNING"):
            end = ""
        lines.append(line(draw(st.sampled_from("1234")), submit, start, end, state,
                          node=draw(st.sampled_from(["n1", "n2"])), cluster=draw(st.sampled_from("cd"))))  # fmt: skip
    return dump(*lines)


HISTORIES = st.lists(exports(), min_size=2, max_size=3, unique=True)


@pytest.mark.thorough
@given(HISTORIES)
@settings(max_examples=examples(9))
def test_many_histories_are_the_same_in_both_layouts(given_exports: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain, parts = histories(Path(folder), given_exports, ["none", "day"])
        assert parts.validate(deep=True) == plain.validate(deep=True)
        assert_same_rows(parts, plain)


def states_of(trace: Trace) -> dict[str, tuple[int, int, str]]:
    """Return inode, time of change and checksum of each partition."""
    return {
        path.relative_to(trace.path).as_posix(): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        )
        for path in trace.path.rglob("part-*.parquet")
    }


def test_an_append_leaves_the_partitions_of_other_days_alone(tmp_path: Path) -> None:
    (before,) = histories(tmp_path, [DAY1, DAY2], ["day"])
    old = states_of(before)
    # Job 10 of the 5th ends later; the 4th has nothing new.
    newer = dump(line("10", "05T13", "05T14", "05T16", "FAILED", node="n2"), line("11", "06T08", "", "", "PENDING"))
    (tmp_path / "logs-9").mkdir()
    (tmp_path / "logs-9" / "sacct-9.txt").write_text(newer)
    after = ingest_logs(tmp_path / "logs-9", tmp_path / "day", append=True)  # by default it stays in partitions
    new = states_of(after)
    days = {path: path.split("day=")[1][:10] for path in new}
    assert {day for path, day in days.items() if old.get(path) == new[path]} == {"2024-03-04"}
    assert {day for path, day in days.items() if path in old and old[path] != new[path]} == {"2024-03-05"}
    assert {day for path, day in days.items() if path not in old} == {"2024-03-06"}
    assert after.validate(deep=True) == []


@pytest.mark.parametrize(
    "place",
    [
        "tracekit.ingest.run.lay_out",
        pytest.param("tracekit.ingest.layout.cut_table", marks=pytest.mark.thorough),
        pytest.param("tracekit.ingest.run.run_common_checks", marks=pytest.mark.thorough),
    ],
)
def test_an_append_that_fails_leaves_the_partitions_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (trace,) = histories(tmp_path, [DAY1], ["day"])
    before = states_of(trace)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(place, fail)
        with pytest.raises(RuntimeError):
            histories(tmp_path, [DAY1, DAY2], ["day"])
    assert states_of(trace) == before
    assert Trace.open(trace.path).validate(deep=True) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_partitions_are_copied_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = histories(tmp_path, [DAY1], ["day"])
    old = states_of(before)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr("tracekit.outputs.os.link", fail)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "sacct.txt").write_text(DAY3)
    after = ingest_logs(tmp_path / "more", tmp_path / "day", append=True)
    assert after.validate(deep=True) == []
    assert old.keys() <= states_of(after).keys()


def test_what_is_made_of_partitions_is_in_partitions(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    parts = ingest_logs(sample_trace("acme").path, tmp_path / "parts", partition="day")
    hidden = anonymous_trace(parts, tmp_path / "hidden", b"salt" * 8).trace
    assert in_partitions(hidden) == in_partitions(parts) == {"jobs", "attempts"}
    assert hidden.validate(deep=True) == []
    clusters = [[path for path in trace.path.rglob("*") if "eren" in path.name] for trace in (parts, hidden)]
    assert [bool(paths) for paths in clusters] == [True, False]
    jobs = parts.scan("jobs").head(100).collect()["job_id"]
    failures = pl.DataFrame({"job_id": [*jobs, "nobody"]}).select(
        "job_id", attempt=pl.lit(0), time=pl.lit(None, pl.Datetime("us")), reason=pl.lit("r"),
        category=pl.lit("c"), signature=pl.lit("s"),
    )  # fmt: skip
    before = states_of(parts)
    told = add_to_trace(parts, failures)
    assert in_partitions(told) == {"jobs", "attempts", "failures"}
    assert {path: state for path, state in states_of(told).items() if "failures" not in path} == before
    assert rows_of(told)["failures"].height == 101


def test_a_part_of_a_log_is_asked_as_a_log_of_its_own(
    sample_trace: Callable[[str], Trace], sample_source: Callable[[str], Path], tmp_path: Path
) -> None:
    # Submissions of the log stand in Shanghai time.
    source = sample_source("helios") / "Venus" / "cluster_log.csv"
    kept = tmp_path / "logs" / "Venus"
    kept.mkdir(parents=True)
    head, *lines = source.read_text().splitlines(keepends=True)
    column = head.rstrip("\n").split(",").index("submit_time")
    inside = [x for x in lines if "2020-04-10" <= x.split(",")[column][:10] < "2020-04-14"]
    assert 50 < len(inside) < len(lines)
    (kept / "cluster_log.csv").write_text(head + "".join(inside))
    alone = ingest_logs(tmp_path / "logs", tmp_path / "alone")
    parts = ingest_logs(sample_trace("helios").path, tmp_path / "parts", partition="day")
    times = "from 2020-04-09 16:00:00 UTC on, before 2020-04-13 16:00:00 UTC"
    note = f"note: only jobs submitted {times}, in the cluster Venus"
    for trace in (sample_trace("helios"), parts):
        for name in ("queuing/run_time", "queuing/queue_delay", "overview/job_size", "users/concentration"):
            part = ("--from", "2020-04-10T00:00+08:00", "--to", "2020-04-14T00:00+08:00", "--cluster", "Venus")
            shown = run("query", trace.path, name, "-f", "csv", *part)
            assert shown.stdout == run("query", alone.path, name, "-f", "csv").stdout
            assert shown.stdout.count("\n") > 1
            assert note in shown.stderr
