"""Write a Trace's Parquet files for whole tables and for tables split into partitions.

A table is split in one pass, in partition order, with one open file. DuckDB sorts the rows and spills to disk, so even
many rows and thousands of partitions need little memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.manifest import Partition
from tracekit.tables.parquet import checksum, columns_sql, files_sql
from tracekit.tables.partitions import SAMPLE_TABLES, key_sql, partition_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import date
    from pathlib import Path

    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tracekit.schema import Column

ROW_GROUP = 131_072
"""Number of rows in a row group."""

_DISTINCT = frozenset({"job_id", "name", "instance", "raw"})
"""String columns whose values rarely repeat, so a dictionary would cost time and space."""


def parquet_writer(table: str, path: Path, rows: pa.Schema) -> pq.ParquetWriter:
    """Return a writer for one table file, for rows with this Arrow schema."""
    import pyarrow.parquet as pq

    columns = schema.common(table).columns
    return pq.ParquetWriter(
        path,
        rows,
        store_schema=False,  # plain Parquet types, regardless of the rows' Arrow types
        compression="zstd",
        compression_level=1,
        write_statistics=[c.name for c in columns if c.kind != "string"],
        use_dictionary=[c.name for c in columns if _repeats(c)],
        column_encoding={c.name: e for c in columns if (e := _encoding(c)) is not None},
    )


def _encoding(column: Column) -> str | None:
    """Return a column's Parquet encoding if it has no dictionary, or None for the plain encoding.

    Times differ little from row to row. Durations differ more, and compress best with BYTE_STREAM_SPLIT.
    """
    if column.kind == "datetime":
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if column.name.endswith("_s") and column.kind == "number" else None


def _repeats(column: Column) -> bool:
    """Return whether a dictionary of the column's values pays off."""
    return column.kind != "array" and column.name not in _DISTINCT and _encoding(column) is None


@dataclass(frozen=True)
class Part:
    """The content of a future partition."""

    cluster: str | None
    day: date | None
    rows: int


def cut_table(con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], folder: Path) -> list[Partition]:
    """Write a table's rows as partitions below `folder`, and return the partitions in order.

    Clusters are in alphabetical order, and each cluster's days are in order. Unknown values come last.

    Parameters
    ----------
    con : DuckDBPyConnection
        Connection with the jobs as `jobs` and the machines as `nodes`, which determine each row's partition.
    files : sequence of Path
        Files with the rows, in order and in the current schema version.
    """
    return write_parts(con, table, files, folder, list_parts(con, table, files))


def list_parts(
    con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], *, version: str = schema.SCHEMA_VERSION
) -> list[Part]:
    """Return the partitions that `cut_table` writes, in order."""
    rows = con.execute(
        f"""SELECT part_cluster, part_day, count(*) FROM ({_keyed_sql(table, files, version)})
        GROUP BY part_cluster, part_day ORDER BY part_cluster NULLS LAST, part_day NULLS LAST"""
    ).fetchall()
    return [Part(*row) for row in rows]


def write_parts(
    con: duckdb.DuckDBPyConnection,
    table: str,
    files: Sequence[Path],
    folder: Path,
    parts: Sequence[Part],
    *,
    version: str = schema.SCHEMA_VERSION,
) -> list[Partition]:
    """Write some of a table's partitions, in order (see `cut_table`). A file does not depend on the other files."""
    import pyarrow as pa

    names = ", ".join(f'"{c.name}"' for c in schema.common(table).columns)
    keys = pa.table(
        {
            "part": pa.array(range(len(parts)), pa.int64()),
            "part_cluster": pa.array([part.cluster for part in parts], pa.string()),
            "part_day": pa.array([part.day for part in parts], pa.date32()),
        }
    )
    con.register("part_keys", keys)
    # Numbers sort faster than names.
    con.execute("CREATE OR REPLACE TEMP TABLE part AS SELECT * FROM part_keys")
    con.unregister("part_keys")
    rows = f"""SELECT {names}, part FROM ({_keyed_sql(table, files, version, parts)}) k JOIN part p
        ON p.part_cluster IS NOT DISTINCT FROM k.part_cluster AND p.part_day IS NOT DISTINCT FROM k.part_day
        ORDER BY part, row"""
    found = []
    for number, batches in _by_part(con.sql(rows).to_arrow_reader(ROW_GROUP)):
        cluster, day = parts[number].cluster, parts[number].day
        name = partition_path(table, cluster, day)
        path = folder / name
        path.parent.mkdir(parents=True)
        count = _write(table, path, batches)
        stated = None if day is None else day.isoformat()
        found.append(Partition(name, cluster, stated, count, path.stat().st_size, checksum(path)))
    con.execute("DROP TABLE part")
    return found


def _keyed_sql(table: str, files: Sequence[Path], version: str, parts: Sequence[Part] = ()) -> str:
    """Return the query for rows with `row` and their partition's keys, limited for samples to the days of `parts`."""
    rows = row_sql(table, files, version)
    days = [part.day for part in parts]
    if table in SAMPLE_TABLES and (known := [day for day in days if day is not None]) and len(known) == len(days):
        rows += f" WHERE time >= DATE '{min(known)}' AND time < DATE '{max(known)}' + INTERVAL 1 DAY"
    return key_sql(table, f"({rows})", jobs="jobs", nodes="nodes")


def row_sql(table: str, files: Sequence[Path], version: str) -> str:
    """Return the query for a table's rows with `row`, which is the row's position in the table."""
    import pyarrow.parquet as pq

    before = [0]
    for path in files[:-1]:
        before.append(before[-1] + pq.read_metadata(path).num_rows)
    place = f"file_row_number + list_extract({before}::BIGINT[], file_index::BIGINT + 1)"
    listed = f"read_parquet({files_sql(files)}, hive_partitioning = false)"
    return f"SELECT {columns_sql(table, version)}, {place} AS row FROM {listed}"


def _by_part(reader: pa.RecordBatchReader) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yield each partition's number and rows. Consume the rows before taking the next partition."""
    for number, pieces in itertools.groupby(_pieces(reader), key=lambda piece: piece[0]):
        yield number, (rows for _, rows in pieces)


def _pieces(reader: pa.RecordBatchReader) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows from one partition at a time, with its number."""
    import numpy as np

    for batch in reader:
        parts = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        rows = batch.select(range(batch.num_columns - 1))
        starts = [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(parts)]
        for start, end in itertools.pairwise(starts):
            if end > start:
                yield int(parts[start]), rows.slice(start, end - start)


def _write(table: str, path: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write one partition's rows in groups of `ROW_GROUP`, and return the number of rows."""
    first = next(batches)
    count = 0
    with parquet_writer(table, path, first.schema) as writer:
        for group in _groups(itertools.chain([first], batches)):
            writer.write_table(group, row_group_size=ROW_GROUP)
            count += group.num_rows
    return count


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield a partition's rows in full groups of one chunk, because a file must not depend on how its rows arrived."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    room = ROW_GROUP
    for batch in batches:
        rest = batch
        while rest.num_rows:
            held.append(rest.slice(0, room))
            rest = rest.slice(room)
            room -= held[-1].num_rows
            if not room:
                yield pa.Table.from_batches(held).combine_chunks()
                held, room = [], ROW_GROUP
    if held:
        yield pa.Table.from_batches(held).combine_chunks()
