"""The engine that runs queries on Apache Spark."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.characterize.engines.duckdb import rows_of
from tracekit.characterize.engines.interface import Engine
from tracekit.characterize.engines.spark.starting import LARGE_ROWS, LOCAL, Started, reason_of, start, untried
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import duckdb

    from tracekit.answer import Value
    from tracekit.characterize.engines.interface import Asked
    from tracekit.characterize.engines.spark.tables import TraceViews
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.tables.window import Window
    from tracekit.trace import Trace
    from tracekit.workers import Workers

_SECONDS = 120.0


class SparkEngine(Engine):
    """Spark on the Trace's files, which every machine must see at the same path.

    Parameters
    ----------
    master : str, optional
        The Spark master, such as 'spark://host:7077', 'yarn' or 'local[4]'; by default all processors of this machine.
    settings : mapping, optional
        Spark's own settings, such as {'spark.executor.memory': '8g'}.
    seconds : float
        Time limit for Spark to start and for its executors to answer [s].
    large_rows : int
        From this number of rows in a table, percentiles are computed from value counts, which is slower but bounds
        memory.
    """

    name = "spark"

    def __init__(
        self,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        seconds: float = _SECONDS,
        large_rows: int = LARGE_ROWS,
    ) -> None:
        self.master, self._settings, self._seconds = master or LOCAL, dict(settings or {}), seconds
        self.large_rows = large_rows
        self._started: Started | None = None
        self._traces: dict[tuple[str, str, bool, Window, bool, frozenset[str]], TraceViews] = {}

    def start(self) -> None:
        """Start Spark.

        Raises
        ------
        UsageError
            Spark cannot be used.
        """
        self._spark()

    def workers(self) -> Workers:
        """Return the executors, for work other than queries."""
        from tracekit.characterize.engines.spark.tasks import SparkTasks

        return SparkTasks(self._spark, self.master)

    def stop(self) -> None:
        """Stop Spark; the next question starts it again."""
        self._traces.clear()
        if self._started is not None:
            self._started.stop()
            self._started = None

    def check(self, query: Query, *, locked: bool) -> None:
        """Reject SQL that must run in the sandbox or cannot be translated, before Spark starts.

        Raises
        ------
        QueryError
            Spark cannot run the query.
        UsageError
            Spark cannot be used.
        """
        from tracekit.characterize.engines.spark.crossing import cannot_cross, spark_sql

        if locked:
            raise cannot_cross("it runs in the sandbox, which Spark does not have", query.path)
        self._spark()
        spark_sql(query.sql, query.path)

    def notes(self, query: Query) -> tuple[str, ...]:
        """Return notes on untested cases: a user's own SQL, and untested releases of Spark and sqlglot."""
        own = query.path.suffix == ".sql" and not query.shipped
        words = "the SQL was translated to Spark's dialect; if it goes beyond the shipped queries, compare with DuckDB"
        return (*untried(), *([words] if own else []))

    def timeline(
        self,
        con: duckdb.DuckDBPyConnection,
        trace: Trace,
        empty: frozenset[str],
        timeline: TimelineTable,
        params: Mapping[str, Value],
    ) -> TimelineRows:
        """Compute a timeline with one Spark task per cluster if the clusters share no nodes, otherwise on this machine.

        A single cluster is a sequence of events, so it is computed on one machine.
        """
        from tracekit.characterize.engines.spark.by_cluster import run_by_cluster

        with _told():
            views = self._views(trace, empty, con)
            if "node_gpus" not in empty and all(
                trace.has(t) or t in empty for t in ("nodes", "placements", "gpu_utilization")
            ):
                views.on_this_machine("node_gpus")
            found = run_by_cluster(views.session, con, trace, empty, timeline, params) if timeline.by_cluster else None
        return timeline.compute(con, params) if found is None else found

    def rows(self, asked: Asked) -> pl.DataFrame:
        """Run the SQL on Spark and return its rows with DuckDB's names and types.

        Raises
        ------
        QueryError
            The SQL fails.
        """
        from tracekit.characterize.engines.spark.tables import arrow_of, frame_of, parameters_of

        query = asked.query
        wanted = rows_of(asked, limit=0).schema  # also reports errors in the SQL in DuckDB's words
        with _told(query.path):
            views = self._views(asked.trace, asked.empty, asked.con)
            for name, rows in asked.timelines.items():
                views.put(name, arrow_of(rows.frame))
            tree = views.merged(query, asked.values)
            if views.local(query):
                sql = tree.sql(dialect="duckdb")
                used = {name: asked.values[name] for name in parameters_of(sql)}
                found: pl.DataFrame = pl.DataFrame(views.con.sql(sql, params=used or None))
                return found
            return frame_of(views.rows(tree, asked.values, query.path), wanted)

    def _views(self, trace: Trace, empty: frozenset[str], con: duckdb.DuckDBPyConnection) -> TraceViews:
        """Return the names that SQL may use for a Trace; `con` provides them on this machine."""
        from tracekit.characterize.engines.spark.tables import TraceViews

        key = (str(trace.path), trace.tenant_column, trace.by_pool, trace.limits, trace.allow_missing, empty)
        if key not in self._traces:
            session = self._spark().newSession()
            _register(session)
            self._traces[key] = TraceViews(session, trace, empty, con, self.large_rows)
        self._traces[key].use(con)
        return self._traces[key]

    def _spark(self) -> Any:
        """Return the session, which the first question starts."""
        if self._started is None:
            self._started = start(self.master, self._settings, self._seconds)
            # PySpark prints each failed analysis to the terminal, as JSON with a stack trace.
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
        return self._started.session


@contextmanager
def _told(where: Path | None = None) -> Iterator[None]:
    """Reduce an error from Spark, or from its Java, from hundreds of lines to one."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    from tracekit.characterize.engines.spark.crossing import cannot_cross

    try:
        yield
    except (AnalysisException, ParseException, TypeError) as error:
        raise cannot_cross(reason_of(error), where) from error
    except PySparkException as error:
        raise QueryError(f"Spark failed: {reason_of(error)}", where=where) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j") or isinstance(error, ConnectionError):
            raise QueryError(f"Spark failed: {reason_of(error)}", where=where) from error
        raise


def _register(session: Any) -> None:
    """Register our own functions, which the rules use."""
    from tracekit.characterize.engines.spark.rules import PRINTF

    # Defined here, because Spark then sends it as code.
    def printf(words: str | None, numbers: list[float] | None) -> str | None:
        import re

        if words is None or numbers is None or None in numbers:
            return None
        left = iter(numbers)

        def written(found: re.Match[str]) -> str:
            if found[0] == "%%":
                return "%"
            number = next(left)
            return format(int(number) if found["kind"] == "d" else number, found[0][1:])

        return re.sub(r"%%|%,?(\.\d+)?(?P<kind>[df])", written, words)

    session.udf.register(PRINTF, printf, "string")
