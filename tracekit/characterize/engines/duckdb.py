"""DuckDB, in this process: the default engine."""

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
    """DuckDB over the files of the Trace; timelines are computed beside it, in Python."""

    name = "duckdb"

    def check(self, query: Query, *, locked: bool) -> None:
        """Refuse nothing: what DuckDB cannot run fails when it is run, with DuckDB's words."""

    def timeline(
        self,
        con: duckdb.DuckDBPyConnection,
        trace: Trace,  # noqa: ARG002 -- the connection has its tables
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
    """Return the rows of a query, or the first of them.

    Raises
    ------
    QueryError
        The SQL fails, its result is larger than allowed, or two of its columns have one name.
    """
    import duckdb
    import polars as pl

    con, query, values = asked.con, asked.query, dict(asked.values)
    try:
        if asked.limits.rows is None and asked.limits.memory is None:
            found = _readable(con.sql(query.sql, params=values or None), query)
            # Polars reads rows by Arrow's interface, which needs no import of Arrow; DuckDB's own `pl()` does.
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
        raise sql_error(
            error, query, "it runs in the sandbox, which has the Trace's tables and nothing else"
        ) from error
    except duckdb.Error as error:
        raise failure_behind(error) or full_disk(error) or sql_error(error, query) from error
    except (pl.exceptions.ComputeError, OSError) as error:
        raise _in_stream(error, query) from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB has heard Python's KeyboardInterrupt, and lost it
            raise KeyboardInterrupt from error
        raise
    return frame


_OUT_OF_MEMORY = "Out of Memory Error"
"""How DuckDB's words begin when it ran out of memory."""


def _out_of_memory(where: str | Path) -> QueryError:
    return QueryError("ran out of memory", where=where, hint="raise --memory-limit")


def _in_stream(error: Exception, query: Query) -> Exception:
    """Return DuckDB's error behind one of the reader of its rows, which carries DuckDB's words and not their class."""
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
"""Types that Polars, or a file that tables are written to, cannot hold: they become text, as DuckDB writes them."""

_NESTED = frozenset({"array", "list", "map", "struct"})

_BATCH_ROWS = 2048
"""Rows that are read at a time under a memory limit: as many as DuckDB works on at a time, since each may be long."""


def _readable(found: duckdb.DuckDBPyRelation, query: Query) -> duckdb.DuckDBPyRelation:
    """Return the rows with what a frame cannot hold as text.

    Raises
    ------
    QueryError
        Two columns have one name.
    """
    names = [name.lower() for name in found.columns]
    if twice := next((name for name in found.columns if names.count(name.lower()) > 1), None):
        raise QueryError(f"two columns are called '{twice}'", where=query.path, hint="rename one with AS")
    if foreign := [name for name, kind in zip(found.columns, found.types, strict=True) if _is_foreign(kind)]:
        texts = (f"CAST({name} AS VARCHAR) AS {name}" for name in map(_sql_name, foreign))
        found = found.project(f"* REPLACE ({', '.join(texts)})")
    return found


def _limited_frame(asked: Asked, limit: int | None) -> pl.DataFrame:
    """Return the rows, read in batches, so that too large a result is refused before it takes the memory."""
    import polars as pl
    import pyarrow as pa  # before the memory is limited

    rows = held = 0
    batches: list[pa.RecordBatch] = []
    with limited_memory(asked.limits) if asked.own_process else nullcontext():
        # DuckDB computes what is constant as soon as it knows the SQL.
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
    """Return columns with an infinite date or time, or one outside the years 1 to 9999, as DuckDB writes them.

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
    elif isinstance(kind, pl.Datetime) and kind.time_unit == "ns":  # only infinity is beyond these
        first, last = -(2**63) + 2, 2**63 - 2
    return bool(((values.to_physical() < first) | (values.to_physical() > last)).any())


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _with_line(
    con: duckdb.DuckDBPyConnection, query: Query, values: Mapping[str, Value], error: duckdb.Error
) -> duckdb.Error:
    """Return `error` as EXPLAIN words it: relations leave out the line of names that they cannot resolve."""
    import duckdb

    try:
        con.execute(f"EXPLAIN {query.sql}", dict(values) or None)
    except duckdb.Error as located:
        return located
    return error


def sql_error(error: duckdb.Error, query: Query, hint: str | None = None) -> QueryError:
    """Return DuckDB's message as one line, with the line of the file when it gives one."""
    text = str(error)
    place = re.search(r"^LINE (\d+):", text, flags=re.MULTILINE)
    return QueryError(text.splitlines()[0], where=query.path, line=int(place[1]) if place else None, hint=hint)
