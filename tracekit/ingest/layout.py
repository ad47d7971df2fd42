"""Whether a table of a Trace is one file or partitions: at the end of an ingest, or of a Trace that is there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.errors import SourceError, UsageError, nearest
from tracekit.ingest.cut_tasks import cutter
from tracekit.outputs import real_path
from tracekit.schema import SCHEMA_VERSION
from tracekit.settings import IngestSettings
from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import JOB_TABLES, PARTITIONED_TABLES, SAMPLE_TABLES, is_large
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.ingest.sink import Sink
    from tracekit.manifest import Manifest, TableInfo

__all__ = ["lay_out", "lay_out_again", "require_layout"]

_LAYOUTS = ("day", "none", "auto")


def require_layout(layout: str) -> None:
    """Refuse a layout that there is not.

    Raises
    ------
    UsageError
        It is none of day, none and auto.
    """
    if layout not in _LAYOUTS:
        hint = nearest(layout, _LAYOUTS) or "day, none or auto"
        raise UsageError(f"there is no layout '{layout}'", where="--partition", hint=hint)


def lay_out(sink: Sink, layout: str, earlier: Manifest | None) -> None:
    """Cut the finished tables of an ingest into partitions, where that is asked or they are large.

    Parameters
    ----------
    layout : str
        day, none or auto.
    earlier : Manifest, optional
        Of the Trace that is appended to: by auto, what is in partitions stays so.
    """
    before = earlier.tables if earlier is not None else {}
    tables = _to_cut(sink.writer.tables(), layout, before)
    if not tables:
        return
    sink.progress.stage("cutting tables into days")
    with sink.connect() as con:
        for table, key in (("jobs", "job_id, cluster, submit_time"), ("nodes", "node_id, cluster")):
            # Of the jobs, those that are written now: rows of others are in partitions that stay.
            path = sink.folder / f"{table}.parquet"
            if path.is_file():
                rows = f"SELECT {key} FROM read_parquet({files_sql([path])}, hive_partitioning = false)"
            else:
                rows = f"SELECT {_NOTHING[table]} WHERE false"
            con.execute(f"CREATE VIEW {table} AS {rows}")
        sink.writer.cut(con, tables, cutter(sink))


_NOTHING = {
    "jobs": "NULL::VARCHAR AS job_id, NULL::VARCHAR AS cluster, NULL::TIMESTAMP AS submit_time",
    "nodes": "NULL::VARCHAR AS node_id, NULL::VARCHAR AS cluster",
}


def _to_cut(tables: Mapping[str, TableInfo], layout: str, before: Mapping[str, TableInfo]) -> list[str]:
    """Return the tables to cut: those of jobs together, those of samples each by itself."""
    if layout == "none":
        return []
    found = []
    for group in (JOB_TABLES, *((table,) for table in SAMPLE_TABLES)):
        have = [table for table in group if table in tables]
        large = any(is_large(tables[table].rows, tables[table].bytes) for table in have)
        cut_before = any(table in before and before[table].partitions is not None for table in group)
        if layout == "day" or large or cut_before:
            found += have
    return found


def lay_out_again(source: Path, out: Path, settings: IngestSettings, *, force: bool, append: bool) -> Trace:
    """Write a Trace again with its tables as files or as partitions; its rows and its account stay the same.

    Raises
    ------
    SourceError
        No layout is asked for.
    UsageError
        Another setting is given, which is for logs.
    OutputError
        `out` exists, or cannot be written.
    """
    if settings.partition == "auto":
        raise SourceError(
            "is a Trace already",
            where=source,
            hint="use it as it is, name the raw files, or lay it out again with --partition day or none",
        )
    plain = IngestSettings(partition=settings.partition, memory_limit=settings.memory_limit)
    if append or plain != replace(settings, options=settings.options or None):
        what = "is a Trace, for which only --partition and --memory-limit can be chosen"
        raise UsageError(what, where=source, hint="leave out the other options")
    found = Trace.open(source)
    if real_path(out).is_relative_to(real_path(source)):
        raise UsageError("lies inside the source", where=out, hint="choose an -o outside")
    with TraceWriter(out, force=force) as writer, found.connect(settings.memory_limit) as con:
        for table in found.tables:
            writer.copy(table, con, f"SELECT * FROM {table}")
        if "nodes" not in found.tables:
            con.execute(f"CREATE VIEW nodes AS SELECT {_NOTHING['nodes']} WHERE false")
        if "jobs" not in found.tables:
            con.execute(f"CREATE VIEW jobs AS SELECT {_NOTHING['jobs']} WHERE false")
        if settings.partition == "day":
            writer.cut(con, [table for table in PARTITIONED_TABLES if table in found.tables])

        return writer.commit(replace(found.manifest, schema_version=SCHEMA_VERSION, tables=writer.tables()))
