"""Databases and timelines shared by the queries of one Trace.

Besides the tables of the Trace, a query's connection has the following objects if its SQL names them:

    trace_tables(name)                                      the tables that the Trace actually has
    trace_capabilities(name, available, coverage, note)     the capabilities in the manifest
    trace_zone(timezone, clock)                             one row: the zone in which hours and days are read; clock is
                                                            the same, or NULL if times count from the start of the trace
    trace_nodes(listed, source)                             one row: whether the nodes are a list of machines, and
                                                            the list next to the log that gives them, or NULL
    trace_tenant(ingested)                                  one row: whether vc is the source's own unit of division
    trace_pools(name, cluster)                              the pools that `cluster` names in place of their cluster;
                                                            no rows if no cluster is divided
    gpu_parts(profile, share)                               the share of a GPU that each MIG profile has [0..1]
    one view for each file in queries/views/                if the tables that the view reads exist
    percentiles(x)                                          a macro: the quantiles 0, 0.01, ..., 1 as a list
    is_failed(status), is_unsuccessful(status)              macros: whether the status is in that group of
                                                            `schema.STATUS_GROUPS`; NULL if missing or 'unknown'
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tracekit import resources, schema
from tracekit.characterize.engines.duckdb import DuckdbEngine
from tracekit.characterize.intervals import GRID
from tracekit.characterize.query import VIEW_PARTS, parse_query, read_sql, words_of
from tracekit.errors import QueryError, nearest
from tracekit.gpu_parts import SHARES_SQL, shares
from tracekit.tenant import INGESTED, VC
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import duckdb

    from tracekit.answer import Value
    from tracekit.characterize.engines.interface import Engine
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.trace import Trace

STATUS_MACROS = {
    f"is_{name}": f"CREATE MACRO is_{name}(status) AS CASE WHEN status <> 'unknown' THEN status IN {statuses} END"
    for name, statuses in schema.STATUS_GROUPS.items()
}
"""The statements that create the macros of status groups, by name."""

FROM_JOBS = frozenset({"flux", "kubernetes", "lsf", "pbs", "slurm"})
"""Formats without a list of machines. Unless there is a list next to the log, their nodes table contains the nodes that
jobs ran on, with the most GPUs used there at one time. These numbers count as observed, not listed."""


@cache
def list_views() -> tuple[Query, ...]:
    """Return the shared views, each after the views that it depends on.

    Raises
    ------
    QueryError
        The header of a view is damaged, or views depend on each other in a cycle.
    """
    return order_views(_view(path) for path in sorted(resources.folder("queries").glob("views/*.sql")))


def order_views(views: Iterable[Query]) -> tuple[Query, ...]:
    """Return `views`, each after the views that it depends on, and otherwise in the given order.

    Raises
    ------
    QueryError
        A view depends on a missing view, or on itself via other views.
    """
    left = {view.name: view for view in views}
    names = tuple(left)
    placed: list[Query] = []
    while left:
        ready = [view for view in left.values() if not any(base in left for base in view.views)]
        if not ready:
            first = next(iter(left.values()))
            raise QueryError("depends on itself through other views", where=first.path)
        for view in ready:
            unknown = [base for base in view.views if base not in names]
            if unknown:
                raise QueryError(f"no view '{unknown[0]}'", where=view.path, hint=nearest(unknown[0], names))
            placed.append(left.pop(view.name))
    return tuple(placed)


@cache
def _view(path: Path) -> Query:
    return parse_query(VC.fill(read_sql(path)), path, name=path.stem, parts=VIEW_PARTS)


class TraceDatabase:
    """A database that creates each of a Trace's tables and views when a query first names it.

    Parameters
    ----------
    trace : Trace
        The Trace.
    also : iterable of str
        Tables that exist without rows if the Trace does not have them.
    memory_limit : str, optional
        Memory limit of DuckDB before it spills to disk, such as '2GB'.
    alone : bool
        Whether to use a separate DuckDB instance whose settings can be changed.

    Raises
    ------
    UsageError
        The memory limit is not a size.
    """

    def __init__(
        self, trace: Trace, *, also: Iterable[str] = (), memory_limit: str | None = None, alone: bool = False
    ) -> None:
        self._trace = trace
        self._database = trace.database(memory_limit, alone=alone or None)
        self._made: set[str] = set()
        empty = [table for table in also if not trace.has(table)]
        self._empty = frozenset(empty)
        self._described = _descriptions(trace)
        self._views = _views_over({*trace.tables, *empty})
        self._names = frozenset({*trace.tables, *empty, *self._described, *self._views})

    def connect(self, sql: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a new connection with the tables and views that `sql` names, and their dependencies; by default all.

        Raises
        ------
        DamagedTraceError
            The file of a table is damaged.
        """
        con = self._database.connect()
        try:
            for name in sorted(self._names if sql is None else self._named(sql)):
                self._make(con, name)
        except BaseException:
            con.close()
            raise
        return con

    def _named(self, sql: str) -> frozenset[str]:
        """Return the tables and views whose names occur in the SQL. False matches do no harm."""
        words = words_of(sql)
        return self._names if words & _CATALOG else self._names & words

    def _make(self, con: duckdb.DuckDBPyConnection, name: str) -> None:
        if name in self._made:
            return
        if name in self._views:
            view = self._views[name]
            for other in sorted({*view.tables, *view.views, *(words_of(view.sql) & self._described.keys())}):
                self._make(con, other)
            con.execute(f"CREATE VIEW {name} AS {view.sql}")
        elif name in self._described:
            if name == "trace_nodes" and self._trace.has("nodes"):
                self._make(con, "nodes")
            con.execute(*self._described[name])
        elif name in self._empty:
            columns = ", ".join(f'"{c.name}" {c.sql}' for c in schema.common(name).columns)
            con.execute(f"CREATE TABLE {name} ({columns})")
        else:
            if name not in ("jobs", "nodes"):  # selected rows may depend on the selected jobs and nodes
                for other in sorted(words_of(self._trace.condition_sql(name)) & {"jobs", "nodes"}):
                    self._make(con, other)
            self._trace.create_view(con, name)
        self._made.add(name)

    def close(self) -> None:
        """Close the database; its connections can no longer be used."""
        self._database.close()


