"""The interface of an engine, which computes the timelines and runs the SQL of a Trace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from tracekit.characterize.limits import NO_LIMITS, Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import polars as pl

    from tracekit.answer import Value
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineRows, TimelineTable
    from tracekit.trace import Trace
    from tracekit.workers import Workers

__all__ = ["Asked", "Engine"]


@dataclass(frozen=True)
class Asked:
    """A query ready for an engine, with bound parameters and known timelines."""

    query: Query
    trace: Trace
    values: Mapping[str, Value]
    """Values of the parameters that the SQL names."""
    empty: frozenset[str]
    """Tables that the Trace does not have and that the SQL may read as empty."""
    con: duckdb.DuckDBPyConnection
    """A connection on this machine with the tables, the shared views, and the timelines as frames."""
    timelines: Mapping[str, TimelineRows]
    """The timelines that the SQL names, by name."""
    limits: Limits = NO_LIMITS
    """The limits of the question."""
    own_process: bool = False
    """Whether this process answers only this question, so that its memory may be limited."""


class Engine(ABC):
    """An engine that answers queries. One engine may serve several Traces, one after the other.

    SQL is written once, in DuckDB's dialect, and DuckDB's answer is the reference: every engine returns the same rows
    in the same order, the same columns with the same types, and every number to within 1e-9.
    """

    name: ClassVar[str]
    """The name of the engine, as in `--engine`."""

    def __enter__(self) -> Self:
        """Return the engine itself, which starts with the first question."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:  # noqa: B027 -- most engines need nothing
        """Acquire the engine's resources before long-running work.

        Raises
        ------
        UsageError
            The engine cannot be used.
        """

    def stop(self) -> None:  # noqa: B027 -- most engines hold nothing
        """Release the engine's resources, if it has any; the next question acquires them again."""

    def workers(self) -> Workers | None:
        """Return the processes for work other than queries, or None if the engine has no such processes."""
        return None

    @abstractmethod
    def check(self, query: Query, *, locked: bool) -> None:
        """Reject a query that this engine cannot answer like DuckDB, before any work starts.

        Parameters
        ----------
        query : Query
            The query.
        locked : bool
            Whether the query's SQL may read only the Trace's tables.

        Raises
        ------
        QueryError
            The engine cannot answer the query.
        UsageError
            The engine is not installed or does not respond.
        """

    @abstractmethod
    def timeline(
        self,
        con: duckdb.DuckDBPyConnection,
        trace: Trace,
        empty: frozenset[str],
        timeline: TimelineTable,
        params: Mapping[str, Value],
    ) -> TimelineRows:
        """Return the rows of a timeline.

        Parameters
        ----------
        con : DuckDB connection
            A connection on this machine with the tables and the shared views.
        trace : Trace
            The Trace.
        empty : frozenset of str
            Tables that the Trace does not have and that exist without rows.
        timeline : TimelineTable
            The timeline to compute.
        params : mapping
            The value of each parameter of the timeline.
        """

    @abstractmethod
    def rows(self, asked: Asked) -> pl.DataFrame:
        """Return the rows of a query.

        Raises
        ------
        QueryError
            The SQL fails.
        """

    def notes(self, query: Query) -> tuple[str, ...]:  # noqa: ARG002 -- others look at the query
        """Return caveats about this engine's answer. DuckDB has none."""
        return ()
