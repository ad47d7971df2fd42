"""A Trace opens only when it is whole, reads the same both ways, and validate() finds what is wrong."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.older_traces import LATER, as_version_1
from tracekit.databases import connect_duckdb, sql_text
from tracekit.errors import MissingTableError, TraceError, UsageError
from tracekit.manifest import Check, FileAccount, Manifest
from tracekit.trace import Trace, is_trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "status": "completed", "gpu_count": 4, "submit_time": "2017-10-03 00:00"},
    {"job_id": "b", "status": "failed"},
]
ATTEMPTS: list[dict[str, Any]] = [{"job_id": "a", "attempt": 0, "run_s": 60.0}]


@pytest.fixture
def trace(make_trace: Callable[..., Trace], tmp_path: Path) -> Trace:
    """Return a Trace that the test may damage."""
    file = FileAccount("log.csv", bytes=10, sha256="0", records=3, kept=2, rejected=1)
    rejects = [{"source_file": "log.csv", "line": 4, "reason": "is broken", "raw": "x"}]
    whole = make_trace(jobs=JOBS, attempts=ATTEMPTS, rejects=rejects, manifest_overrides={"files": [file]})
    shutil.copytree(whole.path, tmp_path / "trace")
    return Trace.open(tmp_path / "trace")


def change_manifest(trace: Trace, change: Callable[[dict[str, Any]], object]) -> Trace:
    path = trace.path / "manifest.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))
    return Trace.open(trace.path)


def test_a_trace_tells_its_tables_in_reading_order(trace: Trace) -> None:
    assert trace.tables == ("jobs", "attempts", "rejects")
    assert (trace.has("jobs"), trace.has("nodes")) == (True, False)
    assert trace.timezone == "UTC"
    assert trace.validate() == []


def test_scan_and_connect_give_the_same_rows(trace: Trace) -> None:
    with trace.connect() as con:
        for table in trace.tables:
            assert con.sql(f"SELECT * FROM {table}").pl().equals(trace.scan(table).collect())
    jobs = trace.scan("jobs").select("job_id", "status", "gpu_count", "submit_time").collect()
    assert [(j, s, g, str(t)) for j, s, g, t in jobs.iter_rows()] == [
        ("a", "completed", 4.0, "2017-10-03 00:00:00"),
        ("b", "failed", None, "None"),
    ]


def test_a_path_with_signs_of_sql_in_it_can_be_queried(trace: Trace) -> None:
    odd = trace.path.with_name("it's; -- odd")
    trace.path.rename(odd)
    with Trace.open(odd).connect() as con:
        assert con.sql("SELECT count(*) FROM jobs").fetchall() == [(2,)]
    assert sql_text("it's") == "'it''s'"


def test_a_table_that_is_absent_names_the_nearest(trace: Trace) -> None:
    with pytest.raises(MissingTableError, match=r"the Trace has no table 'job'; did you mean 'jobs'\?$"):
        trace.scan("job")


def test_a_memory_limit_must_be_a_size() -> None:
    with connect_duckdb("1GB") as con:
        assert con.sql("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
    with pytest.raises(UsageError, match=r"^'plenty' is not a memory size; for example '2GB'$"):
        connect_duckdb("plenty")


@pytest.mark.parametrize(
    ("name", "what"), [("absent", "no such Trace"), ("empty", r"is not a Trace: it has no manifest\.json")]
)
def test_a_folder_that_is_not_a_trace_is_refused(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "empty").mkdir()
    assert not is_trace(tmp_path / name)
    with pytest.raises(TraceError, match=rf"{name}: {what}; make one with 'tracekit ingest SRC -o TRACE'$"):
        Trace.open(tmp_path / name)


def test_a_trace_of_another_schema_version_is_refused(trace: Trace) -> None:
    with pytest.raises(
        TraceError, match=r"has schema version 0, but this tracekit reads 1, 2, 3, 4, 5 and 6; ingest the source again$"
    ):
        change_manifest(trace, lambda raw: raw.update(schema_version="0"))


def test_a_trace_of_the_older_schema_has_unknown_values_in_later_columns(trace: Trace) -> None:
    whole = trace.scan("jobs").collect()
    as_version_1(trace.path)
    older = Trace.open(trace.path)
    assert older.validate(deep=True) == []
    jobs = older.scan("jobs").collect()
    assert jobs.schema == whole.schema
    assert_frame_equal(jobs.drop(LATER), whole.drop(LATER))
    assert jobs.select(LATER).null_count().rows() == [(whole.height,) * len(LATER)]
    assert older.scan("jobs").select("qos").collect().height == whole.height
    assert older.scan("jobs").filter(pl.col("qos").is_null()).select("job_id").collect().height == whole.height
    with older.connect() as con:
        assert con.sql("SELECT * FROM jobs").columns == list(whole.columns)
        assert con.sql("SELECT count(*), count(account), max(eligible_time) FROM jobs").fetchall() == [
            (whole.height, 0, None)
        ]


def test_a_column_that_the_schema_version_has_must_be_there(trace: Trace) -> None:
    as_version_1(trace.path)
    with pytest.raises(TraceError, match="the table jobs has no account, partition, qos, eligible_time"):
        change_manifest(trace, lambda raw: raw.update(schema_version="2"))


def test_a_trace_that_lacks_a_listed_table_is_refused(trace: Trace) -> None:
    (trace.path / "attempts.parquet").unlink()
    with pytest.raises(TraceError, match=r"trace: the table attempts is missing; ingest the source again$"):
        Trace.open(trace.path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        '{"source": 5}',
        '{"source": {"format": "x", "files": [{"size": 1}]}}',
        '{"source": {"format": "x", "files": []}, "tables": []}',
        '{"source": {"format": "x", "files": []}, "tables": {}, "checks": {}, "capabilities": {"a": {"window": [1]}}}',
        '{"source": {"format": "x", "files": []}, "tables": {}, "checks": {}, "capabilities": {}}',
        "\udcff",
        "[" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
)
def test_a_damaged_manifest_is_refused(trace: Trace, text: str) -> None:
    (trace.path / "manifest.json").write_text(text, errors="surrogateescape")
    with pytest.raises(TraceError, match=r"manifest\.json: the manifest is damaged: .*; ingest the source again$"):
        Trace.open(trace.path)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path, trace: Trace) -> None:
    manifest = trace.manifest
    manifest.checks["odd"] = Check(1, None, "odd rows", ["a"])
    manifest.notes.append("a note")
    (tmp_path / "manifest.json").write_bytes(manifest.to_json())
    assert Manifest.read(tmp_path / "manifest.json") == manifest
    assert (manifest.records, manifest.rejected) == (3, 1)


def test_clusters_are_those_of_the_jobs_in_order(make_trace: Callable[..., Trace]) -> None:
    jobs = [{"job_id": str(i), "cluster": name} for i, name in enumerate(("b", None, "a", "b"))]
    assert make_trace(jobs=jobs).clusters == ("a", "b")
    assert make_trace(nodes=[{"node_id": "n"}]).clusters == ()


def test_a_table_that_was_closed_goes_on_where_it_ended(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "trace") as writer:
        for names in (["a", "b"], ["c"], ["d", "e"]):
            writer.write("nodes", pl.DataFrame({"node_id": names}))
            writer.drain()
        writer.drain()
        nodes = pl.read_parquet(writer.folder / "nodes.parquet")
        assert writer.tables()["nodes"].rows == 5
        assert [path.name for path in writer.scratch.iterdir()] == []
    assert nodes["node_id"].to_list() == ["a", "b", "c", "d", "e"]
