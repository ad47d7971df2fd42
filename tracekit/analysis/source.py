"""Get the Trace to analyze: ingest it from logs, open it, or copy it completely or in part."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.analysis.comparing import reads_logs
from tracekit.anonymous import HiddenTrace, anonymous_trace
from tracekit.databases import connect_duckdb
from tracekit.errors import UsageError
from tracekit.ingest.capabilities import measure_capabilities
from tracekit.ingest.interface import TimeFrame
from tracekit.outputs import link_or_copy, output_errors, real_path
from tracekit.places import is_remote
from tracekit.schema import SCHEMA_VERSION
from tracekit.settings import AnalysisSettings
from tracekit.tables.parquet import files_sql
from tracekit.tables.window import EVERYTHING, Window, utc
from tracekit.trace import MANIFEST_NAME, Trace, is_trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.manifest import Capability
    from tracekit.progress import Progress


def trace_at(
    place: Path, source: Path, settings: AnalysisSettings, progress: Progress, salt: bytes | None
) -> HiddenTrace:
    """Return the Trace to analyze, ingested into or copied to `place`. A salt replaces names by pseudonyms."""
    if salt is None:
        return HiddenTrace(_named_trace_at(place, source, settings, progress))
    named = _named_trace_at(place.with_name(f"{place.name}-named"), source, settings, progress)
    progress.stage("replacing names")
    hidden = anonymous_trace(named, place, salt, settings.memory_limit)
    shutil.rmtree(named.path)
    return hidden


def of_other(source: Path, settings: AnalysisSettings) -> AnalysisSettings:
    """Return the settings for the whole other period. Only queries of a server keep their time bounds."""
    whole = replace(settings, cluster=None, allow_missing=False)
    return replace(whole, start=None, end=None, partition="auto") if is_trace(source) else whole


def _named_trace_at(place: Path, source: Path, settings: AnalysisSettings, progress: Progress) -> Trace:
    if is_trace(source):
        refuse_ingesting(settings)
        return copy_trace(source, place, part_of(settings), settings)
    if settings.cluster is not None or settings.allow_missing:
        option = "--allow-missing" if settings.cluster is None else "--cluster-name"
        raise UsageError(
            "applies only to a Trace, but the source is raw logs", where=option, hint="ingest the logs first"
        )
    from tracekit.estimate import need_of, sentences, this_machine
    from tracekit.ingest import ingest_logs

    trace = ingest_logs(source, place, settings, progress=progress)
    # Before this, only the size of the logs is known. The next steps need memory per job.
    for sentence in sentences(need_of(trace.manifest, "analyze"), this_machine(), settings.memory_limit):
        progress.note(f"the analysis {sentence}" if sentence.startswith("reads ") else sentence)
    return trace


def part_of(settings: AnalysisSettings) -> Window:
    """Return the selected part of a Trace."""
    return Window(utc(settings.start), utc(settings.end), settings.cluster)


def refuse_ingesting(settings: AnalysisSettings) -> None:
    """Reject ingest settings if the source is already a Trace.

    Raises
    ------
    UsageError
        An ingest setting is given.
    """
    if settings.partition != "auto":
        what = "a report's Trace keeps the layout of its source"
        raise UsageError(
            what, where="--partition", hint="change the layout with 'tracekit ingest TRACE -o NEW --partition'"
        )
    if not reads_logs(settings.compare) and (settings.format_name is not None or settings.options):
        raise UsageError(
            "applies only to raw logs, but the source is a Trace",
            where="--format" if settings.format_name is not None else "--option",
            hint="leave this option out",
        )


def refuse_replacing_source(source: Path, out: Path) -> None:
    """Reject an output that would replace its own source, except the copied Trace of an earlier report."""
    inner, outer = real_path(source), real_path(out)
    if (inner == outer or inner.is_relative_to(outer)) and not (is_trace(source) and inner == outer / "trace"):
        raise UsageError(
            "the source is in the output folder, which is replaced", where=source, hint="choose another -o"
        )


def open_whole(source: Path, limits: Window, settings: AnalysisSettings) -> Trace:
    """Open a Trace, or its part in `limits`, and read everything, to find damage before hours of work.

    Raises
    ------
    DamagedTraceError
        A table cannot be read.
    """
    found = Trace.open(source, limits=limits, allow_missing=settings.allow_missing)
    found.read_through()
    return found


def copy_trace(
    source: Path, place: Path, limits: Window = EVERYTHING, settings: AnalysisSettings | None = None
) -> Trace:
    """Copy the Trace `source`, or its part in `limits`, to `place` and return it.

    The tables of a whole Trace are hard-linked if the file system supports it.
    """
    chosen = settings or AnalysisSettings()
    found = open_whole(source, limits, chosen)
    if found.notes:
        return copy_part(found, place, chosen.memory_limit)
    with output_errors(place):
        place.mkdir()
        for table in found.tables:
            for path in found.files(table):
                target = place / path.relative_to(found.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                if is_remote(path):
                    with path.open("rb") as remote, target.open("wb") as local:
                        shutil.copyfileobj(remote, local, 1 << 20)
                else:
                    link_or_copy(path, target)  # safe, because tracekit never changes a table in place
        (place / MANIFEST_NAME).write_bytes((source / MANIFEST_NAME).read_bytes())
    return Trace.open(place)


def copy_part(trace: Trace, place: Path, memory_limit: str | None = None) -> Trace:
    """Write the selected part of a Trace (`Trace.window`, or the partitions that are not missing) to `place`.

    Capabilities are measured on the part, and the notes describe the part. The record counts of the source files and
    the checks cover the whole Trace.

    Raises
    ------
    UsageError
        The part contains no job.
    DamagedTraceError
        A table cannot be read.
    OutputError
        The output cannot be written.
    """
    with trace.connect(memory_limit) as con, TraceWriter(place) as writer:
        for table in trace.tables:
            if con.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall():
                writer.copy(table, con, f"SELECT * FROM {table}")
        tables = writer.tables()
        if trace.has("jobs") and "jobs" not in tables:
            raise UsageError(
                f"the selection contains no jobs: {'; '.join(trace.notes)}",
                where=trace.path,
                hint="choose a longer period",
            )
        manifest = replace(
            trace.manifest,
            schema_version=SCHEMA_VERSION,
            tables=tables,
            capabilities=_measured(trace, writer, set(tables), memory_limit),
            notes=[*trace.manifest.notes, *trace.notes],
        )
        return writer.commit(manifest)


def _measured(trace: Trace, writer: TraceWriter, tables: set[str], memory_limit: str | None) -> dict[str, Capability]:
    before = trace.manifest.capabilities
    whole = {name: before[name] for name in ("retries", "calendar", "hour_of_day") if name in before}
    frame = TimeFrame(trace.manifest.time_base, trace.manifest.timezone)
    with connect_duckdb(memory_limit) as con:
        for table in tables:
            con.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files_sql(writer.files(table))})")
        # What times mean depends on the source, so it is the same for every part.
        return measure_capabilities(con, tables, frame, trace.ingested_tenant, retries=False) | whole
