"""Store a Trace's tables as single files or partitions, at the end of an ingest or for an existing Trace."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from tracekit.databases import connect_duckdb
from tracekit.errors import SourceError, UsageError, nearest
from tracekit.ingest.file_tasks import Task, finished, require_seen, task_folder
from tracekit.ingest.sink import join_errors, no_rows
from tracekit.outputs import output_errors, real_path
from tracekit.schema import SCHEMA_VERSION
from tracekit.settings import IngestSettings
from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import JOB_TABLES, PARTITIONED_TABLES, SAMPLE_TABLES, is_large
from tracekit.tables.writing import Part, cut_table, list_parts, write_parts
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.manifest import Manifest, Partition, TableInfo


# Split sample tables into partitions. If there are workers, each task writes some of one cluster's partitions.
#
# A task reads the days of its partitions from the whole table, writes the partition files next to the new Trace, and
# returns their names. This process moves the files into place, in order. Files of a lost machine are never moved. Every
# file is byte for byte what this process would have written.

TASK_ROWS = 2_000_000
"""Maximum number of rows for a task with several partitions, which is a few seconds of work."""


def _nodes_sql(path: Path) -> str:
    """Return the query for the machine columns needed for the split, even if the table does not exist."""
    if not path.is_file():
        return "SELECT NULL::VARCHAR AS node_id, NULL::VARCHAR AS cluster WHERE false"
    return f"SELECT node_id, cluster FROM read_parquet({files_sql([path])}, hive_partitioning = false)"


def _cut(
    sink: Sink, con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], folder: Path
) -> list[Partition]:
    if sink.workers is None or table not in SAMPLE_TABLES:
        return cut_table(con, table, files, folder)
    groups = list(_groups(list_parts(con, table, files)))
    if len(groups) < 2:  # tasks would save no time
        return cut_table(con, table, files, folder)
    work = _CutTask(
        task_folder(sink, "cut"), sink.writer.target, sink.memory_limit, table, tuple(files), sink.path("nodes")
    )
    found: list[Partition] = []
    with closing(finished(sink.workers, work, groups)) as done:
        for number, made in enumerate(done):
            sink.progress.stage(f"splitting {table} into days: {number + 1} of {len(groups)} tasks are done")
            for partition in made.result:
                path, goal = work.folder / made.name / partition.path, folder / partition.path
                require_seen(path, partition.bytes, made.host, work.shown)
                goal.parent.mkdir(parents=True)
                path.replace(goal)
            found += made.result
    return found


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    """Yield each task's partitions: adjacent ones of one cluster, because their days are adjacent."""
    for _, some in groupby(parts, lambda part: (part.cluster, part.day is None)):
        group: list[Part] = []
        for part in some:
            if group and sum(p.rows for p in group) + part.rows > TASK_ROWS:
                yield group
                group = []
            group.append(part)
        yield group


@dataclass(frozen=True)
class _CutTask(Task[list[Part], "list[Partition]"]):
    """Writes some partitions of a table."""

    table: str
    files: tuple[Path, ...]
    nodes: Path

    def work(self, item: list[Part], place: Path) -> list[Partition]:
        """Write partitions."""
        with join_errors(self.shown), output_errors(self.shown), connect_duckdb(self.memory_limit) as con:
            place.mkdir()
            con.execute("SET threads = 1")  # one thread, because a task has one core
            con.execute(f"CREATE VIEW nodes AS {_nodes_sql(self.nodes)}")
            return write_parts(con, self.table, self.files, place, item)


_LAYOUTS = ("day", "none", "auto")


def require_layout(layout: str) -> None:
    """Check that the layout exists.

    Raises
    ------
    UsageError
        The layout is not day, none or auto.
    """
    if layout not in _LAYOUTS:
        hint = nearest(layout, _LAYOUTS) or "day, none or auto"
        raise UsageError(f"the layout '{layout}' does not exist", where="--partition", hint=hint)


def lay_out(sink: Sink, layout: str, earlier: Manifest | None) -> None:
    """Split the finished tables of an ingest into partitions if the user asks for it or the tables are large.

    Parameters
    ----------
    layout : str
        day, none or auto.
    earlier : Manifest, optional
        Manifest of the Trace being appended to. With auto, tables that are already partitioned stay partitioned.
    """
    before = earlier.tables if earlier is not None else {}
    tables = _to_cut(sink.writer.tables(), layout, before)
    if not tables:
        return
    sink.progress.stage("splitting tables into days")
    with sink.connect() as con:
        # Split only the jobs written now. All other partitions stay unchanged.
        sink.attach(con, "jobs", "nodes")
        sink.writer.cut(con, tables, partial(_cut, sink))


def _to_cut(tables: Mapping[str, TableInfo], layout: str, before: Mapping[str, TableInfo]) -> list[str]:
    """Return the tables to split. The job tables are split together, and each sample table is split alone."""
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
    """Rewrite a Trace with its tables as single files or as partitions, with the same rows and record counts.

    Raises
    ------
    SourceError
        No layout is requested.
    UsageError
        A setting is given that applies only to logs.
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
        for table in {"jobs", "nodes"} - set(found.tables):
            con.execute(f"CREATE VIEW {table} AS {no_rows(table)}")
        if settings.partition == "day":
            writer.cut(con, [table for table in PARTITIONED_TABLES if table in found.tables])
        return writer.commit(replace(found.manifest, schema_version=SCHEMA_VERSION, tables=writer.tables()))
