"""The interface of section modules: how they provide sentences and charts, and how a report requests them.

Every other module in this package has a `PRESENTATIONS` tuple with one entry per question, in reading order. An entry
provides the question's sentence and its charts.
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
    Draws = Callable[[list[Row], TraceFacts], list[Chart] | Chart | None]

__all__ = [
    "Presentation",
    "TraceFacts",
    "charts",
    "finding",
    "glossary",
    "no_tenants",
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
    """How a report shows the answer to a question. Without a presentation, it shows only a table."""

    name: str
    """The question's name."""
    finding: Says
    """Writes one sentence about the rows; returns None if no sentence would be true and useful."""
    chart: Draws | None = None
    """Draws one or more charts of the rows; returns None if a chart would show nothing."""
    why_empty: Says | None = None
    """Returns the reason why the rows carry no information, or None if they do."""
    without_rows: str = ""
    """The sentence for an answer without rows."""
    without_vcs: str = ""
    """The question's wording for a cluster without virtual clusters, if it differs."""


def no_tenants(what: str) -> Says:
    """Return a `why_empty` that points to the results for the whole cluster if the trace has no tenants."""

    def why(_: list[Row], facts: TraceFacts) -> str | None:
        if facts.vcs or not facts.load:
            return None
        return f"The trace has no {facts.tenant.spelled_many}. The {what} of the whole cluster is shown under queueing."

    return why


@cache
def presentations() -> dict[str, Presentation]:
    """Collect the PRESENTATIONS of the modules here by question name, in reading order."""
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
        "The wait of a job is the time from its submission to its first start. The queueing delay per run also counts"
        " the time before later runs. One wait in ten is longer than the 90th percentile."
    ),
    "locality": (
        "A job that needs several GPUs at once is a gang. Its locality is good if its GPUs are on few nodes, so that"
        " they hardly use the network."
    ),
    "utilization": (
        "A GPU is allocated while a job has it, even if the job does not use it, and busy while it computes. Its"
        " utilization is the share of the time in which it computes, as measured by its driver."
    ),
    "money": (
        "A GPU-hour is one GPU allocated for an hour, even if the job does not use it. The prices come from the price"
        " file."
    ),
    "failures": "A failed job may be retried. Each run is an attempt. GPU-hours are GPUs times hours.",
    "replay": (
        "A replay submits the log's jobs again and lets another policy decide when each job starts. Completion"
        " time is wait plus run time."
    ),
    "fit": (
        "A fit is a model of the workload that can generate any number of synthetic jobs. Its error is the"
        " Kolmogorov-Smirnov distance (KS): the largest gap between the observed and fitted shares of jobs that run at"
        " most a given time."
    ),
}
"""Explanations of the terms in each group, for new readers."""

_OUTAGES = (
    "An outage is a period in which a node was down, drained or in maintenance. At all other times, the node is in"
    " service. Its availability is the share of the time in which it is in service."
)
"""Added to the explanation of failures if the trace records when nodes were out of service."""

_VCS = " A virtual cluster (VC) is a team's part of the cluster, with a quota: the number of GPUs that it may use."
"""Added to the explanation of queueing if the trace has VCs."""
_TENANTS = " Jobs are grouped {by}. A quota is the number of GPUs that its jobs may use at once."
"""Added instead if tenants are not VCs."""


def why_empty(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> str | None:
    """Return the reason why the rows of an answer carry no information, or None if they do."""
    one = presentations().get(name)
    return one.why_empty(rows, facts) if one and one.why_empty else None


def finding(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> str | None:
    """Write one sentence about an answer; return None if no sentence would be true and useful."""
    one = presentations().get(name)
    if one is None:
        return None
    return one.finding(rows, facts) if rows else one.without_rows or None


def charts(name: str, rows: list[Row], facts: TraceFacts = DEFAULT_FACTS) -> list[Chart]:
    """Return the charts of an answer that carry information, or none if it has no chart or no rows."""
    one = presentations().get(name)
    drawn = one.chart(rows, facts) if one and one.chart and rows else None
    return [chart for chart in (drawn if isinstance(drawn, list) else [drawn]) if chart is not None and tells(chart)]


def question_of(name: str, question: str, facts: TraceFacts) -> str:
    """Word a question to fit this trace."""
    one = presentations().get(name)
    return one.without_vcs if one and one.without_vcs and not facts.vcs else question


def section_title(group: str) -> str:
    """Return the heading of a group of queries."""
    return _TITLES.get(group, group.replace("_", " ").replace("/", ", ").capitalize())


def section_lead(group: str, facts: TraceFacts = DEFAULT_FACTS) -> str:
    """Explain the terms of a group of queries, or return '' if no explanation is needed."""
    lead = _LEADS.get(group, "")
    if group == "failures":
        return " ".join([*([_OUTAGES] if facts.outages else []), *([lead] if facts.jobs else [])])
    if group != "queuing" or not facts.vcs:
        return lead
    tenant = facts.tenant
    return lead + (_VCS if tenant.one == VC.one else _TENANTS.format(by=tenant.by, a=tenant.a))


def reading_order(name: str) -> tuple[int, str]:
    """Return the sort key of a question: first questions with a presentation, in their order, then others by name."""
    known = list(presentations())
    return (known.index(name) if name in known else len(known), name)


def sections_in_order(groups: Iterable[str]) -> list[str]:
    """Return the groups that occur: first known groups in reading order, then others by name."""
    known = list(_TITLES)
    return sorted(set(groups), key=lambda g: (known.index(g) if g in known else len(known), g))


def glossary(facts: TraceFacts) -> list[tuple[str, str]]:
    """Return the terms with their meanings, using the site's word for the tenant."""
    tenant = facts.tenant
    team = (
        "a team's part of the cluster. Its quota is the number of GPUs that it may use"
        if tenant.one == VC.one
        else f"the unit that separates teams here. The quota of {tenant.a} limits the GPUs that its jobs use at once"
    )
    return [
        ("job", "What a user submits: it starts on all its GPUs at once."),
        ("attempt", "One run of a job. A failed job may be retried."),
        ("gang", "The GPUs that a job needs at the same time."),
        (
            "locality",
            "How close together the GPUs of a gang are. GPUs on few nodes hardly use the network.",
        ),
        (tenant.spelled, f"{team[:1].upper()}{team[1:]}."),
        ("wait", "The time from a job's submission to its first start."),
        ("queueing delay per run", "The time that a run waited, whether it was the job's first run or a retry."),
        ("90th percentile, p90", "Nine in ten values are at most this large."),
        ("GPU-hour", "One GPU allocated for an hour, even if the job does not use it."),
        (
            "allocated or held, busy",
            "A GPU is allocated while a job has it, and busy while it computes, as its driver measures.",
        ),
        ("outage", "A period in which a node was down, drained or in maintenance."),
        ("goodput", "The share of the allocated GPU time that was not start-up, lost or idle."),
        ("replay", "The jobs of the log, scheduled again under another policy."),
        ("completion time", "The wait plus the run time of a job."),
        ("twin, simulation", "The replay whose waits come closest to the waits in the log."),
        ("effect", "How much a change would alter the recorded waits."),
    ]
