"""Whether a table of a Trace is one file or partitions: at the end of an ingest, or of a Trace that is there."""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import uuid4

from tracekit.databases import connect_duckdb
from tracekit.errors import OutputError, SourceError, TracekitError, UsageError, nearest
from tracekit.ingest.file_tasks import SHARE, unfit
from tracekit.ingest.sink import join_errors
from tracekit.outputs import output_errors, real_path
from tracekit.schema import SCHEMA_VERSION
from tracekit.settings import IngestSettings
from tracekit.tables.cutting import Part, cut_table, list_parts, write_parts
from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import JOB_TABLES, PARTITIONED_TABLES, SAMPLE_TABLES, is_large
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.manifest import Manifest, Partition, TableInfo
    from tracekit.trace_writer import Cutter


# Cut tables of samples into partitions: some partitions of one cluster in each task of other machines.
#
# A task reads the days of its partitions from the whole table, writes their files beside the Trace that is made, and
# says which; this process moves them to their place, in order. What a lost machine has begun is never moved. Each
# file is the one that this process would have written, byte for byte.

TASK_ROWS = 2_000_000
"""Rows of several partitions that one task takes, at most: some seconds of work."""


def _nodes_sql(path: Path) -> str:
    """Return the query for what cutting has to know of the machines, whose table may not be there."""
    if not path.is_file():
        return "SELECT NULL::VARCHAR AS node_id, NULL::VARCHAR AS cluster WHERE false"
    return f"SELECT node_id, cluster FROM read_parquet({files_sql([path])}, hive_partitioning = false)"


def cutter(sink: Sink) -> Cutter | None:
    """Return what cuts a table by the workers; None where there are none, so that this process does."""
    return None if sink.workers is None else partial(_cut, sink)


def _cut(
    sink: Sink, con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], folder: Path
) -> list[Partition]:
    if sink.workers is None or table not in SAMPLE_TABLES:
        return cut_table(con, table, files, folder)
    groups = list(_groups(list_parts(con, table, files)))
    if len(groups) < 2:  # nobody gains
        return cut_table(con, table, files, folder)
    place, target = sink.writer.scratch / "cut", sink.writer.target
    place.mkdir(exist_ok=True)
    work = _CutTask(table, tuple(files), sink.folder / "nodes.parquet", place, target, sink.memory_limit)
    found: list[Partition] = []
    with closing(sink.workers.in_order(work, groups)) as done:
        for number, made in enumerate(done):
            sink.progress.stage(f"cutting {table} into days: {number + 1} of {len(groups)} tasks are done")
            if isinstance(made, TracekitError):
                raise made
            for partition in made.partitions:
                _move(place / made.name, partition, folder, made.host, target)
            found += made.partitions
    return found


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    """Yield the partitions of each task: neighbours, of one cluster, so that their days are neighbours too."""
    for _, some in groupby(parts, lambda part: (part.cluster, part.day is None)):
        group: list[Part] = []
        for part in some:
            if group and sum(p.rows for p in group) + part.rows > TASK_ROWS:
                yield group
                group = []
            group.append(part)
        yield group


def _move(place: Path, partition: Partition, folder: Path, host: str, target: Path) -> None:
    path, goal = place / partition.path, folder / partition.path
    if not path.is_file() or path.stat().st_size != partition.bytes:
        raise OutputError(f"this machine cannot see the files that {host} wrote", where=target, hint=SHARE)
    goal.parent.mkdir(parents=True)
    path.replace(goal)


@dataclass(frozen=True)
class _Cut:
    """What a task has written."""

    name: str
    partitions: list[Partition]
    host: str


@dataclass(frozen=True)
class _CutTask:
    """Writes some partitions of a table, on any machine; an error that is no fault of the machine's is returned."""

    table: str
    files: tuple[Path, ...]
    nodes: Path
    place: Path
    shown: Path
    """The folder of the Trace, in messages."""
    memory_limit: str
    version: str = __version__

    def __call__(self, parts: list[Part]) -> _Cut | TracekitError:
        if (fault := unfit(self.version, self.place, self.shown)) is not None:
            return fault
        folder = self.place / uuid4().hex
        try:
            with (
                join_errors(self.shown),
                output_errors(self.shown),
                connect_duckdb(self.memory_limit) as con,
            ):
                folder.mkdir()
                con.execute("SET threads = 1")  # as many as a task has
                con.execute(f"CREATE VIEW nodes AS {_nodes_sql(self.nodes)}")
                written = write_parts(con, self.table, self.files, folder, parts)
            return _Cut(folder.name, written, socket.gethostname())
        except TracekitError as error:
            return error


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
        raise UsageError(f"the layout '{layout}' does not exist", where="--partition", hint=hint)


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
            "is already a Trace",
            where=source,
            hint="use it unchanged, name the raw files, or change its layout with --partition day or none",
        )
    plain = IngestSettings(partition=settings.partition, memory_limit=settings.memory_limit)
    if append or plain != replace(settings, options=settings.options or None):
        what = "is a Trace, which only allows --partition and --memory-limit"
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
