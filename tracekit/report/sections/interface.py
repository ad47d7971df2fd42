"""How a section module offers its sentences and charts, and how a report asks for them."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from tracekit.report.watched import NOTHING, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.answer import Row
    from tracekit.report.charts import Panel

    Says = Callable[[list[Row]], str | None]
    Draws = Callable[[list[Row]], list[Panel]]
    SaysOf = Callable[[list[Row], "Facts"], str | None]
    DrawsOf = Callable[[list[Row], "Facts"], list[Panel]]

__all__ = [
    "Facts",
    "chart",
    "chart_of",
    "empty",
    "finding",
    "has_chart",
    "may_be_empty",
    "panels",
    "question_of",
    "reading_order",
    "says",
    "says_of",
    "section_lead",
    "section_title",
    "sections_in_order",
    "why_empty",
]


@dataclass(frozen=True)
class Facts:
    """What a sentence or a chart must know of the trace besides the rows."""

    vcs: bool = True
    """Whether jobs belong to virtual clusters."""
    quotas: bool = True
    """Whether the trace states what VCs may use; the most that each held stands for it otherwise."""
    retried: bool = False
    """Whether attempts that were tried again count as failed, since the source does not say how they ended."""
    load: bool = True
    """Whether the load of the whole cluster through time is answered."""
    watched: Watched = NOTHING
    """What telemetry watches."""
    dated: bool = True
    """Whether times are dates; they count from the start of the trace otherwise, which stands at 1970-01-01."""
    timezone: str = "UTC"
    """In which dates and hours are shown."""
    last_submission: str | None = None
    """When the last job came [ISO time, UTC]; None where it is not known."""


_SAYS: dict[str, SaysOf] = {}
_DRAWS: dict[str, DrawsOf] = {}
_NOTHING: dict[str, str] = {}
_EMPTY: dict[str, SaysOf] = {}

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


_LEADS = {
    "queuing": (
        "A job waits from its submission to its start, and again where it is tried again: each of these waits counts."
        " One wait in ten is longer than the 90th percentile."
    ),
    "locality": (
        "A job that needs several GPUs at once is a gang. Its locality is good where these GPUs stand on few nodes, so"
        " that they need not talk over the network. Each run of a job is an attempt."
    ),
    "utilization": (
        "A GPU is held while a job has it, whatever the job does with it, and busy while it computes: its utilization"
        " is the part of the time in which it did, as its driver measures it."
    ),
    "failures": "A job that fails may be tried again; each try is an attempt. GPU-hours are GPUs times hours held.",
    "replay": (
        "A replay submits the jobs of the log again and lets another policy decide who starts when. The completion time"
        " of a job is its wait and its run time together."
    ),
    "fit": (
        "A fit is a formula for the workload, from which as many synthetic jobs can be drawn as are wanted. How far a"
        " fit is off is the largest gap between two shares: of the jobs that run no longer than some time as observed,"
        " and by the formula (the Kolmogorov-Smirnov distance, KS)."
    ),
}
"""What the words of a group mean, for readers who meet them first."""

_VCS = " A virtual cluster (VC) is the part of the cluster that a team shares, with a quota: the GPUs that it may hold."
"""What is added for queueing where there are VCs."""


def says(query: str, *, nothing: str = "") -> Callable[[Says], Says]:
    """Register the function that writes a query's finding: rows in, one sentence or None out.

    Parameters
    ----------
    query : str
        The query's name.
    nothing : str
        What a result without rows means.
    """

    def register(function: Says) -> Says:
        _SAYS[query] = lambda rows, _: function(rows)
        if nothing:
            _NOTHING[query] = nothing
        return function

    return register


def says_of(query: str) -> Callable[[SaysOf], SaysOf]:
    """Register a function like those of `says` that must know more of the trace."""

    def register(function: SaysOf) -> SaysOf:
        _SAYS[query] = function
        return function

    return register


def empty(query: str) -> Callable[[SaysOf], SaysOf]:
    """Register the function that tells when a result answers nothing: the reason out, or None when it answers."""

    def register(function: SaysOf) -> SaysOf:
        _EMPTY[query] = function
        return function

    return register


def may_be_empty(query: str) -> bool:
    """Return whether a result of a query may answer nothing although it could run."""
    _load()
    return query in _EMPTY


def why_empty(query: str, rows: list[Row], facts: Facts = Facts()) -> str | None:
    """Return why a result answers nothing although its query could run; None when it does."""
    _load()
    function = _EMPTY.get(query)
    return function(rows, facts) if function else None


def chart(query: str) -> Callable[[Draws], Draws]:
    """Register the function that draws a query's result: rows in, charts out."""

    def register(function: Draws) -> Draws:
        _DRAWS[query] = lambda rows, _: function(rows)
        return function

    return register


def chart_of(query: str) -> Callable[[DrawsOf], DrawsOf]:
    """Register a function like those of `chart` that must know more of the trace."""

    def register(function: DrawsOf) -> DrawsOf:
        _DRAWS[query] = function
        return function

    return register


@cache
def _load() -> None:
    home = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(import_module(home).__path__):
        import_module(f"{home}.{module.name}")


def finding(query: str, rows: list[Row], facts: Facts = Facts()) -> str | None:
    """Return one sentence about a result, or None when there is nothing true and useful to say."""
    _load()
    if not rows:
        return _NOTHING.get(query)
    function = _SAYS.get(query)
    return function(rows, facts) if function else None


def panels(query: str, rows: list[Row], facts: Facts = Facts()) -> list[Panel]:
    """Return the charts of a result; none when the query has no chart or the result no rows."""
    _load()
    function = _DRAWS.get(query)
    return function(rows, facts) if function and rows else []


def has_chart(query: str) -> bool:
    """Return whether a query has a chart of its own."""
    _load()
    return query in _DRAWS


_WITHOUT_VCS = {
    "queuing/queue_delay": "How long do jobs wait, and do larger jobs wait longer?",
    "queuing/delay_causes": "Do jobs wait because too few GPUs are free, or because free GPUs are scattered?",
    "queuing/out_of_order": "How often do jobs overtake others, and does it cost those anything?",
}
"""Questions of a cluster that is not divided."""


def question_of(query: str, question: str, facts: Facts) -> str:
    """Return the question of a query as it is asked of this trace."""
    return question if facts.vcs else _WITHOUT_VCS.get(query, question)


def section_title(group: str) -> str:
    """Return the heading of a group of queries."""
    return _TITLES.get(group, group.replace("_", " ").replace("/", ", ").capitalize())


def section_lead(group: str, facts: Facts = Facts()) -> str:
    """Return what the words of a group of queries mean; '' where they need no word."""
    return _LEADS.get(group, "") + (_VCS if group == "queuing" and facts.vcs else "")


def reading_order(query: str) -> tuple[int, str]:
    """Return what to sort queries by: those that a section module knows in its order, others after them by name."""
    _load()
    known = list(_SAYS)
    return (known.index(query) if query in known else len(known), query)


def sections_in_order(groups: Iterable[str]) -> list[str]:
    """Return the groups that occur, known ones in reading order and others after them by name."""
    known = list(_TITLES)
    return sorted(set(groups), key=lambda g: (known.index(g) if g in known else len(known), g))
