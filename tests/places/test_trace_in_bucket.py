"""A Trace in a bucket gives what the same one on disk gives, and asks the store for no more than it needs."""

from __future__ import annotations

import datetime as dt
import json
import random
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

from tests.command import run
from tests.report.asking import asking
from tracekit.characterize import answer_query, lacks, list_queries
from tracekit.characterize.session import Session
from tracekit.errors import DamagedTraceError, MissingTableError, OutputError, QueryError, StoreError
from tracekit.ingest import ingest_logs
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.places.conftest import Store

_FOOTER = 65_536
"""What Arrow reads from the end of a file to find its footer."""
_BLOCK = 4096
"""What DuckDB reads at least."""


@pytest.mark.parametrize(
    ("name", "least", "step"),
    [
        ("philly", 5, 8),
        pytest.param("philly", 40, 1, marks=pytest.mark.thorough),
        pytest.param("slurm-outages", 9, 1, marks=pytest.mark.thorough),
    ],
)
def test_every_query_answers_as_on_disk(
    name: str, least: int, step: int, sample_trace: Callable[[str], Trace], store: Store
) -> None:
    local = sample_trace(name)
    remote = Trace.open(str(store.upload(local.path, name)))
    assert remote.manifest == local.manifest
    one, other = Session(local), Session(remote)
    asked = [query for query in list_queries() if not lacks(query, local)]
    if name != "philly":  # what one trace answers need not be asked of two
        asked = [query for query in asked if lacks(query, sample_trace("philly"))]
    asked = asked[::step]
    assert len(asked) >= least
    for query in asked:
        here, there = answer_query(local, query, session=one), answer_query(remote, query, session=other)
        assert here.notes == there.notes, query.name
        assert_frame_equal(here.frame, there.frame, rel_tol=1e-9, abs_tol=1e-12)


@pytest.fixture(scope="module")
def large_on_disk(make_trace: Callable[..., Trace]) -> Trace:
    """Return a Trace with 60,000 jobs, whose columns do not compress well."""
    draw = random.Random(4)
    start = dt.datetime(2024, 1, 1)
    jobs = [
        {
            "job_id": f"job-{draw.getrandbits(64):x}",
            "name": f"name-{draw.getrandbits(64):x}",
            "user": f"user-{draw.randrange(500)}",
            "cluster": "one",
            "status": "completed",
            "submit_time": start + dt.timedelta(seconds=draw.randrange(10**7)),
            "gpu_count": draw.random(),
            "memory_gib": draw.random(),
        }
        for _ in range(60_000)
    ]
    return make_trace(jobs=jobs)


@pytest.fixture
def large(large_on_disk: Trace, store: Store) -> tuple[Trace, Path]:
    """Return the same Trace in the bucket, and the file of its jobs on disk."""
    return Trace.open(store.upload(large_on_disk.path, "large")), large_on_disk.path / "jobs.parquet"


def _chunks(path: Path) -> dict[str, tuple[int, int]]:
    """Return the first and the last byte of each column, which has one chunk."""
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups == 1
    found = {}
    for column in map(metadata.row_group(0).column, range(metadata.num_columns)):
        first = column.dictionary_page_offset or column.data_page_offset
        found[column.path_in_schema.partition(".")[0]] = (first, first + column.total_compressed_size - 1)
    return found


def test_opening_reads_the_footers_alone(large: tuple[Trace, Path], store: Store) -> None:
    remote, file = large
    size = file.stat().st_size
    assert size > 2_000_000
    store.asked.clear()
    Trace.open(remote.path)
    taken = store.taken("jobs.parquet")
    assert taken
    assert all(asked.first >= size - _FOOTER for asked in taken)
    assert sum(asked.bytes for asked in taken) <= 2 * _FOOTER


@pytest.mark.parametrize("way", ["sql", "scan"])
def test_a_question_about_one_column_reads_no_other(way: str, large: tuple[Trace, Path], store: Store) -> None:
    remote, file = large
    first, last = _chunks(file)["gpu_count"]
    want = pl.read_parquet(file, columns=["gpu_count"])["gpu_count"].sum()
    store.asked.clear()
    if way == "sql":
        with remote.connect() as con:
            got = con.execute("SELECT sum(gpu_count) FROM jobs").fetchall()[0][0]
    else:
        got = remote.scan("jobs").select(pl.col("gpu_count").sum()).collect().item()
    assert got == pytest.approx(want)
    size = file.stat().st_size
    rest = [asked for asked in store.taken("jobs.parquet") if asked.first < size - _FOOTER]
    assert rest
    # DuckDB reads whole blocks of its own, of which those at both ends hold a little of the next column; before 2.0 it
    # goes on to the footer, which it holds already, where what lies between is short.
    older = way == "sql" and duckdb.__version__ < "2"
    beyond = size if older else last + _BLOCK
    assert all(first - _BLOCK <= asked.first and asked.last <= beyond for asked in rest)
    most = size / 2 if older else (last - first + 1) + 4 * _FOOTER
    assert sum(asked.bytes for asked in store.taken()) <= most < size / 1.5


