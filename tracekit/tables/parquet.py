"""Read a table of a Trace from its Parquet files; all Python code reads tables here.

A table is one file, or several whose rows follow one another. DuckDB reads the footers, since Arrow ends the process at
some damaged ones. Arrow decodes the rows batch by batch, and each batch is checked before it is used: a damaged file
gives one error that names the table. (The reader of Polars panics and writes to stderr; DuckDB reads the same files for
SQL and raises its own errors, which `tracekit.damage` explains.)

Times outside the years 1 to 9999 are refused twice: by the statistics of the footer when a Trace is opened, since SQL
would compute with them, and in the rows that Python reads, since a footer may lack statistics or state wrong ones.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import schema
from tracekit.databases import sql_text
from tracekit.errors import DamagedTraceError, TracekitError
from tracekit.places import Address, failure_behind
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import pyarrow as pa

__all__ = [
    "HINT",
    "NO_YEAR",
    "checksum",
    "columns_sql",
    "files_sql",
    "filled_columns",
    "footers_fault",
    "read_through",
    "require_footers",
    "rows_stated",
    "scan_table",
    "stated_time",
]

HINT = "run 'tracekit validate TRACE' for details; ingest the source again"

NO_YEAR = "has a time in none of the years 1 to 9999"
"""What is wrong with a column by the statistics of a footer."""

_BATCH = 65_536
_OTHER = "the table {} has other columns than when it was opened"


def footers_fault(
    con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path], version: str
) -> tuple[str | None, str | None]:
    """Return why a Trace with these files of a table cannot be opened (see `require_footers`); None if it can.

    The second value is the column with an impossible time in a footer, as `stated_time` returns it.
    `files` are all files of the table in order, and `version` is the schema version of the Trace, as in all functions
    here.
    """
    try:
        found, times = _columns(con, {table: files}), _impossible_times(con, {table: files})
    except DamagedTraceError as error:
        return error.what, None
    fault = next(filter(None, (_difference(table, found[str(path)], version) for path in files)), None)
    return fault, next(iter(times.values()), None)


def stated_time(con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path]) -> str | None:
    """Return a column with a time outside the years 1 to 9999 in the footer of a file; None if there is none.

    Raises
    ------
    DamagedTraceError
        A footer cannot be read.
    """
    return next(iter(_impossible_times(con, {table: files}).values()), None)


def columns_sql(table: str, version: str) -> str:
    """Return what SQL selects from a file of the table: its columns, and NULL for those that came after `version`."""
    spec = schema.common(table)
    have = spec.columns_of(version)
    return ", ".join(["*", *(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in spec.columns if c.name not in have)])


def files_sql(files: Sequence[Path]) -> str:
    """Return the list of files as SQL writes it, which `read_parquet` takes."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in files) + "]"


def require_footers(con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], version: str) -> None:
    """Refuse files whose columns are not those of their table, or whose footer states an impossible time.

    Raises
    ------
    DamagedTraceError
        A column is missing, unknown, out of order or of another type, or the file cannot be read.
    """
    found, times = _columns(con, tables), _impossible_times(con, tables)
    for table, files in tables.items():
        for path in files:
            fault = _difference(table, found[str(path)], version)
            if fault is None and str(path) in times:
                fault = f"{times[str(path)]} {NO_YEAR}"
            if fault is not None:
                raise DamagedTraceError(fault, where=_place(table, path), hint=HINT)


def rows_stated(con: duckdb.DuckDBPyConnection, table: str, path: Path) -> int:
    """Return how many rows the footer of a file states.

    Raises
    ------
    DamagedTraceError
        The footer cannot be read.
    """
    query = "SELECT num_rows FROM parquet_file_metadata({files})"
    rows: int = _footers(con, query, {table: [path]})[0][0]
    return rows


def filled_columns(con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path]) -> frozenset[str]:
    """Return the columns of a table that hold any value by the statistics of the footers; unknown ones may hold some.

    Raises
    ------
    DamagedTraceError
        A footer cannot be read.
    """
    query = """SELECT DISTINCT path_in_schema FROM parquet_metadata({files})
    WHERE stats_null_count IS NULL OR stats_null_count < row_group_num_rows"""
    return frozenset(name for (name,) in _footers(con, query, {table: files}))


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
        for path, batch in _batches(table, files, stored, batch_size or _BATCH):
            frame = pl.DataFrame(batch)
            if frame.schema != {name: types[name] for name in stored}:
                raise DamagedTraceError(_OTHER.format(table), where=_place(table, path), hint=HINT)
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
            # Outside of these years Polars' conversions end in a panic that writes to stderr.
            if not times.is_between(schema.FIRST_US, schema.LAST_US).fill_null(value=True).all():
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
    return sum(batch.num_rows for _, batch in _batches(table, files, columns, _BATCH))


