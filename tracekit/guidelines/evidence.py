"""The evidence for a guideline: named queries, and SQL over tables, shared views and timelines. Each runs only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize import answer_query, find_query, lacks
from tracekit.characterize.query import Query
from tracekit.characterize.session import Session
from tracekit.errors import TooManyIntervalsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from tracekit.answer import Answer
    from tracekit.characterize.engines import Engine
    from tracekit.trace import Trace


class LackingError(Exception):
    """The Trace lacks data that a guideline needs. The guideline's function raises this, and the runner catches it."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__(" ".join(sentences))


class Evidence:
    """A Trace that computes each answer only once."""

    def __init__(self, trace: Trace, memory_limit: str | None = None, engine: Engine | None = None) -> None:
        self.trace = trace
        self.session = Session(trace, memory_limit, engine)
        whole = trace.ingested
        # Queries that do not separate tenants have the same answer for every tenant column, so they are never split by
        # thousands of tenants.
        self._whole = (trace, self.session) if whole is trace else (whole, Session(whole, memory_limit, engine))
        self._answers: dict[tuple[str, tuple[tuple[str, object], ...]], Answer] = {}

    def lacks(self, tables: tuple[str, ...], needs: tuple[str, ...]) -> list[str]:
        """Return a sentence for each missing capability of the Trace or, if none is missing, for each missing table."""
        sentences = []
        for name in needs:
            found = self.trace.capabilities.get(name)
            if found is None or not found.available:
                note = f": {found.note.rstrip('.')}" if found and found.note else ""
                sentences.append(f"The trace does not record {name.replace('_', ' ')}{note}.")
        # A missing capability says more than the missing table behind it.
        return sentences or [f"The trace has no table '{table}'." for table in tables if not self.trace.has(table)]

    def query(self, name: str, **params: object) -> Answer:
        """Return the answer to a query.

        Raises
        ------
        LackingError
            The Trace lacks something that the query needs.
        """
        return self._once(find_query(name), params)

    def sql(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        also: tuple[str, ...] = (),
        merge: tuple[str, ...] = (),
    ) -> pl.DataFrame:
        """Return the rows of an SQL statement over the tables, the shared views and the timelines that it names.

        Parameters
        ----------
        text : str
            One SELECT statement, which must not contain anything from a log.
        params : mapping, optional
            Values bound to its parameters. $timezone and $time_base come from the Trace. A timeline's parameters have
            their defaults.
        also : tuple of str
            Tables to treat as empty if the Trace lacks them.
        merge : tuple of str
            Common tables that may be computed day by day and merged (`Query.merge`).

        Raises
        ------
        LackingError
            The Trace lacks a table that a timeline needs.
        QueryError
            The statement fails.
        """
        return self._ask(Query.of_text(text, self.trace.path, also=also, merge=merge), params or {}).frame

    def answer(self, text: str, *, also: tuple[str, ...] = ()) -> Answer:
        """Return the rows of an SQL statement with its timelines' notes. The answer is cached.

        Raises
        ------
        LackingError, QueryError
            As for `sql`.
        """
        return self._once(Query.of_text(text, self.trace.path, also=also), {})

    def _once(self, query: Query, params: Mapping[str, object]) -> Answer:
        key = (query.name if query.shipped else query.sql, tuple(sorted(params.items())))
        if key not in self._answers:
            self._answers[key] = self._ask(query, params)
        return self._answers[key]

    def _ask(self, query: Query, params: Mapping[str, object]) -> Answer:
        missing = lacks(query, self.trace)
        if missing:
            raise LackingError(*missing)
        trace, session = (self.trace, self.session) if query.takes_tenant else self._whole
        try:
            return answer_query(trace, query, params, session=session, sandbox=False)
        except TooManyIntervalsError as error:
            raise LackingError(error.sentence) from error


def day_of(column: str) -> str:
    """Return SQL for the day of a time, in days after 1970."""
    return f"date_diff('day', DATE '1970-01-01', CAST({column} AS DATE))"