@pytest.mark.thorough
def test_commands_read_a_trace_by_its_address(
    sample_trace: Callable[[str], Trace], store: Store, tmp_path: Path
) -> None:
    local = sample_trace("slurm")
    address = str(store.upload(local.path, "commands/slurm"))
    for command in (["info", "-f", "json"], ["query", "-f", "csv"], ["query", "-f", "json"]):
        name, *options = command
        more = ["overview/status"] if name == "query" else []
        remote, here = (run(name, trace, *more, *options) for trace in (address, local.path))
        assert (remote.returncode, remote.stderr) == (0, here.stderr)
        assert remote.stdout == here.stdout
    told = run("validate", "--deep", address)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith(f"{address}: valid, {len(local.tables)} tables")
    assert address in run("info", address).stdout
    for trace, out in ((address, "remote"), (local.path, "local")):
        done = run("replay", trace, "-p", "fifo", "-o", tmp_path / out)
        assert done.returncode == 0, done.stderr
    frames = [pl.read_parquet(tmp_path / out / "fifo" / "jobs.parquet") for out in ("remote", "local")]
    assert_frame_equal(*frames)


def test_analyze_makes_a_report_with_a_copy_of_the_trace(
    make_trace: Callable[..., Trace], store: Store, tmp_path: Path
) -> None:
    local = make_trace(jobs=[{"job_id": "a", "submit_time": "2024-03-01 10:00", "status": "completed"}])
    address = str(store.upload(local.path, "analyzed/one-job"))
    out = tmp_path / "out"
    with asking("overview/status", guidelines=()):
        done = run("analyze", address, "-o", out, "--no-fit", "--replay-jobs", "0")
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["command"].startswith(f"tracekit analyze {address} -o ")
    for table in local.tables:
        assert [p.read_bytes() for p in Trace.open(out / "trace").files(table)] == [
            p.read_bytes() for p in local.files(table)
        ]


def test_nothing_is_written_into_a_bucket(
    sample_trace: Callable[[str], Trace], sample_source: Callable[[str], Path], store: Store, tmp_path: Path
) -> None:
    local = sample_trace("slurm")
    address = str(store.upload(local.path, "written/slurm"))
    logs = tmp_path / "logs"
    logs.mkdir()
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f'traces = ["{address}"]\npolicies = ["fifo"]\n')
    store.asked.clear()
    commands: list[list[str | Path]] = [
        ["ingest", sample_source("slurm"), "-o", "s3://bucket/new"],
        ["ingest", sample_source("slurm"), "--append", "-o", address],
        ["query", local.path, "overview/status", "-o", "s3://bucket/x.csv"],
        ["replay", local.path, "-p", "fifo", "-o", "s3://bucket/x"],
        ["fit", local.path, "-o", "s3://bucket/x.json"],
        ["export", local.path, "--to", "swf", "-o", "s3://bucket/x.swf"],
        ["generate", local.path, "--days", "1", "-o", "s3://bucket/x"],
        ["calibrate", local.path, "-o", "s3://bucket/x.toml"],
        ["classify-logs", logs, "--trace", address, "--add"],
        ["analyze", local.path, "-o", "s3://bucket/x"],
        ["digest", local.path, "-o", "s3://bucket/x"],
        ["sweep", sweep, "-o", "s3://bucket/x"],
    ]
    for command in commands:
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 2, command
        assert (
            "is in an object store, which tracekit can only read; write to disk, and copy it with your" in done.stderr
        ), done.stderr
        assert done.stderr.splitlines()[-1].startswith("tracekit: error: "), done.stderr
    assert {asked.method for asked in store.asked} <= {"GET", "HEAD"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "sweep.toml"]


