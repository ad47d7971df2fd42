"""Ingest raw logs into a Trace."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import OutputError, TooManyRejectsError, UsageError, quoted
from tracekit.ingest.append import open_earlier
from tracekit.ingest.capabilities import measure_capabilities
from tracekit.ingest.checks import (
    count_rejected_hours,
    count_shown_gpus,
    forget_lost_runs,
    forget_unmeasured,
    keep_last_samples,
    run_common_checks,
)
from tracekit.ingest.companion import discard_answers, split_source
from tracekit.ingest.detect import detect
from tracekit.ingest.files import source_files
from tracekit.ingest.layout import lay_out, lay_out_again, require_layout
from tracekit.ingest.pull_slurm import pull
from tracekit.ingest.sink import Sink, join_errors
from tracekit.ingest.time_order import order_table_times
from tracekit.manifest import Manifest
from tracekit.outputs import real_path
from tracekit.places import place_of, refuse_remote
from tracekit.progress import Progress
from tracekit.schema import SCHEMA_VERSION
from tracekit.settings import IngestSettings, merge_settings
from tracekit.tables.parquet import files_sql
from tracekit.tenant import tenant_of
from tracekit.trace import is_trace
from tracekit.trace_writer import TraceWriter
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.companion import CompanionFiles
    from tracekit.ingest.detect import Detection
    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import Format, TimeFrame
    from tracekit.trace import Trace
    from tracekit.workers import Workers


def ingest_logs(
    source: str | Path,
    out: str | Path,
    settings: IngestSettings | None = None,
    *,
    force: bool = False,
    append: bool = False,
    progress: Progress | None = None,
    workers: Workers | None = None,
    **changes: Any,
) -> Trace:
    """Read raw logs and write a Trace.

    Parameters
    ----------
    source : str or Path
        A folder, a file or an archive with the raw files, or ``slurm:`` to run sacct.
    out : str or Path
        Folder of the new Trace.
    settings : IngestSettings, optional
        Settings for reading the logs.
    force : bool
        Replace an existing Trace at `out`.
    append : bool
        Add a newer export to the Trace at `out`. If a job is in both, the newer record replaces the older. Files that
        were already read, and sources without records, change nothing. If the Trace does not exist yet, it is created.
    progress : Progress, optional
        Receives the steps.
    workers : Workers, optional
        Processes that each read whole telemetry files, such as `engine_of("spark", master).workers()`. They must see
        the files and the folder of `out` at the same paths. The resulting Trace is the same.
    **changes
        Settings by name, such as ``format_name="slurm"``.

    Returns
    -------
    Trace
        Its manifest proves records = kept + rejected for every file.

    Raises
    ------
    SourceError
        The source cannot be read, its format is unknown (UnknownFormatError), too many of its records are unusable
        (TooManyRejectsError), or it cannot be appended to the Trace.
    OutputError
        `out` exists, lies inside the source, or cannot be written.
    UsageError
        An option or its value does not exist or differs from that of the Trace to which the source is appended, or the
        workers cannot be used.
    TraceError
        The Trace to which the source is appended is damaged.
    """
    chosen = merge_settings(IngestSettings, settings, changes)
    _require(chosen, force=force, append=append)
    progress = progress or Progress()
    out = Path(out)
    refuse_remote(out)
    source = place_of(source)
    if is_trace(source):
        if workers is not None:
            what = "only this process can change the layout of a Trace"
            raise UsageError(what, where="--engine", hint="leave out --engine and --master")
        return lay_out_again(source, out, chosen, force=force, append=append)
    earlier = open_earlier(out) if append else None
    out = earlier.trace.path if earlier else out
    pulled = pull(source, out, chosen, earlier.trace.manifest if earlier else None, progress, force=force)
    source = pulled.source
    files = source_files(source, chosen.max_inflation)
    if source.is_dir() and real_path(out).is_relative_to(real_path(source)):
        raise OutputError(
            "lies inside the source",
            where=out,
            hint="choose an -o outside the source, or the Trace becomes part of the logs",
        )
    log_files, options, companions = split_source(source, files, chosen)
    detection = detect(source, log_files, chosen.format_name)
    filled = detection.format.fill_options(options)
    if earlier:
        earlier.require_same_reading(detection.format, filled)
    progress.note(f"format {detection.format.name}, {detection.reasons[0]}")
    with TraceWriter(out, force=force or earlier is not None) as writer, join_errors(out):
        workers = _started(workers, detection, filled, companions, progress)
        sink = Sink(writer, filled, progress, chosen.memory_limit, workers)
        sink.stated = frozenset(options)
        pulled.count_errors(sink)
        _note_files(files, log_files, detection, sink)
        frame = detection.format.read(detection.found, sink)
        _complete(companions, detection.format, frame, sink)
        sink.flush()
        writer.drain()
        _refuse_rejects(source, sink, detection.format, chosen.max_reject_share, idle=earlier is not None)
        _doubt(sink, detection)
        manifest = _manifest(detection, frame, sink)
        if earlier:
            earlier.require_same_times(frame, source)
            if why := earlier.nothing_new(manifest.files):
                progress.note(f"{why}, so nothing changes")
                return earlier.trace
            earlier.merge(manifest, detection.format, sink, narrow=chosen.partition != "none")
            order_table_times(sink)
        lay_out(sink, chosen.partition, earlier.trace.manifest if earlier else None)
        manifest.tables = writer.tables()
        _describe(manifest, frame, sink)
        if earlier:
            earlier.require_unchanged()
        trace = writer.commit(manifest)
    discard_answers(out)
    return trace


def _complete(companions: CompanionFiles, form: Format, frame: TimeFrame, sink: Sink) -> None:
    """Complete the tables of a log that has been read. Machine files come first: telemetry needs machines."""
    from tracekit.ingest.machines._complete import complete_machines
    from tracekit.ingest.telemetry._complete import complete_telemetry, samples_lack_jobs

    if companions.added is not None:
        companions.added.read(form, frame, sink)
    sink.flush()
    sink.writer.drain()
    if companions.machines:
        complete_machines(companions.machines, frame, sink, from_jobs=form.nodes_from_jobs)
        sink.flush()
        sink.writer.drain()
    if companions.telemetry or companions.servers or samples_lack_jobs(sink):
        complete_telemetry(companions, frame, sink)
        if form.nodes_from_jobs:
            count_shown_gpus(sink)


def _doubt(sink: Sink, detection: Detection) -> None:
    """Correct impossible times, repeated samples, and values that were not measured."""
    order_table_times(sink)
    keep_last_samples(sink)
    forget_unmeasured(sink)
    forget_lost_runs(sink, detection.format)


def _require(settings: IngestSettings, *, force: bool, append: bool) -> None:
    """Reject invalid settings."""
    if append and force:
        raise UsageError(
            "cannot be combined with --force", where="--append", hint="either add to the Trace, or replace it"
        )
    if not 0 <= settings.max_reject_share <= 1:
        what = f"{settings.max_reject_share} is not a share"
        raise UsageError(what, where="--max-reject-share", hint="give a number from 0 to 1")
    require_layout(settings.partition)


def _started(
    workers: Workers | None,
    detection: Detection,
    options: Mapping[str, str],
    companions: CompanionFiles,
    progress: Progress,
) -> Workers | None:
    """Start and return the workers, or add a note and return None if the source has nothing for them to read."""
    if workers is None:
        return None
    files = [*detection.format.one_by_one(detection.found, options), *companions.one_by_one]
    if not companions.servers and not any(file.apart for file in files):
        why = (
            "its telemetry is in archives, which tasks cannot read; unpack them first"
            if files
            else f"this source, in the format {detection.format.name}, has no telemetry file that a task could read"
        )
        progress.note(f"reading on this machine without workers: {why}")
        return None
    progress.stage("starting workers")
    workers.start()
    return workers


def _note_files(every: list[SourceFile], files: list[SourceFile], detection: Detection, sink: Sink) -> None:
    """Add the files' notes, and name the log's files that the format does not read."""
    for note in dict.fromkeys(file.note for file in every if file.note):
        sink.note(note)
    known = {f.path for found in detection.found.files.values() for f in found}
    # Price files next to the logs are for efficiency reports and bills; they are not ignored logs.
    unread = [f.path for f in files if f.path not in known and f.path != "prices.toml"]
    if unread:
        shown = ", ".join(unread[:6]) + (f" and {len(unread) - 6} more" if len(unread) > 6 else "")
        sink.note(f"ignored files (format {detection.format.name}): {shown}")


def _refuse_rejects(source: Path, sink: Sink, member: Format, max_share: float, *, idle: bool) -> None:
    """Reject an unusable source. A source without records can be fine, such as a dump of an idle day."""
    if idle and not any(account.records for account in sink.accounts):
        return
    if not any(account.kept for account in sink.accounts):
        bad = sum(account.rejected for account in sink.accounts)
        what = f"contains no usable record ({bad} unusable)" if bad else "contains no records"
        hint = (
            "check that the file is complete; with --append, you can add an idle day to a Trace, but not make one "
            "from it"
        )
        raise TooManyRejectsError(what, where=source, hint=_first_reject(sink, member) or hint)
    for account in sink.accounts:
        if account.rejected > max_share * account.records:
            raise TooManyRejectsError(
                f"{account.rejected} of {account.records} records are unusable",
                where=account.path,
                hint=f"{_first_reject(sink, member, account.path)}; --max-reject-share {max_share:g} is the limit",
            )


def _first_reject(sink: Sink, member: Format, path: str | None = None) -> str:
    """Describe the first reject (of one file if `path` is given) and the fix for unreadable times. '' means none."""
    import polars as pl

    if not sink.has("rejects"):
        return ""
    rows = (
        pl.scan_parquet(sink.path("rejects"))
        .filter(True if path is None else pl.col("source_file") == path)
        .head(1)
        .collect()
    )
    if not rows.height:
        return ""
    row = rows.row(0, named=True)
    column = f", column {row['column']}" if row["column"] else ""
    cure = f"; {member.time_cure}" if "is not a time" in row["reason"] else ""
    return f"the first one: line {row['line']}{column}: {quoted(row['reason'])}{cure}"


def _manifest(detection: Detection, frame: TimeFrame, sink: Sink) -> Manifest:
    return Manifest(
        format=detection.format.name,
        files=sink.accounts,
        tracekit_version=__version__,
        schema_version=SCHEMA_VERSION,
        time_base=frame.base,
        timezone=frame.timezone,
        created=_now(),
        tables=sink.writer.tables(),
        checks=sink.checks,
        options=dict(sink.options),
        notes=sink.notes,
    )


def _describe(manifest: Manifest, frame: TimeFrame, sink: Sink) -> None:
    """Run the checks and measure the capabilities on the finished tables in parallel."""
    tables, tenant = set(manifest.tables), tenant_of(manifest.format, manifest.options)
    with sink.database() as database, database.connect() as con, database.connect() as other:
        for table in tables:
            files = files_sql(sink.writer.files(table))
            con.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files}, hive_partitioning = false)")
        with ThreadPoolExecutor(1, thread_name_prefix="tracekit-measure") as thread:
            measured = thread.submit(measure_capabilities, other, tables, frame, tenant, retries=sink.retries)
            run_common_checks(con, tables, sink)
            count_rejected_hours(con, tables, sink)
            manifest.capabilities = measured.result()


def _now() -> str:
    """Return the time of creation. SOURCE_DATE_EPOCH fixes it for reproducible output."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return moment.replace(tzinfo=None, microsecond=0).isoformat() + "Z"
