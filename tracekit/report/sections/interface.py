"""The interface of section modules: how they offer sentences and charts, and how a report asks for them.

Each module beside this one has a tuple `PRESENTATIONS`: one entry per question, in reading order, with its sentence and
its chart.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from tracekit.report.facts import DEFAULT_FACTS, TraceFacts
from tracekit.report.telling import tells
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.answer import Row
    from tracekit.report.charts import Chart

    Says = Callable[[list[Row], TraceFacts], str | None]
    Draws = Callable[[list[Row], TraceFacts], list[Chart]]

__all__ = [
    "Presentation",
    "TraceFacts",
    "charts",
    "finding",
    "glossary",
    "may_be_empty",
    "presentations",
    "question_of",
    "reading_order",
    "section_lead",
    "section_title",
    "sections_in_order",
    "why_empty",
]


@dataclass(frozen=True)
class Presentation:
    """How a report shows the answer to a question; a question without one has only its table."""

    name: str
    """The question's name."""
    finding: Says
    """Writes one sentence from the rows; None where there is nothing true and useful to say."""
    chart: Draws | None = None
    """Draws the charts of the rows."""
    why_empty: Says | None = None
    """Returns why the rows say nothing, None where they do say something."""
    without_rows: str = ""
    """The sentence for an answer without rows."""
    without_vcs: str = ""
    """The question as it is asked of a cluster without virtual clusters, where it differs."""


@cache
def presentations() -> dict[str, Presentation]:
    """Return the presentation of each question by name, in reading order (the PRESENTATIONS of the modules here)."""
    home = __name__.rpartition(".")[0]
    modules = [import_module(f"{home}.{m.name}") for m in pkgutil.iter_modules(import_module(home).__path__)]
    return {one.name: one for module in modules for one in getattr(module, "PRESENTATIONS", ())}


_TITLES = {
    "overview": "Jobs at a glance",
    "change": "What changed",
    "queuing": "Queueing",
    "locality": "Locality",
    "utilization": "Utilization",
    "failures": "What breaks, and what it costs",
    "money": "Money",
    "users": "Users",
    "workload": "Workload",
    "replay": "Replays of other policies",
    "plan": "How many nodes",
    "fit": "Fitted workload",
}


_LEADS = {
    "queuing": (
        "The wait of a job is the time from its submission to its first start. The queueing delay per attempt also"
        " counts the time before each later attempt. One wait in ten is longer than the 90th percentile."
    ),
    "locality": (
        "A job that needs several GPUs at once is a gang. Its locality is good where these GPUs stand on few nodes, so"
        " that they need not talk over the network. Each run of a job is an attempt."
    ),
    "utilization": (
        "A GPU is held while a job has it, whatever the job does with it, and busy while it computes: its utilization"
        " is the part of the time in which it did, as its driver measures it."
    ),
    "money": (
        "A GPU-hour is one GPU held for an hour, whatever the job does with it; the prices are those of a file that was"
        " given."
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
"""Explanations of the terms of a group, for readers who are new to them."""

_OUTAGES = (
    "An outage is a time in which a node was down, drained or in maintenance. A node is fit for work otherwise; its"
    " availability is the part of the time in which it was."
)
"""What is said of failures where the trace tells when nodes were out of service."""

_VCS = " A virtual cluster (VC) is the part of the cluster that a team shares, with a quota: the GPUs that it may hold."
"""What is added for queueing where there are VCs."""
_TENANTS = " Jobs are told apart {by}; the quota of {a} is what its jobs may hold at once."
"""The same where tenants are something else."""


def may_be_empty(name: str) -> bool:
    """Return whether the rows of an answer may say nothing."""
    one = presentations().get(name)
    return one is not None and one.why_empty is not None


def why_empty(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> str | None:
    """Return why the rows of an answer say nothing; None where they do say something."""
    one = presentations().get(name)
    return one.why_empty(rows, facts) if one and one.why_empty else None


def finding(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> str | None:
    """Return one sentence about an answer, or None when there is nothing true and useful to say."""
    one = presentations().get(name)
    if one is None:
        return None
    return one.finding(rows, facts) if rows else one.without_rows or None


def charts(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> list[Chart]:
    """Return the charts of an answer; none when it has no chart or no rows, and none that tells nothing."""
    one = presentations().get(name)
    return [chart for chart in one.chart(rows, facts) if tells(chart)] if one and one.chart and rows else []


def question_of(name: str, question: str, facts: TraceFacts) -> str:
    """Return a question as it is asked of this trace."""
    one = presentations().get(name)
    return one.without_vcs if one and one.without_vcs and not facts.vcs else question


def section_title(group: str) -> str:
    """Return the heading of a group of queries."""
    return _TITLES.get(group, group.replace("_", " ").replace("/", ", ").capitalize())


def section_lead(group: str, facts: TraceFacts = DEFAULT_FACTS) -> str:
    """Return an explanation of the terms of a group of queries; '' where none is needed."""
    lead = _LEADS.get(group, "")
    if group == "failures":
        return " ".join([*([_OUTAGES] if facts.outages else []), *([lead] if facts.jobs else [])])
    if group != "queuing" or not facts.vcs:
        return lead
    tenant = facts.tenant
    return lead + (_VCS if tenant.one == VC.one else _TENANTS.format(by=tenant.by, a=tenant.a))


def reading_order(name: str) -> tuple[int, str]:
    """Return the sort key of a question: first those with a presentation, in that order, then the others by name."""
    known = list(presentations())
    return (known.index(name) if name in known else len(known), name)


def sections_in_order(groups: Iterable[str]) -> list[str]:
    """Return the groups that occur, known ones in reading order and others after them by name."""
    known = list(_TITLES)
    return sorted(set(groups), key=lambda g: (known.index(g) if g in known else len(known), g))


def glossary(facts: TraceFacts) -> list[tuple[str, str]]:
    """Return the terms with what they mean; the tenant is called by the site's word."""
    tenant = facts.tenant
    team = (
        "the part of the cluster that a team shares; its quota is the GPUs that it may hold"
        if tenant.one == VC.one
        else f"what tells teams apart here; the quota of {tenant.a} is what its jobs may hold at once"
    )
    return [
        ("job", "What a user submits: it starts on all its GPUs at once."),
        ("attempt", "Each run of a job; one that fails may be tried again."),
        ("gang", "The GPUs that a job needs at the same time."),
        (
            "locality",
            "How near to each other the GPUs of a gang stand; on few nodes they hardly need the network.",
        ),
        (tenant.spelled, f"{team[:1].upper()}{team[1:]}."),
        ("wait", "The time from a job's submission to its first start."),
        ("queueing delay per attempt", "The time that each attempt queued, the first and the later ones."),
        ("90th percentile, p90", "Nine values in ten are no larger."),
        ("GPU-hour", "One GPU held for an hour, whatever the job does with it."),
        ("held, used", "A GPU is held while a job has it, and used while it computes, as its driver measures it."),
        ("outage", "A time in which a node was down, drained or in maintenance."),
        ("goodput", "The part of the held GPU time that was neither start-up nor lost nor idle."),
        ("replay", "The jobs of the log, scheduled again under another policy."),
        ("completion time", "The wait and the run time of a job together."),
        ("twin", "The replay whose waits come nearest to those that the log recorded."),
        ("effect", "What a change would do to the waits that the log recorded, not to those of another replay."),
    ]