def test_sql_in_the_sandbox_reads_the_tables_and_no_other_object(
    sample_trace: Callable[[str], Trace], store: Store, tmp_path: Path
) -> None:
    local = sample_trace("slurm")
    remote = Trace.open(store.upload(local.path, "boxed/slurm"))
    other = store.upload(local.path, "boxed/other") / "jobs.parquet"
    question = tmp_path / "question.sql"
    for sql, allowed in (
        ("SELECT count(*) AS n FROM jobs", True),
        (f"SELECT count(*) AS n FROM read_parquet('{remote.path}/jobs.parquet')", True),
        (f"SELECT count(*) AS n FROM read_parquet('{other}')", False),
        (f"SELECT count(*) AS n FROM read_parquet('{remote.path}/*.parquet')", False),
    ):
        question.write_text(sql)
        if allowed:
            frame = answer_query(remote, str(question), sandbox=True).frame
            assert frame["n"].to_list() == [local.manifest.tables["jobs"].rows]
        else:
            with pytest.raises(QueryError, match=r"sandbox|disabled by configuration"):
                answer_query(remote, str(question), sandbox=True)


def test_damage_is_named_as_on_disk(sample_trace: Callable[[str], Trace], store: Store) -> None:
    local = sample_trace("slurm")
    address = store.upload(local.path, "damaged/slurm")
    whole = (local.path / "attempts.parquet").read_bytes()
    store.put("damaged/slurm/attempts.parquet", whole[: len(whole) // 2])
    with pytest.raises(DamagedTraceError, match="the table attempts cannot be read"):
        Trace.open(address)
    store.put("damaged/slurm/attempts.parquet", whole[:100] + bytes(len(whole) // 2) + whole[100 + len(whole) // 2 :])
    done = run("validate", "--deep", str(address))
    assert done.returncode == 1
    assert "the table attempts cannot be read" in done.stdout
    store.remove("damaged/slurm/attempts.parquet")
    with pytest.raises(DamagedTraceError, match="the table attempts is missing"):
        Trace.open(address)
    with pytest.raises(MissingTableError, match="no table 'attempt'"):
        Trace.open(address, check=False).files("attempt")


def test_a_table_that_is_replaced_after_opening_is_reported(sample_trace: Callable[[str], Trace], store: Store) -> None:
    local = sample_trace("slurm")
    remote = Trace.open(store.upload(local.path, "replaced/slurm"))
    store.put("replaced/slurm/jobs.parquet", (local.path / "jobs.parquet").read_bytes() + b"x")
    with pytest.raises(StoreError, match="was replaced while we read it"):
        remote.scan("jobs").collect()
    with pytest.raises(StoreError, match=r"jobs\.parquet: was replaced while we read it"):
        answer_query(remote, "overview/status")
    with pytest.raises(OutputError, match="is in an object store, which tracekit can only read"):
        (remote.path / "new").open("wb")


@pytest.mark.parametrize("sample", ["", pytest.param("slurm", marks=pytest.mark.thorough)])
def test_a_partitioned_trace_answers_as_on_disk_and_a_window_leaves_other_days_alone(
    sample: str, sample_trace: Callable[[str], Trace], make_trace: Callable[..., Trace], store: Store, tmp_path: Path
) -> None:
    days = [{"job_id": f"j{n}", "status": "completed", "submit_time": f"2024-03-0{1 + n // 2} 10:00"} for n in range(6)]
    plain = sample_trace(sample) if sample else make_trace(jobs=days)
    local = ingest_logs(plain.path, tmp_path / "parts", partition="day")
    remote = Trace.open(store.upload(local.path, f"parts/{sample or 'small'}"))
    table = "jobs"
    assert len(local.files(table)) > 2
    assert [str(path.relative_to(remote.path)) for path in remote.files(table)] == [
        str(path.relative_to(local.path)) for path in local.files(table)
    ]
    assert_frame_equal(remote.scan(table).collect(), local.scan(table).collect())
    assert remote.validate(deep=True) == []
    time = local.scan(table).select(pl.col("submit_time").max()).collect().item()
    day = dt.datetime(time.year, time.month, time.day)
    store.asked.clear()
    done = run("query", str(remote.path), "overview/status", "-f", "csv", "--from", day.date().isoformat())
    assert done.returncode == 0, done.stderr
    here = run("query", local.path, "overview/status", "-f", "csv", "--from", day.date().isoformat())
    assert done.stdout == here.stdout
    asked = {asked.key for asked in store.asked if f"/{table}/" in asked.key}
    assert asked
    assert all(f"{day:%Y-%m-%d}" in key for key in asked), asked