_CATALOG = frozenset(
    {"duckdb_columns", "duckdb_tables", "duckdb_views", "information_schema", "pg_catalog", "query", "query_table"}
)
"""Words of SQL that lists tables or builds names. Such SQL gets all tables and views."""


def _views_over(tables: set[str]) -> dict[str, Query]:
    """Return the shared views whose tables exist, by name, each after the views that it depends on."""
    found: dict[str, Query] = {}
    for view in list_views():
        if tables.issuperset(view.tables) and found.keys() >= set(view.views):
            found[view.name] = view
    return found


def connect_with_views(
    trace: Trace, *, also: Iterable[str] = (), memory_limit: str | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a separate connection with the tables of `trace` and all shared views; tables in `also` may be empty."""
    return TraceDatabase(trace, also=also, memory_limit=memory_limit, alone=True).connect()


def _descriptions(trace: Trace) -> dict[str, tuple[str, list[Any] | None]]:
    """Return the statement that creates each object that describes the Trace, and its values, by name."""
    grid = ", ".join(f"{i / (GRID - 1):g}" for i in range(GRID))
    clock = None if trace.manifest.time_base == "relative" else known_zone(trace.timezone)
    capabilities = [(name, c.available, c.coverage, c.note) for name, c in sorted(trace.capabilities.items())]
    listed = trace.manifest.format not in FROM_JOBS
    divided = [pool for pool in trace.pools if pool.divides] if trace.by_pool else []
    # With a list of machines next to it, such a log is treated like any other log.
    nodes = (
        "CAST(? AS BOOLEAN) OR count(source) > 0 AS listed,"
        " string_agg(DISTINCT source, ' and ' ORDER BY source) AS source FROM nodes"
        if trace.has("nodes")
        else "CAST(? AS BOOLEAN) AS listed, CAST(NULL AS VARCHAR) AS source"
    )
    return {
        **{name: (statement, None) for name, statement in STATUS_MACROS.items()},
        "percentiles": (f"CREATE MACRO percentiles(x) AS quantile_cont(x, [{grid}])", None),
        "trace_tables": (
            "CREATE TABLE trace_tables AS SELECT unnest(CAST(? AS VARCHAR[])) AS name",
            [list(trace.tables)],
        ),
        # Create each table in one statement. Inserting single rows would take longer than most queries.
        "trace_capabilities": (
            (
                "CREATE TABLE trace_capabilities AS SELECT unnest(CAST(? AS VARCHAR[])) AS name,"
                " unnest(CAST(? AS BOOLEAN[])) AS available, unnest(CAST(? AS DOUBLE[])) AS coverage,"
                " unnest(CAST(? AS VARCHAR[])) AS note"
            ),
            [[row[i] for row in capabilities] for i in range(4)],
        ),
        "trace_zone": (
            "CREATE TABLE trace_zone AS SELECT CAST(? AS VARCHAR) AS timezone, CAST(? AS VARCHAR) AS clock",
            [trace.timezone, clock],
        ),
        "trace_nodes": (f"CREATE TABLE trace_nodes AS SELECT {nodes}", [listed]),
        "gpu_parts": (
            SHARES_SQL,
            [list(shares()), list(shares().values())],
        ),
        "trace_pools": (
            (
                "CREATE TABLE trace_pools AS SELECT unnest(CAST(? AS VARCHAR[])) AS name,"
                " unnest(CAST(? AS VARCHAR[])) AS cluster"
            ),
            [[pool.name for pool in divided], [pool.cluster for pool in divided]],
        ),
        "trace_tenant": (
            "CREATE TABLE trace_tenant AS SELECT CAST(? AS BOOLEAN) AS ingested",
            [trace.tenant_column == INGESTED],
        ),
    }


_KEPT_ROWS = 1_000_000
"""Maximum number of rows of a timeline that is kept for the next query."""


class Session:
    """Databases and timelines shared by the queries of one Trace.

    Parameters
    ----------
    trace : Trace
        The Trace.
    memory_limit : str, optional
        Memory limit of DuckDB before it spills to disk, such as '2GB'.
    engine : Engine, optional
        Engine that answers queries; DuckDB by default. `connect` always returns a DuckDB connection.
    alone : bool
        Whether to use a separate DuckDB instance, which can be locked.
    """

    def __init__(
        self,
        trace: Trace,
        memory_limit: str | None = None,
        engine: Engine | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._trace, self._memory_limit, self._alone = trace, memory_limit, alone
        self.engine: Engine = engine or DuckdbEngine()
        self._databases: dict[frozenset[str], TraceDatabase] = {}
        self._timelines: dict[tuple[str, tuple[tuple[str, Value], ...]], TimelineRows] = {}

    def connect(self, also: Iterable[str] = (), sql: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a connection for one query, with the tables, views and descriptions of the Trace.

        Temporary objects of the query end with the connection. Keep the session open until you close the connection.

        Parameters
        ----------
        also : iterable of str
            Tables that exist without rows if the Trace does not have them.
        sql : str, optional
            The SQL to run. Only objects that it names are sure to exist; by default, all do.

        Raises
        ------
        DamagedTraceError
            The file of a table is damaged.
        UsageError
            The memory limit is not a size.
        """
        # If a query does not declare a table, it must not find it empty because another query declared it.
        empty = frozenset(also).difference(self._trace.tables)
        if empty not in self._databases:
            self._databases[empty] = TraceDatabase(
                self._trace, also=sorted(empty), memory_limit=self._memory_limit, alone=self._alone
            )
        return self._databases[empty].connect(sql)

    def timeline(
        self,
        con: duckdb.DuckDBPyConnection,
        timeline: TimelineTable,
        values: Mapping[str, Value],
        engine: Engine | None = None,
        also: Iterable[str] = (),
    ) -> TimelineRows:
        """Return the rows of a timeline, computing them with the engine if needed; `values` contains its parameters.

        `con` comes from `connect(also)`; the default engine is the session's.
        """
        params = {param.name: values[param.name] for param in timeline.params}
        key = (timeline.name, tuple(sorted(params.items())))
        if key in self._timelines:
            return self._timelines[key]
        empty = frozenset(also).difference(self._trace.tables)
        found = (engine or self.engine).timeline(con, self._trace, empty, timeline, params)
        if found.frame.height <= _KEPT_ROWS:
            self._timelines[key] = found
        return found
