"""Shared definitions: the views of queries/views/, and the tables that describe the Trace itself.

A query's connection holds, beside the tables of the Trace:

    trace_tables(name)                                      the tables that the Trace really has
    trace_capabilities(name, available, coverage, note)     what the manifest says it can answer
    trace_zone(timezone, clock)                             one row: the zone in which hours and days are read; clock is
                                                            the same, NULL where times count from the start of the trace
    trace_nodes(listed, source)                             one row: whether its nodes are a list of machines, and
                                                            which list beside the log states them, NULL: none
    trace_tenant(ingested)                                  one row: whether vc is what the source divides itself by
    one view for each file of queries/views/ whose tables exist
    the macro percentiles(x): the quantiles 0, 0.01, ..., 1 as a list
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tracekit import resources, schema
from tracekit.characterize.catalog import read_sql
from tracekit.characterize.header import VIEW_PARTS, parse_query
from tracekit.characterize.intervals import GRID
from tracekit.characterize.zone import known_zone
from tracekit.errors import QueryError, nearest
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb

    from tracekit.characterize.query import Query
    from tracekit.trace import Trace

__all__ = ["FROM_JOBS", "connect_with_views", "list_views"]

FROM_JOBS = frozenset({"kubernetes", "lsf", "pbs", "slurm"})
"""Formats without a list of machines: unless one lies beside the log, their table of nodes holds those that jobs ran
on, each with the most GPUs that jobs held there at one time, so that it observes and lists nothing."""


def list_views() -> tuple[Query, ...]:
    """Return the shared views, each after those that it stands on.

    Raises
    ------
    QueryError
        The header of a view is damaged, or views stand on each other in a circle.
    """
    return order_views(_view(path) for path in sorted(resources.folder("queries").glob("views/*.sql")))


def order_views(views: Iterable[Query]) -> tuple[Query, ...]:
    """Return `views`, each after those that it stands on, else in the order given.

    Raises
    ------
    QueryError
        A view stands on one that does not exist, or on itself by way of others.
    """
    left = {view.name: view for view in views}
    names = tuple(left)
    placed: list[Query] = []
    while left:
        ready = [view for view in left.values() if not any(base in left for base in view.views)]
        if not ready:
            first = next(iter(left.values()))
            raise QueryError("stands on itself by way of other views", where=first.path)
        for view in ready:
            unknown = [base for base in view.views if base not in names]
            if unknown:
                raise QueryError(f"no view '{unknown[0]}'", where=view.path, hint=nearest(unknown[0], names))
            placed.append(left.pop(view.name))
    return tuple(placed)


@cache
def _view(path: Path) -> Query:
    return parse_query(read_sql(path), path, name=path.stem, parts=VIEW_PARTS)


def connect_with_views(
    trace: Trace, *, also: Iterable[str] = (), memory_limit: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables of `trace` and the shared views; tables of `also` that it lacks are empty."""
    con = trace.connect(memory_limit)
    present = set(trace.tables)
    for table in also:
        if table not in present:
            columns = ", ".join(f'"{c.name}" {c.sql}' for c in schema.common(table).columns)
            con.execute(f"CREATE TABLE {table} ({columns})")
            present.add(table)
    grid = ", ".join(f"{i / (GRID - 1):g}" for i in range(GRID))
    con.execute(f"CREATE MACRO percentiles(x) AS quantile_cont(x, [{grid}])")
    _describe(con, trace)
    created: set[str] = set()
    for view in list_views():
        if present.issuperset(view.tables) and created.issuperset(view.views):
            con.execute(f"CREATE VIEW {view.name} AS {view.sql}")
            created.add(view.name)
    return con


def _describe(con: duckdb.DuckDBPyConnection, trace: Trace) -> None:
    # One statement a table: a row at a time takes longer than most queries.
    con.execute("CREATE TABLE trace_tables (name VARCHAR)")
    con.execute("CREATE TABLE trace_capabilities (name VARCHAR, available BOOLEAN, coverage DOUBLE, note VARCHAR)")
    con.execute("INSERT INTO trace_tables SELECT unnest(CAST(? AS VARCHAR[]))", [list(trace.tables)])
    clock = None if trace.manifest.time_base == "relative" else known_zone(trace.timezone)
    con.execute(
        "CREATE TABLE trace_zone AS SELECT CAST(? AS VARCHAR) AS timezone, CAST(? AS VARCHAR) AS clock",
        [trace.timezone, clock],
    )
    listed = trace.manifest.format not in FROM_JOBS
    # A list of machines beside such a log makes it as good as any other.
    stated = (
        con.execute("SELECT DISTINCT source FROM nodes WHERE source IS NOT NULL ORDER BY source").fetchall()
        if trace.has("nodes")
        else []
    )
    con.execute(
        "CREATE TABLE trace_nodes AS SELECT CAST(? AS BOOLEAN) AS listed, CAST(? AS VARCHAR) AS source",
        [listed or bool(stated), " and ".join(str(row[0]) for row in stated) or None],
    )
    con.execute("CREATE TABLE trace_tenant AS SELECT CAST(? AS BOOLEAN) AS ingested", [trace.tenant_column == INGESTED])
    rows = [(name, c.available, c.coverage, c.note) for name, c in sorted(trace.capabilities.items())]
    con.execute(
        "INSERT INTO trace_capabilities SELECT unnest(CAST(? AS VARCHAR[])), unnest(CAST(? AS BOOLEAN[])),"
        " unnest(CAST(? AS DOUBLE[])), unnest(CAST(? AS VARCHAR[]))",
        [[row[i] for row in rows] for i in range(4)],
    )
