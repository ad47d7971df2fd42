"""Write the Parquet files of a Trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import schema

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet as pq

    from tracekit.schema import Column

__all__ = ["ROW_GROUP", "parquet_writer"]

ROW_GROUP = 131_072
"""Number of rows in a row group."""

_DISTINCT = frozenset({"job_id", "name", "instance", "raw"})
"""Text columns whose values rarely repeat, so a dictionary would cost time and space."""


def parquet_writer(table: str, path: Path, rows: pa.Schema) -> pq.ParquetWriter:
    """Return a writer for one file of a table, for rows with this Arrow schema."""
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
    """Return the Parquet encoding of a column without a dictionary, or None for the plain encoding.

    Times hardly differ from row to row. Durations do differ, and compress best with BYTE_STREAM_SPLIT.
    """
    if column.kind == "datetime":
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if column.name.endswith("_s") and column.kind == "number" else None


def _repeats(column: Column) -> bool:
    """Return whether a dictionary of the column's values pays off."""
    return column.kind != "array" and column.name not in _DISTINCT and _encoding(column) is None
