"""Read a Trace's tables from their Parquet files. All Python code reads tables through this module.

A table is one file or several in order. DuckDB reads the footers, because some damaged footers make Arrow end the
process. Arrow decodes the rows in batches, which are checked before use, so a damaged file gives one error that names
the table (Polars's reader would panic and write to stderr). DuckDB reads the same files for SQL and raises its own
errors, which `tracekit.damage` explains.

Times outside the years 1 to 9999 are rejected twice: in the footers' statistics when a Trace is opened, because SQL
would compute with these times, and in the rows that Python reads, because the statistics may be missing or wrong.
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

HINT = "run 'tracekit validate TRACE' for details; ingest the source again"

NO_YEAR = "has a time outside the years 1 to 9999"
"""A column's problem according to a footer's statistics."""

_BATCH = 65_536
_OTHER = "the columns of the table {} have changed since it was opened"


def footers_faults(
    con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], version: str
) -> dict[str, tuple[str | None, str | None]]:
    """Return each table's fault in the footers and a column with an impossible time, or None if there is none.

    A Trace with one of these faults cannot be opened (see `require_footers`). A time outside the years 1 to 9999 is
    impossible. `tables` lists all files of each table in order, and `version` is the Trace's schema version, as in all
    functions of this module.
    """
    try:
        found, times = _columns(con, tables), _impossible_times(con, tables)
    except DamagedTraceError as error:
        if len(tables) == 1:
            return dict.fromkeys(tables, (error.what, None))
        return {
            table: fault
            for one, files in tables.items()
            for table, fault in footers_faults(con, {one: files}, version).items()
        }
    return {
        table: (
            next(filter(None, (_difference(table, found[str(path)], version) for path in files)), None),
            next((times[str(path)] for path in files if str(path) in times), None),
        )
        for table, files in tables.items()
    }


def columns_sql(table: str, version: str) -> str:
    """Return the SQL select list for a table file, with its columns, and NULL for columns added after `version`."""
    spec = schema.common(table)
    have = spec.columns_of(version)
    return ", ".join(["*", *(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in spec.columns if c.name not in have)])


def files_sql(files: Sequence[Path]) -> str:
    """Format the list of files in SQL syntax, for `read_parquet`."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in files) + "]"


def require_footers(con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], version: str) -> None:
    """Reject files whose columns differ from their table's, or whose footer contains an impossible time.

    Raises
    ------
    DamagedTraceError
        A column is missing, unknown, out of order or of the wrong type, or the file cannot be read.
    """
    found, times = _columns(con, tables), _impossible_times(con, tables)
    for table, files in tables.items():
        for path in files:
            fault = _difference(table, found[str(path)], version)
            if fault is None and str(path) in times:
                fault = f"{times[str(path)]} {NO_YEAR}"
            if fault is not None:
                raise DamagedTraceError(fault, where=_place(table, path), hint=HINT)


def rows_stated(con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path]) -> dict[str, int]:
    """Return each file's number of rows according to its footer, by path.

    Raises
    ------
    DamagedTraceError
        A footer cannot be read.
    """
    return dict(_footers(con, "SELECT file_name, num_rows FROM parquet_file_metadata({files})", {table: files}))


def filled_columns(con: duckdb.DuckDBPyConnection, table: str, files: Sequence[Path]) -> frozenset[str]:
    """Return a table's columns that have a value, or no statistics, according to the footers.

    Raises
    ------
    DamagedTraceError
        A footer cannot be read.
    """
    query = """SELECT DISTINCT path_in_schema FROM parquet_metadata({files})
    WHERE stats_null_count IS NULL OR stats_null_count < row_group_num_rows"""
    return frozenset(name for (name,) in _footers(con, query, {table: files}))


def scan_table(table: str, files: Sequence[Path], version: str) -> pl.LazyFrame:
    """Return the table as a lazy frame. Errors in a file are raised when its rows are read.

    Columns added after `version` are NULL.

    Raises
    ------
    DamagedTraceError
        Raised when the rows are collected, if a part of the file cannot be decoded, is not valid text, or is an
        impossible time.
    """
    from polars.io.plugins import register_io_source

    types = schema.common(table).polars
    have = schema.common(table).columns_of(version)

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        # Without at least one column, the rows could not be counted.
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
            # Outside these years, Polars panics and writes to stderr.
            if not times.is_between(schema.FIRST_US, schema.LAST_US).fill_null(value=True).all():
                what = f"the table {table} has a time in {column.name} outside the years 1 to 9999"
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
    """Return the location of an error: the Trace if the table is one file, or else the file."""
    return path.parent if path.name == f"{table}.parquet" else path


