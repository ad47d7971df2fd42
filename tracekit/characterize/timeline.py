"""Timelines: tables over time, computed in Python and used in SQL like any table.

Any query, shipped or a user's own, can name a timeline in its SQL to get its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tracekit.characterize.query import find_query, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import duckdb
    import polars as pl

    from tracekit.answer import AnswerColumn, Param
    from tracekit.characterize.notes import Note
    from tracekit.characterize.query import Query


@dataclass(frozen=True)
class TimelineRows:
    """The rows of a timeline, computed for one trace."""

    frame: pl.DataFrame
    notes: tuple[Note, ...] = ()
    """Notes on choices made and data excluded, shown with every result that uses the timeline."""


@dataclass(frozen=True)
class TimelineTable:
    """A relation computed in Python."""

    name: str
    """The name of the timeline in SQL."""
    title: str
    tables: tuple[str, ...]
    """Tables that the Trace must have."""
    columns: tuple[AnswerColumn, ...]
    rule: str
    """Formula, included and excluded data, and source, as free text."""
    compute: Callable[[duckdb.DuckDBPyConnection, Mapping[str, int | float | str]], TimelineRows]
    """Computes the rows from a connection with the tables and shared views, and from the parameters' values."""
    views: tuple[str, ...]
    """Shared views and tables describing the Trace that the timeline reads."""
    also: tuple[str, ...] = ()
    """Tables that are read if the Trace has them and are empty otherwise."""
    by_cluster: bool = False
    """Whether a cluster's rows depend only on its own jobs and nodes and on the window of the whole trace. Views that
    need more of the trace are passed in (`tracekit.characterize.engines.spark.by_cluster`)."""
    params: tuple[Param, ...] = ()
    """The parameters. A query may declare the same parameter with its own default."""

    def no_rows(self) -> pl.DataFrame:
        """Return a frame without rows whose types follow the units; numbers are 64-bit floats by default."""
        import polars as pl

        whole = dict.fromkeys(("nodes", "number", "us"), pl.Int64())
        types = {"text": pl.String(), "UTC": pl.Datetime("us"), "true or false": pl.Boolean(), **whole}
        return pl.DataFrame(schema={column.name: types.get(column.unit, pl.Float64()) for column in self.columns})


def timeline_of(
    query: str, *, also_columns: Iterable[AnswerColumn] = (), without: Iterable[str] = (), **fields: Any
) -> TimelineTable:
    """Return a timeline with the columns and parameters of the query that shows it.

    `without` names columns and parameters that occur only in the query's SQL; `fields` are the other fields.
    """
    shown = find_query(query)
    return TimelineTable(
        columns=(*also_columns, *(column for column in shown.columns if column.name not in without)),
        params=tuple(param for param in shown.params if param.name not in without),
        rule=f"The query {query} shows these rows and explains them.",
        **fields,
    )


_MODULES = {
    "expected_waits": "expected_waits",
    "faults_at_once": "node_faults",
    "free_gpus": "gpus",
    "gang_hits": "node_faults",
    "gpu_timeline": "gpus",
    "locality_waits": "locality_waits",
    "node_failures": "node_failures",
    "node_rates": "node_faults",
    "queue_order": "queue",
    "times_between_failures": "node_faults",
    "wait_causes": "queue",
}
"""The module of each timeline in `tracekit.characterize.timelines`; the object has the timeline's name in capitals."""


@cache
def all_timelines() -> dict[str, TimelineTable]:
    """Return every timeline by name, in alphabetical order."""
    modules = {name: import_module(f"tracekit.characterize.timelines.{module}") for name, module in _MODULES.items()}
    return {name: getattr(module, name.upper()) for name, module in modules.items()}


def timelines_in(query: Query) -> tuple[TimelineTable, ...]:
    """Return the timelines that the SQL of a query names."""
    words = words_of(query.sql)
    if words.isdisjoint(_MODULES):  # importing all timelines would take longer than most queries
        return ()
    return tuple(timeline for name, timeline in all_timelines().items() if name in words)
