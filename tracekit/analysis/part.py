"""Copy a part of a Trace as a separate Trace, for a report that shows only this part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.databases import connect_duckdb
from tracekit.errors import UsageError
from tracekit.ingest.capabilities import measure_capabilities
from tracekit.ingest.interface import TimeFrame
from tracekit.schema import SCHEMA_VERSION
from tracekit.tables.parquet import files_sql
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.manifest import Capability
    from tracekit.trace import Trace

__all__ = ["copy_part"]


def copy_part(trace: Trace, place: Path, memory_limit: str | None = None) -> Trace:
    """Write the selected part of a Trace (`Trace.window`, or what is left without missing partitions) to `place`.

    Capabilities are measured on the part, and its notes describe the part. The accounting of the source files and the
    checks are those of the whole Trace.

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
        # The meaning of times is a property of the source and the same for every part.
        return measure_capabilities(con, tables, frame, trace.ingested_tenant, retries=False) | whole
