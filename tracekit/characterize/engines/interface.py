"""What an engine does: tables, views, timelines and SQL of one Trace."""

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
    """A query whose parameters are bound and whose timelines are known, before an engine answers it."""

    query: Query
    trace: Trace
    values: Mapping[str, Value]
    """The parameters that the SQL names."""
    empty: frozenset[str]
    """Tables that the Trace lacks, and that the SQL may read as empty."""
    con: duckdb.DuckDBPyConnection
    """On this machine: the tables, the shared views, and the timelines as frames."""
    timelines: Mapping[str, TimelineRows]
    """Those that the SQL names, by name."""
    limits: Limits = NO_LIMITS
    """What the question may take."""
    own_process: bool = False
    """Whether this process answers this question alone, so that its memory may be limited."""


class Engine(ABC):
    """What answers queries. One may serve several Traces, one after the other.

    SQL is written once, in DuckDB's dialect, and DuckDB's answer is the right one: another engine gives the same rows
    in the same order, the same columns of the same types, and every number to 1e-9.
    """

    name: ClassVar[str]
    """As `--engine` has it."""

    def __enter__(self) -> Self:
        """Return itself; an engine starts with the first question."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:  # noqa: B027 -- most engines need nothing
        """Take what the engine needs, before long work for it.

        Raises
        ------
        UsageError
            The engine cannot be used.
        """

    def stop(self) -> None:  # noqa: B027 -- most engines hold nothing
        """Give up what the engine holds; the next question takes it again. Nothing, for one that holds nothing."""

    def workers(self) -> Workers | None:
        """Return the processes that it can have do other work than queries; None where it has none."""
        return None

    @abstractmethod
    def check(self, query: Query, *, locked: bool) -> None:
        """Refuse, by name and before any work, a query that this engine cannot answer as DuckDB does.

        Parameters
        ----------
        query : Query
            What is asked.
        locked : bool
            Whether its SQL may read the Trace's tables and nothing else.

        Raises
        ------
        QueryError
            It cannot.
        UsageError
            The engine itself cannot be used: it is not installed, or not there.
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
            On this machine: the tables and the shared views.
        trace : Trace
            What is asked.
        empty : frozenset of str
            Tables that the Trace lacks, and that are there without rows.
        timeline : TimelineTable
            Which one.
        params : mapping
            The value of each of its parameters.
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
        """Return what a reader has to know of this engine's answer; nothing where it is DuckDB's."""
        return ()
