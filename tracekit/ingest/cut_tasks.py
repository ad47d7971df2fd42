"""Cut tables of samples into partitions: some partitions of one cluster in each task of other machines.

A task reads the days of its partitions from the whole table, writes their files beside the Trace that is made, and says
which; this process moves them to their place, in order. What a lost machine has begun is never moved. Each file is the
one that this process would have written, byte for byte.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import uuid4

from tracekit.databases import connect_duckdb
from tracekit.errors import OutputError, TracekitError
from tracekit.ingest.file_tasks import SHARE, unfit
from tracekit.ingest.join_errors import join_errors
from tracekit.outputs import output_errors
from tracekit.tables.cutting import Part, cut_table, list_parts, write_parts
from tracekit.tables.parquet import files_sql
from tracekit.tables.partitions import SAMPLE_TABLES
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.manifest import Partition
    from tracekit.trace_writer import Cutter

__all__ = ["cutter"]

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
        raise OutputError(f"what {host} wrote is not to be seen here", where=target, hint=SHARE)
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
