"""The default engine: DuckDB in this process."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from tracekit.characterize.engines.interface import Engine
from tracekit.characterize.limits import limited_memory
from tracekit.databases import Database, Streamed
from tracekit.errors import QueryError
from tracekit.outputs import full_disk
from tracekit.places import failure_behind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb
    import polars as pl
    from duckdb.sqltypes import DuckDBPyType

    from tracekit.answer import Value
    from tracekit.characterize.engines.interface import Asked
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.trace import Trace


class DuckdbEngine(Engine):
    """DuckDB on the files of the Trace; timelines are computed in Python."""

    name = "duckdb"

    def check(self, query: Query, *, locked: bool) -> None:
        """Accept every query. If DuckDB cannot run one, it fails later with DuckDB's message."""

    def timeline(
        self,
        con: duckdb.DuckDBPyConnection,
        trace: Trace,  # noqa: ARG002 -- the connection has the tables
        empty: frozenset[str],  # noqa: ARG002 -- the same
        timeline: TimelineTable,
        params: Mapping[str, Value],
    ) -> TimelineRows:
        """Compute a timeline in this process."""
        import duckdb

        try:
            return timeline.compute(con, params)
        except (duckdb.OutOfMemoryException, MemoryError) as error:
            raise full_disk(error) or _out_of_memory(f"timeline {timeline.name}") from error

    def rows(self, asked: Asked) -> pl.DataFrame:
        """Run the SQL in this process."""
        return rows_of(asked)


def rows_of(asked: Asked, *, limit: int | None = None) -> pl.DataFrame:
    """Return the rows of a query, at most `limit` of them.

    Raises
    ------
    QueryError
        The SQL fails, its result is too large, or two of its columns have the same name.
    """
    import duckdb
    import polars as pl

    con, query, values = asked.con, asked.query, dict(asked.values)
    try:
        if asked.limits.rows is None and asked.limits.memory is None:
            found = _readable(con.sql(query.sql, params=values or None), query)
            # Polars reads rows through Arrow's interface without importing Arrow; DuckDB's own `pl()` imports it.
            frame = pl.DataFrame(found if limit is None else found.limit(limit))
        else:
            frame = _limited_frame(asked, limit)
        frame = _with_dates(frame)
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise full_disk(error) or _out_of_memory(query.path) from error
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        tables = f"the trace has the tables {', '.join(asked.trace.tables)}"
        hint = tables if isinstance(error, duckdb.CatalogException) and not query.shipped else None
        raise sql_error(_with_line(con, query, values, error), query, hint) from error
    except duckdb.PermissionException as error:
        raise sql_error(error, query, "it runs in the sandbox, which can only read the Trace's tables") from error
    except duckdb.Error as error:
        raise failure_behind(error) or full_disk(error) or sql_error(error, query) from error
    except (pl.exceptions.ComputeError, OSError) as error:
        raise _in_stream(error, query) from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB caught Python's KeyboardInterrupt and dropped it
            raise KeyboardInterrupt from error
        raise
    return frame


_OUT_OF_MEMORY = "Out of Memory Error"
"""Start of DuckDB's message when it runs out of memory."""


def _out_of_memory(where: str | Path) -> QueryError:
    return QueryError("ran out of memory", where=where, hint="raise --memory-limit")


def _in_stream(error: Exception, query: Query) -> Exception:
    """Return the DuckDB error behind an error of the row reader, which keeps DuckDB's message but not its class."""
    text = str(error).removeprefix("got external error: ")
    if (full := full_disk(error)) is not None:
        return full
    if text.startswith(_OUT_OF_MEMORY):
        return _out_of_memory(query.path)
    return failure_behind(error) or QueryError(text.partition("\n")[0], where=query.path)


_TEXT_KINDS = frozenset(
    {
        "bignum",
        "bit",
        "blob",
        "geometry",
        "interval",
        "time with time zone",
        "time_ns",
        "uhugeint",
        "union",
        "variant",
    }
)
"""Types that Polars or the output files cannot represent. Their values become text, as DuckDB prints them."""

_NESTED = frozenset({"array", "list", "map", "struct"})

_BATCH_ROWS = 2048
"""Rows per batch under a memory limit. This is DuckDB's own batch size, because each row may be long."""


