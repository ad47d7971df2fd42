"""Several queries of one Trace: the tables and views are set up once, and small timelines are computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.engines.choice import engine_of
from tracekit.characterize.views import TraceDatabase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import duckdb

    from tracekit.answer import Value
    from tracekit.characterize.engines.interface import Engine
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.trace import Trace

_KEPT_ROWS = 1_000_000
"""Most rows of a timeline that is kept for the next query."""


class Session:
    """The databases and timelines that the queries of one Trace share.

    Parameters
    ----------
    trace : Trace
        What is asked.
    memory_limit : str, optional
        Most memory DuckDB may use before it spills to disk, such as '2GB'.
    engine : Engine, optional
        What answers queries; DuckDB by default. What others ask of `connect` is DuckDB's all the same.
    alone : bool
        Have an instance of DuckDB that nothing else uses, so that it can be locked.
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
        self.engine = engine_of(engine)
        self._databases: dict[frozenset[str], TraceDatabase] = {}
        self._timelines: dict[tuple[str, tuple[tuple[str, Value], ...]], TimelineRows] = {}

    def connect(self, also: Iterable[str] = (), sql: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return a connection for one query, with the tables, views and descriptions of the Trace (`views`).

        What the query makes for a moment ends with it. Close the connection, and keep the session until then.

        Parameters
        ----------
        also : iterable of str
            Tables that are there without rows if the Trace lacks them.
        sql : str, optional
            What will be asked: only what it names is sure to be there. By default everything is.

        Raises
        ------
        DamagedTraceError
            A table's file is damaged.
        UsageError
            The memory limit is not a size.
        """
        # A query that forgot to name a table must not find it empty because another one did.
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
        """Return the rows of a timeline, which the engine computes unless they are known; `values` has its parameters.

        `con` is that of `connect(also)`; the engine is the session's own by default.
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
