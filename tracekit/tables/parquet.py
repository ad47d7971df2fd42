"""Read a table of a Trace from its Parquet files; all Python code reads tables here.

A table is one file, or several whose rows follow one another. Arrow decodes a file batch by batch, and each batch is
checked before it is used: a damaged file gives one error that names the table. (The reader of Polars panics and writes
to stderr; DuckDB reads the same files for SQL and raises its own errors, which `tracekit.damage` explains.)

Times outside the years 1 to 9999 are refused twice: by the statistics of the footer when a Trace is opened, since SQL
would compute with them, and in the rows that Python reads, since a footer may lack statistics or state wrong ones.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import schema
from tracekit.errors import DamagedTraceError, TracekitError
from tracekit.places import Address
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

__all__ = [
    "HINT",
    "checksum",
    "columns_fault",
    "columns_sql",
    "files_sql",
    "footer",
    "read_through",
    "require_columns",
    "scan_table",
]

HINT = "run 'tracekit validate TRACE' for details; ingest the source again"

_BATCH = 65_536
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999 [us since 1970]: outside of them Polars' conversions end in a panic that writes to stderr."""


def columns_fault(table: str, files: Sequence[Path], version: str) -> str | None:
    """Return how the columns in the footer of a file differ from those of the table, None when they do in none.

    `files` are all files of the table in order, and `version` is the schema version of the Trace, as in all functions
    here.
    """
    for path in files:
        try:
            with _opened(table, path) as file:
                fault = _difference(table, file.schema_arrow, version)
        except DamagedTraceError as error:
            return error.what
        if fault is not None:
            return fault
    return None


def columns_sql(table: str, version: str) -> str:
    """Return what SQL selects from a file of the table: its columns, and NULL for those that came after `version`."""
    spec = schema.common(table)
    have = spec.columns_of(version)
    return ", ".join(["*", *(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in spec.columns if c.name not in have)])


