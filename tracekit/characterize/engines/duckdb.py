"""DuckDB, in this process: the default engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.characterize.engines.interface import Engine
from tracekit.errors import QueryError
from tracekit.places import failure_behind

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import polars as pl

    from tracekit.answer import Value
    from tracekit.characterize.engines.interface import Asked
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.trace import Trace

__all__ = ["DuckdbEngine", "rows_of", "sql_error"]


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
        return timeline.compute(con, params)

    def rows(self, asked: Asked) -> pl.DataFrame:
        """Run the SQL in this process."""
        return rows_of(asked)


def rows_of(asked: Asked, *, limit: int | None = None) -> pl.DataFrame:
    """Return the rows of a query, or the first of them.

    Raises
    ------
    QueryError
        The SQL fails.
    """
    import duckdb

    con, query, values = asked.con, asked.query, dict(asked.values)
    try:
        found = con.sql(query.sql, params=values or None)
        frame = _frame(found if limit is None else found.limit(limit))
    except duckdb.OutOfMemoryException as error:
        raise QueryError("ran out of memory", where=query.path, hint="raise --memory-limit") from error
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        tables = f"the trace has the tables {', '.join(asked.trace.tables)}"
        hint = tables if isinstance(error, duckdb.CatalogException) and not query.shipped else None
        raise sql_error(_with_line(con, query, values, error), query, hint) from error
    except duckdb.PermissionException as error:
        raise sql_error(
            error, query, "it runs in the sandbox, which has the Trace's tables and nothing else"
        ) from error
    except duckdb.Error as error:
        raise failure_behind(error) or sql_error(error, query) from error
    except RuntimeError as error:
        if "interrupted" in str(error):  # DuckDB has heard Python's KeyboardInterrupt, and lost it
            raise KeyboardInterrupt from error
        raise
    return frame


def _frame(found: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """Return the rows; an interval or a union, which Polars has no type for, as DuckDB writes it.

    Polars reads them by Arrow's interface, which needs no import of Arrow; DuckDB's own `pl()` does.
    """
    import polars as pl

    kinds = map(str, found.types)
    if foreign := [n for n, kind in zip(found.columns, kinds, strict=True) if "INTERVAL" in kind or "UNION" in kind]:
        texts = (f"CAST({name} AS VARCHAR) AS {name}" for name in map(_sql_name, foreign))
        found = found.project(f"* REPLACE ({', '.join(texts)})")
    return pl.DataFrame(found)


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