def checksum(path: Path) -> str:
    """Compute a file's SHA-256."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _batches(table: str, files: Sequence[Path], columns: list[str], size: int) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """Yield batches of rows with these columns, in this order, each with its file."""
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
            # Check lengths, offsets and UTF-8, because later readers rely on them.
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
    """Return the object through which Arrow reads a file."""
    if not isinstance(path, Address):
        return path
    from tracekit.places.reader import ObjectReader

    return ObjectReader(path)


@contextmanager
def _decoding(table: str, path: Path) -> Iterator[None]:
    """Raise the same type of error for any decoder exception on a damaged file."""
    try:
        yield
    except TracekitError:  # raised by a store
        raise
    except Exception as error:
        raise _unreadable(table, path, error) from error


def _unreadable(table: str, path: Path, error: Exception) -> DamagedTraceError:
    reason = " ".join(str(error).split()) or type(error).__name__
    what = f"the table {table} cannot be read: {reason[:300].rstrip('.')}"
    return DamagedTraceError(what, where=_place(table, path), hint=HINT)


def _footers(con: duckdb.DuckDBPyConnection, query: str, tables: Mapping[str, Sequence[Path]]) -> list[tuple[Any, ...]]:
    """Run a query over the footers of all files, which the query calls {files}, and return its rows.

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
    return [row for table, path in files for row in _footers(con, query, {table: [path]})]  # this finds the bad file


def _columns(con: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]]) -> dict[str, list[tuple[str, str]]]:
    """Return, for each file, the names and SQL types of its columns, in order.

    DuckDB also calls a time in milliseconds TIMESTAMP, but only a time in microseconds has the schema's type.
    """
    query = """SELECT file_name, name, coalesce(num_children, 0), CASE
        WHEN duckdb_type <> 'TIMESTAMP' OR type = 'INT64' AND contains(logical_type, 'MICROS=MicroSeconds()')
        THEN duckdb_type ELSE 'another' END
    FROM parquet_schema({files})"""
    found: dict[str, list[tuple[str, str]]] = {str(path): [] for paths in tables.values() for path in paths}
    parts_left: dict[str, int] = {}  # parts of the previous column, each with its own row
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
    """Return, for each file, a column whose minimum or maximum is a time outside the years 1 to 9999."""
    times = {c.name for table in tables for c in schema.common(table).columns if c.kind == "datetime"}
    query = f"""SELECT file_name, path_in_schema FROM (
        SELECT file_name, path_in_schema, unnest([coalesce(stats_min_value, stats_min),
            coalesce(stats_max_value, stats_max)]) AS edge
        FROM parquet_metadata({{files}}) WHERE path_in_schema IN ({", ".join(map(sql_text, sorted(times)))})
    ) WHERE edge IS NOT NULL AND coalesce(NOT TRY_CAST(edge AS TIMESTAMP)
        BETWEEN TIMESTAMP '0001-01-01' AND TIMESTAMP '9999-12-31 23:59:59.999999', true)"""
    return dict(_footers(con, query, tables))


def _difference(table: str, found: Sequence[tuple[str, str]], version: str) -> str | None:
    """Describe the differences from the table's columns without a full stop, or return None if there are none."""
    spec = schema.common(table)
    names = spec.columns_of(version)
    have = dict(found)
    if len(have) != len(found):
        return f"the table {table} has a repeated column"
    differ = [c.name for c in spec.columns if c.name in have and have[c.name] != c.sql]
    parts = [
        f"{word} {', '.join(shorten(name) for name in names[:10])}"
        for word, names in (
            ("has no", [n for n in names if n not in have]),
            ("has unknown", [n for n in have if n not in names]),
            ("has the wrong types in", differ),
        )
        if names
    ]
    if not parts and tuple(have) != names:
        parts = ["has its columns in a different order"]
    return f"the table {table} {'; '.join(parts)}" if parts else None
