"""A disk without room ends an analysis in one line with the path, and leaves nothing half-written."""

from __future__ import annotations

import errno
import resource
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from polars.exceptions import ComputeError

from tests.command import run
from tests.report.asking import asking
from tracekit.damage import explain_damage
from tracekit.errors import OutputError, QueryError, SourceError
from tracekit.outputs import SPILL, final_place, full_disk, output_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.trace import Trace

FULL = "No space left on device"


@contextmanager
def files_of(most: int) -> Iterator[None]:
    """Let no file grow beyond a number of bytes, which is how a full disk looks to whoever writes it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("logs", [True, False], ids=["logs", "trace"])
@pytest.mark.parametrize(
    ("most", "stage"),
    [(1_000, "the Trace"), (3_500, "tables of answers"), (60_000, "report.json")],
    ids=["trace", "answers", "report"],
)
def test_every_stage_of_an_analysis_ends_in_one_line(
    most: int,
    stage: str,
    logs: bool,
    sample_trace: Callable[[str], Trace],
    sample_source: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    source = sample_source("swf") if logs else sample_trace("swf").path
    options = ("--no-fit", "--replay-jobs", "0")
    asked = ("overview/summary", "overview/status", "queuing/queue_delay")
    with asking(*asked, guidelines=()), files_of(most):
        done = run("analyze", source, "-o", tmp_path / "out", *options)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert (done.returncode, len(lines)) == (2, 1), stage
    assert f"{tmp_path / 'out'}" in lines[0]
    assert lines[0].endswith(": cannot write: File too large; choose another -o, or free its path")
    assert ".partial-" not in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_in_memory_and_not_on_the_disk_is_one_line(
    sample_trace: Callable[[str], Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sql = tmp_path / "large.sql"
    sql.write_text("SELECT count(*) AS n FROM (SELECT DISTINCT hash(i) AS h, hash(h) AS g FROM range(3000000) AS t(i))")
    with files_of(100_000):
        done = run("query", sample_trace("swf").path, sql, "--memory-limit", "20MB")
    assert done.returncode == 2
    what = f"tracekit: error: {tmp_path}: cannot write data that does not fit in memory to disk: File too large; "
    assert done.stderr == f"{what}free space there, or set TMPDIR to another folder, or raise --memory-limit\n"
    assert not list(tmp_path.glob(f"{SPILL}*/*"))


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OSError(errno.ENOSPC, FULL, "/data/.out.partial-12/x.csv"), "/data/out/x.csv"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), None),
        (OSError("Error writing bytes to file. Detail: [errno 28] No space left on device"), None),
        (ComputeError("parquet: underlying IO error: No space left on device (os error 28)"), None),
        (duckdb.IOException(f'IO Error: Could not write file "/x": {FULL}'), None),
        (duckdb.OutOfMemoryException("Out of Memory Error: ... 'max_temp_directory_size' ..."), None),
    ],
    ids=["python", "quota", "arrow", "polars", "duckdb", "spill"],
)
def test_each_librarys_word_for_a_full_disk_is_known(error: Exception, where: str | None) -> None:
    with pytest.raises(OutputError) as caught, explain_damage():
        raise error
    assert caught.value.where == (where or tempfile.gettempdir())
    assert caught.value.hint is not None
    assert "free space there, or set TMPDIR" in caught.value.hint
    with (
        pytest.raises(OutputError, match=r"^/data/out/y\.csv: cannot write|^/tmp.*memory"),
        explain_damage(),
        output_errors(Path("/data/.out.partial-3/y.csv")),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "Permission denied"),
        ComputeError("conversion of 'No space left on device' failed"),
        duckdb.ConversionException(f"Conversion Error: Could not convert string '{FULL}' to INT32"),
        QueryError(f"a log says {FULL}"),
        SourceError(FULL),
        ValueError(FULL),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_that_quotes_a_log_is_not_a_full_disk(error: Exception) -> None:
    assert full_disk(error) is None


def test_an_error_that_is_its_own_cause_is_not_a_full_disk() -> None:
    first, second = QueryError("first"), QueryError("second")
    first.__cause__, second.__cause__ = second, first
    assert full_disk(first) is None
    second.__cause__ = OSError(errno.ENOSPC, FULL, "/data/x.csv")
    assert str(full_disk(first)).startswith(f"/data/x.csv: cannot write: {FULL}; ")


def test_the_name_of_an_unfinished_folder_is_shown_as_the_final_one() -> None:
    assert final_place(Path("/a/.b.c.partial-123/d")) == Path("/a/b.c/d")
    assert final_place(Path("/a/.b.partial")) == Path("/a/.b.partial")
