"""The files and the table that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tracekit import schema
from tracekit.characterize.joblogs import add_to_trace, classify_logs, evidence_file, write_failures
from tracekit.errors import OutputError, UsageError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"


@pytest.fixture
def frame(tmp_path: Path) -> pl.DataFrame:
    """Return one failure of job a."""
    log = tmp_path / "logs" / "a.err"
    log.parent.mkdir()
    log.write_text("start\n" + OOM)
    return classify_logs([log.parent]).frame()


def test_the_table_is_the_common_one_and_the_lines_stand_beside(tmp_path: Path, frame: pl.DataFrame) -> None:
    out = tmp_path / "new" / "failures.parquet"
    write_failures(frame, out)
    spec = schema.common("failures")
    assert pl.read_parquet_schema(out) == spec.polars
    assert pl.read_parquet(out).select("job_id", "attempt", "reason", "category").rows() == [
        ("a", None, "gpu_out_of_memory", "engine")
    ]
    lines = pl.read_csv(evidence_file(out))
    assert lines.select("job_id", "log_file", "line", "text").rows() == [("a", "logs/a.err", 2, OOM.strip())]
    assert sorted(f.name for f in out.parent.iterdir()) == ["failures.lines.csv", "failures.parquet"]


def test_no_failure_gives_an_empty_table(tmp_path: Path, frame: pl.DataFrame) -> None:
    write_failures(frame.clear(), tmp_path / "f.parquet")
    assert pl.read_parquet_schema(tmp_path / "f.parquet") == schema.common("failures").polars


def test_files_are_replaced_only_by_force(tmp_path: Path, frame: pl.DataFrame) -> None:
    out = tmp_path / "f.parquet"
    evidence_file(out).write_text("precious")
    with pytest.raises(OutputError, match="exists already"):
        write_failures(frame, out)
    assert not out.exists()
    assert evidence_file(out).read_text() == "precious"
    write_failures(frame, out, force=True)
    assert out.exists()
    assert evidence_file(out).read_text() != "precious"


def test_another_ending_is_refused(tmp_path: Path, frame: pl.DataFrame) -> None:
    with pytest.raises(UsageError, match=r"\.parquet"):
        write_failures(frame, tmp_path / "failures.csv")


def test_a_trace_gets_the_table_and_keeps_the_rest(
    tmp_path: Path, frame: pl.DataFrame, make_trace: Callable[..., Trace]
) -> None:
    trace = make_trace(
        jobs=[{"job_id": "a", "submit_time": "2020-01-01 00:00", "status": "failed"}],
        manifest_overrides={"format": "mine"},
    )
    (trace.path / "notes.txt").write_text("keep me")
    jobs = (trace.path / "jobs.parquet").read_bytes()
    with_table = add_to_trace(trace, frame)
    assert with_table.validate() == []
    assert with_table.has("failures")
    again = Trace.open(trace.path)
    assert again.scan("failures").collect()["reason"].to_list() == ["gpu_out_of_memory"]
    assert again.manifest.format == "mine"
    assert again.manifest.capabilities["failures"].available
    assert (trace.path / "jobs.parquet").read_bytes() == jobs
    assert (trace.path / "notes.txt").read_text() == "keep me"
    with pytest.raises(OutputError, match="already has a failures table"):
        add_to_trace(again, frame)
    assert add_to_trace(again, frame.clear(), force=True).validate() == []
