"""How a section module offers its sentences and charts, and how a report asks for them."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.report.charts import Panel
    from tracekit.report.structure import Row

    Says = Callable[[list[Row]], str | None]
    Draws = Callable[[list[Row]], list[Panel]]

__all__ = ["chart", "finding", "has_chart", "panels", "reading_order", "says", "section_title", "sections_in_order"]

_SAYS: dict[str, Says] = {}
_DRAWS: dict[str, Draws] = {}

_TITLES = {
    "overview": "Overview",
    "change": "What changed",
    "queuing": "Queueing",
    "locality": "Locality",
    "utilization": "Utilization",
    "failures": "Failures",
    "users": "Users",
    "workload": "Workload",
    "replay": "Replays of other policies",
    "fit": "Fitted workload",
}


def says(query: str) -> Callable[[Says], Says]:
    """Register the function that writes a query's finding: rows in, one sentence or None out."""

    def register(function: Says) -> Says:
        _SAYS[query] = function
        return function

    return register


def chart(query: str) -> Callable[[Draws], Draws]:
    """Register the function that draws a query's result: rows in, charts out."""

    def register(function: Draws) -> Draws:
        _DRAWS[query] = function
        return function

    return register


@cache
def _load() -> None:
    home = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(home).__path__):
        import_module(f"{home}.{module.name}")


def finding(query: str, rows: list[Row]) -> str | None:
    """Return one sentence about a result, or None when there is nothing true and useful to say."""
    _load()
    function = _SAYS.get(query)
    return function(rows) if function and rows else None


def panels(query: str, rows: list[Row]) -> list[Panel]:
    """Return the charts of a result; none when the query has no chart or the result no rows."""
    _load()
    function = _DRAWS.get(query)
    return function(rows) if function and rows else []


def has_chart(query: str) -> bool:
    """Return whether a query has a chart of its own."""
    _load()
    return query in _DRAWS


def section_title(group: str) -> str:
    """Return the heading of a group of queries."""
    return _TITLES.get(group, group.replace("_", " ").replace("/", ", ").capitalize())


def reading_order(query: str) -> tuple[int, str]:
    """Return what to sort queries by: those that a section module knows in its order, others after them by name."""
    _load()
    known = list(_SAYS)
    return (known.index(query) if query in known else len(known), query)


def sections_in_order(groups: Iterable[str]) -> list[str]:
    """Return the groups that occur, known ones in reading order and others after them by name."""
    known = list(_TITLES)
    return sorted(set(groups), key=lambda g: (known.index(g) if g in known else len(known), g))
