"""Export a Trace to a simulator, from Python."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.damage import explain_damage
from tracekit.errors import TraceError, UsageError
from tracekit.export.export_log import ExportLog
from tracekit.export.output import Output
from tracekit.export.registry import find_target
from tracekit.export.selection import select_jobs
from tracekit.outputs import output_errors
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.progress import Progress

__all__ = ["Exported", "export"]


@contextlib.contextmanager
def _reading(trace: Trace) -> Iterator[None]:
    """Raise one clear error when reading the Trace fails."""
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
    """What an export wrote."""

    target: str
    """Name of the target."""
    files: tuple[Path, ...]
    """The files; of several the main one is the last."""
    log: ExportLog
    """Jobs left out, fields filled in, choices made."""

    @property
    def jobs(self) -> int:
        """How many jobs were written."""
        return self.log.written


@explain_damage()
def export(
    trace: Trace | str | Path,
    to: str,
    out: str | Path,
    *,
    options: Mapping[str, str] | None = None,
    force: bool = False,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Exported:
    """Write the jobs of a Trace as a simulator's own loader reads them.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    to : str
        Name of the target, such as 'gavel'; `tracekit.export.registry.all_targets` has all.
    out : str or Path
        The file, or for some targets the folder, to write.
    options : mapping, optional
        Options of the target.
    force : bool
        Replace an existing export.
    memory_limit : str, optional
        Most memory for joins and sorting before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Receives the sentences of the log as notes.

    Returns
    -------
    Exported

    Raises
    ------
    UsageError
        No such target or option, or no job that the target takes.
    TraceError
        The Trace cannot be read.
    OutputError
        The output exists already, or cannot be written.
    """
    target = find_target(to)
    chosen_options = target.fill_options(options or {})
    opened = Trace.of(trace).ingested
    log = ExportLog()
    if progress is not None:
        progress.stage(f"exporting {opened.path.name} to {target.name}")
    with (
        Output(Path(out), folder=target.folder, companions=target.beside(chosen_options), force=force) as output,
        opened.connect(memory_limit) as con,
    ):
        with output_errors(output.target), _reading(opened):
            jobs = select_jobs(con, opened, target.job_filter(chosen_options), output.scratch, log)
            target.write(jobs, output, log, chosen_options)
        facts = {"target": target.name, "options": chosen_options.values, **log.to_dict()}
        files = output.commit(facts)
    if progress is not None:
        for sentence in log.sentences:
            progress.note(sentence)
    return Exported(target.name, tuple(files), log)