def _place(table: str, path: Path) -> Path:
    """Return where an error is: the Trace of a table that is one file, or the file."""
    return path.parent if path.name == f"{table}.parquet" else path


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _batches(table: str, files: Sequence[Path], columns: list[str], size: int) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """Yield the rows with these columns, in this order, each batch with the file that it comes from."""
    for path in files:
        with _opened(table, path) as file:
            if not set(columns) <= set(file.schema_arrow.names):
                raise DamagedTraceError(_OTHER.format(table), where=_place(table, path), hint=HINT)
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
        raise _unreadable(table, path, error) from error


def _unreadable(table: str, path: Path, error: Exception) -> DamagedTraceError:
    reason = " ".join(str(error).split()) or type(error).__name__
    what = f"the table {table} cannot be read: {reason[:300].rstrip('.')}"
    return DamagedTraceError(what, where=_place(table, path), hint=HINT)


def _footers(con: duckdb.DuckDBPyConnection, query: str, tables: Mapping[str, Sequence[Path]]) -> list[tuple[Any, ...]]:
    """Return the rows of a query over the footers of all files, which it calls {files}.

    Raises
    ------
    DamagedTraceError
        A footer cannot be read.
    """
    import duckdb

    files = [(table, path) for table, paths in tables.items() for path in paths]
    if not files:
        return []
    try:
        return con.execute(query.format(files=files_sql([path for _, path in files]))).fetchall()
    except duckdb.Error as error:
        if (failure := failure_behind(error)) is not None:
            raise failure from error
        if len(files) == 1:
            raise _unreadable(*files[0], error) from error
    return [row for table, path in files for row in _footers(con, query, {table: [path]})]  # which finds the bad one


def _columns(con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]]) -> dict[str, list[tuple[str, str]]]:
    """Return for each file the names and SQL types of its columns, in order.

    DuckDB calls a time in milliseconds TIMESTAMP, too; only one in microseconds is the type of the schema.
    """
    query = """SELECT file_name, name, coalesce(num_children, 0), CASE
        WHEN duckdb_type <> 'TIMESTAMP' OR type = 'INT64' AND contains(logical_type, 'MICROS=MicroSeconds()')
        THEN duckdb_type ELSE 'another' END
    FROM parquet_schema({files})"""
    found: dict[str, list[tuple[str, str]]] = {str(path): [] for paths in tables.values() for path in paths}
    parts_left: dict[str, int] = {}  # of the column before, each of which has a row of its own
    for file, name, parts, kind in _footers(con, query, tables):
        if file not in parts_left:  # the root
            parts_left[file] = 0
        elif parts_left[file]:
            parts_left[file] += parts - 1
        else:
            found[file].append((name, kind))
            parts_left[file] = parts
    return found


def _impossible_times(con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]]) -> dict[str, str]:
    """Return which column of which file has a time outside the years 1 to 9999, by its minimum and maximum."""
    times = {c.name for table in tables for c in schema.common(table).columns if c.kind == "datetime"}
    query = f"""SELECT file_name, path_in_schema FROM (
        SELECT file_name, path_in_schema, unnest([coalesce(stats_min_value, stats_min),
            coalesce(stats_max_value, stats_max)]) AS edge
        FROM parquet_metadata({{files}}) WHERE path_in_schema IN ({", ".join(map(sql_text, sorted(times)))})
    ) WHERE edge IS NOT NULL AND coalesce(NOT TRY_CAST(edge AS TIMESTAMP)
        BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999', true)"""
    return dict(_footers(con, query, tables))


def _difference(table: str, found: Sequence[tuple[str, str]], version: str) -> str | None:
    """Return how the columns differ from those of the table, as a sentence without a stop; None when they do not."""
    spec = schema.common(table)
    names = spec.columns_of(version)
    have = dict(found)
    if len(have) != len(found):
        return f"the table {table} has a column twice"
    differ = [c.name for c in spec.columns if c.name in have and have[c.name] != c.sql]
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