def _readable(found: duckdb.DuckDBPyRelation, query: Query) -> duckdb.DuckDBPyRelation:
    """Return the rows, with values that a frame cannot represent converted to text.

    Raises
    ------
    QueryError
        Two columns have the same name.
    """
    names = [name.lower() for name in found.columns]
    if twice := next((name for name in found.columns if names.count(name.lower()) > 1), None):
        raise QueryError(f"two columns are called '{twice}'", where=query.path, hint="rename one with AS")
    if foreign := [name for name, kind in zip(found.columns, found.types, strict=True) if _is_foreign(kind)]:
        texts = (f"CAST({name} AS VARCHAR) AS {name}" for name in map(_sql_name, foreign))
        found = found.project(f"* REPLACE ({', '.join(texts)})")
    return found


def _limited_frame(asked: Asked, limit: int | None) -> pl.DataFrame:
    """Return the rows, read in batches, so that a result that is too large is rejected before it fills the memory."""
    import polars as pl
    import pyarrow as pa  # before the memory is limited

    rows = held = 0
    batches: list[pa.RecordBatch] = []
    with limited_memory(asked.limits) if asked.own_process else nullcontext():
        # DuckDB computes constants as soon as it knows the SQL.
        found = _readable(asked.con.sql(asked.query.sql, params=dict(asked.values) or None), asked.query)
        reader = (found if limit is None else found.limit(limit)).to_arrow_reader(_BATCH_ROWS)
        for batch in reader:
            rows, held = rows + batch.num_rows, held + batch.nbytes
            asked.limits.check(rows, held, asked.query.path)
            batches.append(batch)
    return cast("pl.DataFrame", pl.from_arrow(pa.Table.from_batches(batches, reader.schema)))


def _is_foreign(kind: DuckDBPyType) -> bool:
    from duckdb.sqltypes import DuckDBPyType

    if kind.id in _NESTED:
        return any(_is_foreign(child) for _, child in kind.children if isinstance(child, DuckDBPyType))
    return kind.id in _TEXT_KINDS


def _with_dates(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame, with DuckDB's text for columns with a date that is infinite or outside the years 1 to 9999.

    Python has no such dates, and Polars cannot print infinite ones.
    """
    import polars as pl

    far = [series.name for series in frame if _has_far_dates(series)]
    if not far:
        return frame
    with Database() as database, database.connect() as con:
        con.register("found", Streamed(frame.select(far)))
        texts = (f"CAST({name} AS VARCHAR) AS {name}" for name in map(_sql_name, far))
        return frame.with_columns(pl.DataFrame(con.sql(f"SELECT {', '.join(texts)} FROM found")))


def _has_far_dates(values: pl.Series) -> bool:
    import polars as pl

    kind = values.dtype
    if isinstance(kind, pl.Struct):
        return any(_has_far_dates(values.struct.field(field.name)) for field in kind.fields)
    if isinstance(kind, pl.List | pl.Array):
        return _has_far_dates(values.explode())
    if not isinstance(kind, pl.Date | pl.Datetime):
        return False
    unit = timedelta(days=1) if isinstance(kind, pl.Date) else timedelta(microseconds=1)
    first, last = ((end - datetime(1970, 1, 1)) // unit for end in (datetime.min, datetime.max))
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ms":
        first, last = first // 1000, last // 1000
    elif isinstance(kind, pl.Datetime) and kind.time_unit == "ns":  # only infinity exceeds these
        first, last = -(2**63) + 2, 2**63 - 2
    return bool(((values.to_physical() < first) | (values.to_physical() > last)).any())


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_line(
    con: duckdb.DuckDBPyConnection, query: Query, values: Mapping[str, Value], error: duckdb.Error
) -> duckdb.Error:
    """Return the error that EXPLAIN raises. Relations omit the line number for names they cannot resolve."""
    import duckdb

    try:
        con.execute(f"EXPLAIN {query.sql}", dict(values) or None)
    except duckdb.Error as located:
        return located
    return error


def sql_error(error: duckdb.Error, query: Query, hint: str | None = None) -> QueryError:
    """Return DuckDB's message as one line, with the line number of the file if DuckDB gives it."""
    text = str(error)
    place = re.search(r"^LINE (\d+):", text, flags=re.MULTILINE)
    return QueryError(text.splitlines()[0], where=query.path, line=int(place[1]) if place else None, hint=hint)
