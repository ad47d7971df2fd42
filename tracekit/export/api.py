"""Export a Trace to a simulator from Python."""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from tracekit.damage import explain_damage
from tracekit.errors import TraceError, UsageError
from tracekit.export.interface import TARGETS, ExportLog
from tracekit.export.output import Output
from tracekit.export.selection import select_jobs
from tracekit.outputs import output_errors
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.export.interface import Options, Target
    from tracekit.progress import Progress


@contextlib.contextmanager
def _reading(trace: Trace) -> Iterator[None]:
    """Raise a clear error if the Trace cannot be read."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise UsageError("is not enough", where="--memory-limit", hint="give more, or leave it out") from error
    except duckdb.IOException:
        raise
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise TraceError(
            f"cannot be read: {reason}", where=trace.path, hint="run 'tracekit validate' for details"
        ) from error


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    target: str
    """Name of the target."""
    files: tuple[Path, ...]
    """The files written. If there are several, the main file is last."""
    log: ExportLog
    """Skipped jobs, filled-in fields, and choices."""

    @property
    def jobs(self) -> int:
        """Number of jobs written."""
        return self.log.written


@explain_damage()
def export(
    trace: Trace | str | Path,
    to: str,
    out: str | Path,
    *,
    options: Mapping[str, str] | None = None,
    machines: int | None = None,
    target_load: float | None = None,
    shift_to: str | None = None,
    force: bool = False,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the jobs of a Trace in the format of a simulator's own loader.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    to : str
        Name of the target, such as 'gavel'; `tracekit.export.interface.TARGETS` lists all of them.
    out : str or Path
        The file to write, or for some targets, the folder.
    options : mapping, optional
        Options of the target.
    machines : int, optional
        Number of nodes in the cluster, used instead of the nodes in the Trace.
    target_load : float, optional
        Alternative to `machines`: the load that determines the number of nodes. The load is the jobs' GPU time divided
        by the cluster's GPU time from the first to the last submission.
    shift_to : str, optional
        Date, or date and time, of the first submission in the file, such as '2020-04-01'. All other times shift by the
        same amount.
    force : bool
        Whether to replace an existing export.
    memory_limit : str, optional
        Maximum memory that joins and sorts use before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Receives the log's sentences as notes.

    Returns
    -------
    Exported

    Raises
    ------
    UsageError
        The target or an option does not exist, no job can be exported, or the format has no cluster or no dates to
        change.
    TraceError
        The Trace cannot be read.
    OutputError
        The output exists already, or cannot be written.
    """
    target = TARGETS.find(to)
    chosen_options = target.fill_options(options or {})
    _size(target, chosen_options, machines, target_load)
    first = None if shift_to is None else _first_submission(target, chosen_options, shift_to)
    opened = Trace.of(trace).ingested
    log = ExportLog()
    if progress is not None:
        progress.stage(f"exporting {opened.path.name} to {target.name}")
    with (
        Output(Path(out), folder=target.folder, companions=target.beside(chosen_options), force=force) as output,
        opened.connect(memory_limit) as con,
    ):
        with output_errors(output.target), _reading(opened):
            jobs = select_jobs(con, opened, target.job_filter(chosen_options), output.scratch, log, first)
            target.write(jobs, output, log, chosen_options)
        facts = {
            "target": target.name,
            "options": chosen_options.values,
            "machines": machines,
            "target_load": target_load,
            "shift_to": shift_to,
            **log.to_dict(),
        }
        files = output.commit(facts)
    if progress is not None:
        for sentence in log.sentences:
            progress.note(sentence)
    return Exported(target.name, tuple(files), log)


def _size(target: Target, options: Options, machines: int | None, target_load: float | None) -> None:
    """Record the requested size of the cluster."""
    if machines is None and target_load is None:
        return
    named = "--machines" if machines is not None else "--target-load"
    if machines is not None and target_load is not None:
        raise UsageError("--machines and --target-load both set the size of the cluster", hint="leave one out")
    if not target.machines:
        raise UsageError(f"the format {target.name} has no cluster", where=named, hint="leave it out")
    if machines is not None and not 1 <= machines <= 10**9:
        raise UsageError(f"'{machines}' is not a number of nodes from 1 to a billion", where=named)
    if target_load is not None and not 0.001 <= target_load <= 1000:
        raise UsageError(f"'{target_load:g}' is not a load from 0.001 to 1000", where=named)
    options.machines, options.target_load = machines, target_load


def _first_submission(target: Target, options: Options, shift_to: str) -> int:
    """Return the time requested for the first submission [us since 1970]."""
    if not target.dates:
        raise UsageError(
            f"the format {target.name} has no dates; its times count from the first submission",
            where="--shift-to",
            hint="leave it out",
        )
    try:
        found = dt.datetime.fromisoformat(shift_to)
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None or not 1970 <= found.year < 2200:
        raise UsageError(
            f"'{shift_to}' is not a date from 1970 on, without a zone",
            where="--shift-to",
            hint="write it like 2020-04-01 or 2020-04-01T08:00",
        )
    return int(found.replace(tzinfo=ZoneInfo(target.timezone(options))).timestamp()) * 1_000_000
