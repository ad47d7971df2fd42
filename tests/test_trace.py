"""A Trace opens only when it is whole, reads the same both ways, and validate() finds what is wrong."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tracekit.errors import MissingTableError, TraceError, UsageError
from tracekit.manifest import Check, FileAccount, Manifest
from tracekit.trace import Trace, connect_duckdb, is_trace, sql_text

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


def rewrite(trace: Trace, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    change(trace.scan(table).collect()).write_parquet(trace.path / f"{table}.parquet")


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
    with pytest.raises(UsageError, match=r"^'plenty' is not a memory size; write it like '2GB'$"):
        connect_duckdb("plenty")


@pytest.mark.parametrize(
    ("name", "what"), [("absent", "no such Trace"), ("empty", r"is not a Trace: it has no manifest\.json")]
)
def test_a_folder_that_is_no_trace_is_refused(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "empty").mkdir()
    assert not is_trace(tmp_path / name)
    with pytest.raises(TraceError, match=rf"{name}: {what}; make one with 'tracekit ingest SRC -o TRACE'$"):
        Trace.open(tmp_path / name)


def test_a_trace_of_another_schema_version_is_refused(trace: Trace) -> None:
    with pytest.raises(TraceError, match=r"has schema version 0, this tracekit reads 1; ingest the source again$"):
        change_manifest(trace, lambda raw: raw.update(schema_version="0"))


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


def test_a_column_of_another_type_is_found(trace: Trace) -> None:
    rewrite(trace, "jobs", lambda jobs: jobs.with_columns(pl.col("gpu_count").cast(pl.String)))
    assert trace.validate() == ["jobs has other types in gpu_count"]


def test_a_changed_number_of_rows_is_found(trace: Trace) -> None:
    rewrite(trace, "jobs", lambda jobs: jobs.head(1))
    assert trace.validate() == ["jobs has 1 rows, the manifest says 2"]


def test_a_table_that_cannot_be_read_is_found(trace: Trace) -> None:
    (trace.path / "jobs.parquet").write_bytes(b"PAR1 and then nothing")
    (problem,) = trace.validate()
    assert problem.startswith("jobs cannot be read: ")


def test_an_attempt_without_its_job_is_found(trace: Trace) -> None:
    rewrite(trace, "attempts", lambda attempts: attempts.with_columns(job_id=pl.lit("z")))
    assert trace.validate() == ["attempts has 1 rows whose job_id is not in jobs"]


def test_a_repeated_key_and_an_unknown_status_are_found(trace: Trace) -> None:
    rewrite(trace, "jobs", lambda jobs: jobs.with_columns(job_id=pl.lit("a"), status=pl.lit("asleep")))
    assert trace.validate() == ["jobs: 2 rows have a status outside its words", "jobs: 1 rows repeat the key (job_id)"]


def test_a_broken_law_is_found(trace: Trace) -> None:
    broken = change_manifest(trace, lambda raw: raw["source"]["files"][0].update(kept=1))
    assert broken.validate() == ["log.csv: 3 records, but 1 kept + 1 rejected"]


def test_rejects_that_do_not_match_the_manifest_are_found(trace: Trace) -> None:
    broken = change_manifest(trace, lambda raw: raw["source"]["files"][0].update(kept=1, rejected=2))
    assert broken.validate() == ["log.csv: 2 rejected, but 1 rows in rejects"]
