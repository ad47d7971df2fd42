"""Relations that follow a trace through time: computed in Python, used in SQL like any table.

Any query, shipped or a user's own, gets the rows of a timeline by naming it in SQL.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from tracekit.characterize.query import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """Choices it made and what it left out; shown with every result that uses it."""


@dataclass(frozen=True)
class TimelineTable:
    """A relation computed in Python."""

    name: str
    """What SQL calls it."""
    title: str
    tables: tuple[str, ...]
    """Tables that the Trace must have."""
    columns: tuple[AnswerColumn, ...]
    rule: str
    """Formula, what is in and out, and the source, as free text."""
    compute: Callable[[duckdb.DuckDBPyConnection, Mapping[str, int | float | str]], TimelineRows]
    """Given a connection with the tables and the shared views, and the value of each parameter."""
    views: tuple[str, ...]
    """Shared views, and tables that describe the Trace, that are read."""
    also: tuple[str, ...] = ()
    """Tables that are read where the Trace has them, and are empty where it has not."""
    by_cluster: bool = False
    """Whether the rows of a cluster follow from its own jobs and nodes, and the window of the whole trace alone; views
    that tell more of the trace than that (`tracekit.characterize.engines.spark.by_cluster`) are handed in."""
    params: tuple[Param, ...] = ()
    """A query may declare one of them too, with a default of its own."""


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
"""The module in `tracekit.characterize.timelines` that has each timeline, as an object called like it in capitals."""


@cache
def all_timelines() -> dict[str, TimelineTable]:
    """Return every timeline by name, in alphabetical order."""
    modules = {name: import_module(f"tracekit.characterize.timelines.{module}") for name, module in _MODULES.items()}
    return {name: getattr(module, name.upper()) for name, module in modules.items()}


def timelines_in(query: Query) -> tuple[TimelineTable, ...]:
    """Return the timelines that the SQL of a query names."""
    words = words_of(query.sql)
    if words.isdisjoint(_MODULES):  # importing all of them takes longer than most queries
        return ()
    return tuple(timeline for name, timeline in all_timelines().items() if name in words)
