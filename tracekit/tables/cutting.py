"""Cut a table into partitions: one pass in the order of the partitions, one file open at a time.

DuckDB sorts the rows, and spills to disk, so that neither many rows nor thousands of partitions take much memory.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.manifest import Partition
from tracekit.tables.parquet import checksum, columns_sql, files_sql
from tracekit.tables.partitions import key_sql, partition_path
from tracekit.tables.writing import ROW_GROUP, parquet_writer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa

__all__ = ["cut_table", "row_sql"]


def cut_table(
    con: duckdb.DuckDBPyConnection,
    table: str,
    files: Sequence[Path],
    folder: Path,
    *,
    version: str = schema.SCHEMA_VERSION,
) -> list[Partition]:
    """Write the rows of a table as partitions below `folder`, and return these in order.

    Clusters are in alphabetical order, and the days of each in order; what is unknown comes last.

    Parameters
    ----------
    con : DuckDBPyConnection
        Has the jobs as `jobs` and the machines as `nodes`, by which the rows are told apart.
    files : sequence of Path
        Where the rows are, in order.
    version : str
        Schema version of the files.
    """
    names = ", ".join(f'"{c.name}"' for c in schema.common(table).columns)
    keyed = key_sql(table, f"({row_sql(table, files, version)})", jobs="jobs", nodes="nodes")
    # Numbers are sorted faster than names.
    con.execute(
        f"""CREATE OR REPLACE TEMP TABLE part AS
        SELECT *, row_number() OVER (ORDER BY part_cluster NULLS LAST, part_day NULLS LAST) - 1 AS part
        FROM (SELECT DISTINCT part_cluster, part_day FROM ({keyed}))"""
    )
    keys = con.execute("SELECT part_cluster, part_day FROM part ORDER BY part").fetchall()
    rows = f"""SELECT {names}, part FROM ({keyed}) k JOIN part p
        ON p.part_cluster IS NOT DISTINCT FROM k.part_cluster AND p.part_day IS NOT DISTINCT FROM k.part_day
        ORDER BY part, row"""
    found = []
    for number, batches in _by_part(con.sql(rows).to_arrow_reader(ROW_GROUP)):
        cluster, day = keys[number]
        name = partition_path(table, cluster, day)
        path = folder / name
        path.parent.mkdir(parents=True)
        count = _write(table, path, batches)
        stated = None if day is None else day.isoformat()
        found.append(Partition(name, cluster, stated, count, path.stat().st_size, checksum(path)))
    con.execute("DROP TABLE part")
    return found


def row_sql(table: str, files: Sequence[Path], version: str) -> str:
    """Return the query for the rows of a table with `row`, the place of each one in the table."""
    import pyarrow.parquet as pq

    before = [0]
    for path in files[:-1]:
        before.append(before[-1] + pq.read_metadata(path).num_rows)
    place = f"file_row_number + list_extract({before}::BIGINT[], file_index::BIGINT + 1)"
    listed = f"read_parquet({files_sql(files)}, hive_partitioning = false)"
    return f"SELECT {columns_sql(table, version)}, {place} AS row FROM {listed}"


def _by_part(reader: pa.RecordBatchReader) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yield each partition's number, and its rows; they must be taken before the next one."""
    for number, pieces in itertools.groupby(_pieces(reader), key=lambda piece: piece[0]):
        yield number, (rows for _, rows in pieces)


def _pieces(reader: pa.RecordBatchReader) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of one partition at a time, with its number."""
    import numpy as np

    for batch in reader:
        parts = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        rows = batch.select(range(batch.num_columns - 1))
        starts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(parts[start]), rows.slice(start, end - start)


def _write(table: str, path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write the rows of one partition in groups of `ROW_GROUP`, and return their number."""
    import pyarrow as pa

    first = next(batches)
    held = [first]
    count: int = first.num_rows
    with parquet_writer(table, path, first.schema) as writer:
        for batch in batches:
            # Row groups as large as those of other tables, whatever the size of the pieces.
            if sum(piece.num_rows for piece in held) >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(held), row_group_size=ROW_GROUP)
                held = []
            held.append(batch)
            count += batch.num_rows
        writer.write_table(pa.Table.from_batches(held), row_group_size=ROW_GROUP)
    return count
