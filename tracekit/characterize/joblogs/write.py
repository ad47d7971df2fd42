"""Write the failures: as files of their own, or as the table failures of a Trace."""

from __future__ import annotations

import dataclasses
import os
import shutil
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.errors import OutputError, UsageError
from tracekit.manifest import Capability
from tracekit.outputs import StagedFiles, check_files, output_errors, real_path
from tracekit.spreadsheets import csv_safe
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

_EVIDENCE = ("job_id", "attempt", "reason", "log_file", "line", "text")


def evidence_file(out: Path) -> Path:
    """Return the file beside `out` with the line behind each reason.

    Examples
    --------
    >>> from pathlib import Path
    >>> evidence_file(Path("out/failures.parquet")).name
    'failures.lines.csv'
    """
    return out.with_suffix(".lines.csv")


def write_failures(frame: pl.DataFrame, out: Path, *, force: bool = False) -> None:
    """Write the table failures as Parquet, and beside it a CSV file with the line behind each reason.

    Parameters
    ----------
    frame : DataFrame
        From `Classification.frame`.
    out : Path
        The Parquet file.
    force : bool
        Replace files that stand there.

    Raises
    ------
    UsageError
        The name does not end in .parquet.
    OutputError
        A file stands there already, or the place cannot be written.
    """
    check_target(out, force=force)
    table = schema.common("failures")
    evidence = evidence_file(out)
    with output_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with StagedFiles(out, evidence, force=force) as staged:
            csv_safe(frame.select(_EVIDENCE)).write_csv(staged.part(evidence))
            table.conform(frame.select(table.names)).write_parquet(staged.part(out), compression="zstd")
            staged.commit()


def check_target(out: Path, *, force: bool) -> None:
    """Check before long work that `out` can be written.

    Raises
    ------
    UsageError
        The name does not end in .parquet.
    OutputError
        A file stands there already and is not to be replaced.
    """
    if out.suffix != ".parquet":
        raise UsageError(f"'{out.name}' does not end in .parquet", where="-o", hint="write it like -o failures.parquet")
    check_files(out, evidence_file(out), force=force)


def add_to_trace(trace: Trace | str | Path, frame: pl.DataFrame, *, force: bool = False) -> Trace:
    """Add the table failures to a Trace and return it; it is replaced as a whole or not at all.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    frame : DataFrame
        From `Classification.frame`, of logs that were read with this Trace.
    force : bool
        Replace a table failures that the Trace has.

    Raises
    ------
    OutputError
        The Trace already has a table failures, or cannot be written.
    """
    trace = Trace.of(trace)
    if trace.has("failures") and not force:
        raise OutputError("already has a table failures", where=trace.path, hint="add --force to replace it")
    folder = real_path(trace.path)
    columns = list(schema.common("failures").names)
    times = frame["time"].drop_nulls()
    window = (times.min().isoformat(), times.max().isoformat()) if len(times) else None  # type: ignore[union-attr]  # of a datetime column
    found = Capability(
        available=frame.height > 0, coverage=1.0 if frame.height else 0.0, window=window, note="why attempts failed"
    )
    with TraceWriter(folder, force=True) as writer:
        if Trace.open(folder).manifest != trace.manifest:
            raise OutputError("changed while this command ran", where=folder, hint="classify the logs again")
        with output_errors(folder):
            for old in sorted(folder.iterdir()):
                if old.name not in ("manifest.json", "failures.parquet", "failures"):
                    _take_over(old, writer.folder / old.name)
        writer.write("failures", frame.select(columns))
        writer.drain()
        jobs = trace.manifest.tables.get("jobs")
        if jobs is not None and jobs.partitions is not None:
            with trace.connect() as con:
                writer.cut(con, ["failures"])
        manifest = dataclasses.replace(
            trace.manifest,
            # The other tables keep their checksums: what was damaged before stays found.
            tables={
                name: info
                for name, info in {**trace.manifest.tables, "failures": writer.tables().get("failures")}.items()
                if info is not None
            },
            capabilities={**trace.manifest.capabilities, "failures": found},
        )
        return writer.commit(manifest)


def _take_over(old: Path, new: Path) -> None:
    """Give a file or folder a second name; copy it where the file system has no links."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, copy_function=_take_over_file)
        return
    _take_over_file(old, new)


def _take_over_file(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)