def files_sql(files: Sequence[Path]) -> str:
    """Return the list of files as SQL writes it, which `read_parquet` takes."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in files) + "]"


def require_columns(table: str, files: Sequence[Path], version: str) -> None:
    """Refuse files whose columns are not those of the table, or whose footer states an impossible time.

    Raises
    ------
    DamagedTraceError
        A column is missing, unknown, out of order or of another type, or the file cannot be read.
    """
    for path in files:
        with _opened(table, path) as file:
            fault = _difference(table, file.schema_arrow, version) or _time_fault(file)
        if fault is not None:
            raise DamagedTraceError(fault, where=_place(table, path), hint=HINT)


def footer(table: str, path: Path) -> Any:
    """Return what the footer of a file states, as Arrow reads it.

    Raises
    ------
    DamagedTraceError
        The file cannot be read.
    """
    with _opened(table, path) as file:
        return file.metadata


def scan_table(table: str, files: Sequence[Path], version: str) -> pl.LazyFrame:
    """Return the table as a lazy frame; problems of a file are raised when its rows are read.

    Columns that came later than `version` are NULL.

    Raises
    ------
    DamagedTraceError
        When the rows are collected: a part of the file cannot be decoded, is not valid text, or is an impossible time.
    """
    from polars.io.plugins import register_io_source

    types = schema.common(table).polars
    have = schema.common(table).columns_of(version)

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # Without a column there would be nothing to count the rows by.
        names = list(types) if with_columns is None else with_columns or list(types)[:1]
        stored = [name for name in names if name in have] or [have[0]]
        left = n_rows
        if not files:
            yield pl.DataFrame(schema={name: types[name] for name in names})
        for path, batch in _batches(table, files, stored, version, batch_size or _BATCH):
            frame = pl.DataFrame(batch, schema={name: types[name] for name in stored})
            later = [pl.lit(None, dtype=types[name]).alias(name) for name in names if name not in have]
            frame = frame.with_columns(later).select(names)
            _require_dates(table, path, frame)
            frame = frame if left is None else frame.head(left)
            left = None if left is None else left - frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    return register_io_source(read, schema=types, explain_name=table)


def _require_dates(table: str, path: Path, frame: pl.DataFrame) -> None:
    for column in frame.iter_columns():
        if column.dtype.base_type() is pl.Datetime:
            times = column.to_physical()
            if not times.is_between(_FIRST_US, _LAST_US).fill_null(value=True).all():
                what = f"the table {table} has a time in {column.name} that is in none of the years 1 to 9999"
                raise DamagedTraceError(what, where=_place(table, path), hint=HINT)


def read_through(table: str, files: Sequence[Path], version: str) -> int:
    """Decode every column of every row, and return the number of rows.

    Raises
    ------
    DamagedTraceError
        A part of a file cannot be decoded, or is not valid text.
    """
    columns = list(schema.common(table).columns_of(version))
    return sum(batch.num_rows for _, batch in _batches(table, files, columns, version, _BATCH))


def _place(table: str, path: Path) -> Path:
    """Return where an error is: the Trace of a table that is one file, or the file."""
    return path.parent if path.name == f"{table}.parquet" else path


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _batches(
    table: str, files: Sequence[Path], columns: list[str], version: str, size: int
) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """Yield the rows with these columns, in this order, each batch with the file that it comes from."""
    for path in files:
        with _opened(table, path) as file:
            fault = _difference(table, file.schema_arrow, version)
            if fault is not None:
                raise DamagedTraceError(fault, where=_place(table, path), hint=HINT)
            batches = file.iter_batches(batch_size=size, columns=columns)
            while (batch := _next(batches, table, path)) is not None:
                yield path, batch.select(columns)


def _next(batches: Iterator[pa.RecordBatch], table: str, path: Path) -> pa.RecordBatch | None:
    with _decoding(table, path):
        batch = next(batches, None)
        if batch is not None:
            # Lengths, offsets and UTF-8, which later readers rely on.
            batch.validate(full=True)
        return batch


@contextmanager
def _opened(table: str, path: Path) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with _decoding(table, path):
        # Reading ahead would keep the bytes in memory.
        file = pq.ParquetFile(_source(path), pre_buffer=False)
    with file:
        yield file


def _source(path: Path) -> Any:
    """Return what Arrow reads a file from."""
    if not isinstance(path, Address):
        return path
    from tracekit.places.reader import ObjectReader

    return ObjectReader(path)


@contextmanager
def _decoding(table: str, path: Path) -> Iterator[None]:
    """Raise one error for any exception of the decoder at a damaged file."""
    try:
        yield
    except TracekitError:  # of a store
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        what = f"the table {table} cannot be read: {reason[:300].rstrip('.')}"
        raise DamagedTraceError(what, where=_place(table, path), hint=HINT) from error


def _difference(table: str, found: pa.Schema, version: str) -> str | None:
    """Return how the columns differ from those of the table, as a sentence without a stop; None when they do not."""
    spec = schema.common(table)
    names = spec.columns_of(version)
    have = dict(zip(found.names, found.types, strict=True))
    if len(have) != len(found.names):
        return f"the table {table} has a column twice"
    differ = [c.name for c in spec.columns if c.name in have and not _is_kind(have[c.name], c.kind, c.item)]
    parts = [
        f"{word} {', '.join(shorten(name) for name in names[:10])}"
        for word, names in (
            ("lacks", [n for n in names if n not in have]),
            ("has unknown", [n for n in have if n not in names]),
            ("has other types in", differ),
        )
        if names
    ]
    if not parts and tuple(have) != names:
        parts = ["has its columns in another order"]
    return f"the table {table} {'; '.join(parts)}" if parts else None


def _time_fault(file: Any) -> str | None:
    """Return which column has a time outside the years 1 to 9999, by its minimum and maximum in the footer."""
    times = {field.name for field in file.schema_arrow if str(field.type).startswith("timestamp[")}
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    for column in (group.column(index) for group in groups for index in range(group.num_columns)):
        found = column.statistics
        if column.path_in_schema not in times or found is None or not found.has_min_max:
            continue
        if not _FIRST_US <= found.min_raw <= found.max_raw <= _LAST_US:
            return f"{column.path_in_schema} has a time in none of the years 1 to 9999"
    return None


def _is_kind(found: pa.DataType, kind: str, item: str | None) -> bool:
    """Return whether an Arrow type is the type of a kind of column."""
    import pyarrow.types as at

    if kind == "array":
        return bool(at.is_list(found) or at.is_large_list(found)) and _is_kind(found.value_type, item or "string", None)
    if kind == "datetime":
        return bool(at.is_timestamp(found)) and found.unit == "us" and found.tz is None
    checks = {
        "string": lambda t: at.is_string(t) or at.is_large_string(t) or at.is_string_view(t),
        "integer": at.is_int64,
        "number": at.is_float64,
        "boolean": at.is_boolean,
        "date": at.is_date32,
    }
    return bool(checks[kind](found))
