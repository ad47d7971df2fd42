"""What the first screen says of machines and their outages: all that it says, where a Trace has no jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.answers import metrics, rows_of
from tracekit.report.first_numbers import plain_number
from tracekit.report.phrases import largest, whole_hours
from tracekit.report.times import span_words
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer, Row
    from tracekit.report.structure import Headline, TimeInfo

__all__ = ["about_machines", "cause_shares", "machine_cards", "outages_clause"]

_QUERY = "failures/cluster_availability"
_UNNAMED = (None, "unknown")
_A_WEEK_H = 168


def about_machines(answers: Mapping[str, Answer], when: TimeInfo | None) -> str | None:
    """Return how many nodes were observed, and what outages took; None where the trace states no events of nodes."""
    known = metrics(answers, _QUERY)
    if not known.get("nodes"):
        return None
    span = f", observed for {span_words(when['span_s'])}" if when is not None and when["span_s"] else ""
    text = f"{counted(known['nodes'], 'nodes')}{span}; the trace holds no jobs."
    share = known.get("availability_share")
    if not known["outages"] or share is None:
        return f"{text} No outage of a node is recorded."
    text += (
        f" The nodes were fit for work {percent(share)} of the time: {counted(known['outages'], 'outages')} of"
        f" {counted(known['nodes_hit'], 'nodes')} took {whole_hours(known['down_node_h'])} node-hours."
    )
    return f"{text}{_costly(rows_of(answers, 'failures/out_of_service'))}"


def outages_clause(answers: Mapping[str, Answer]) -> str | None:
    """Return what outages took, to end the sentence about a cluster with jobs; None where no outage is known.

    Examples
    --------
    '; its nodes were fit for work 98.7 % of the time, with 72 outages of 22 nodes'
    """
    known = metrics(answers, _QUERY)
    share = known.get("availability_share")
    if not known.get("outages") or share is None:
        return None
    outages, hit = counted(known["outages"], "outages"), counted(known["nodes_hit"], "nodes")
    return f"; its nodes were fit for work {percent(share)} of the time, with {outages} of {hit}"


def _costly(rows: list[Row]) -> str:
    """Say which cause took most node-hours, and for which part of them none is known."""
    shares = cause_shares(rows, "node_hours")
    named = [r for r in shares if r["cause"] not in _UNNAMED]
    worst, unnamed = largest(named, "share"), sum(r["share"] for r in shares if r["cause"] in _UNNAMED)
    if worst is None:
        return " Their causes are not known." if unnamed else ""
    text = f" Of these hours {shorten(worst['cause'], 30)} took most, {percent(worst['share'])}"
    return f"{text}; the cause of {percent(unnamed)} is unknown." if unnamed else f"{text}."


def cause_shares(rows: list[Row], hours: str) -> list[Row]:
    """Return the causes of failures/out_of_service, the one with most hours first, without those of degraded nodes.

    Parameters
    ----------
    rows : list of dict
        Of failures/out_of_service.
    hours : str
        Which hours are compared: node_hours or gpu_hours.

    Returns
    -------
    list of dict
        cause, hours [h], share and events_share [0..1] of those of all causes; empty where no hours are known.
    """
    hours_of: dict[str | None, float] = {}
    events_of: dict[str | None, int] = {}
    for row in rows:
        if row["state"] != "degraded":
            hours_of[row["cause"]] = hours_of.get(row["cause"], 0.0) + (row[hours] or 0.0)
            events_of[row["cause"]] = events_of.get(row["cause"], 0) + row["events"]
    total, events = sum(hours_of.values()), sum(events_of.values())
    if not total:
        return []
    return [
        {"cause": cause, "hours": took, "share": took / total, "events_share": events_of[cause] / events}
        for cause, took in sorted(hours_of.items(), key=lambda item: (-item[1], item[0] or ""))
    ]


def machine_cards(answers: Mapping[str, Answer]) -> list[Headline]:
    """Return the numbers of the first screen; none where the trace states no events of nodes."""
    rows = {r["metric"]: r for r in rows_of(answers, _QUERY)}
    known = metrics(answers, _QUERY)
    if not known.get("nodes") or known.get("availability_share") is None:
        return []
    gpus = known.get("down_gpu_h")
    cost = "GPUs of nodes are not known" if gpus is None else f"{whole_hours(gpus)} GPU-hours"
    if gpus is not None and known["known_gpu_nodes"] < known["nodes"]:
        cost += f", of the {count(known['known_gpu_nodes'])} nodes whose GPUs are known"
    going_on = f"; {counted(known['going_on'], 'events')} had not ended" if known["going_on"] else ""
    # A rate a year is no rate of hours or days.
    yearly = f"{count(round(known['outages_per_node_year'], 2))} a node and year"
    often = yearly if known["observed_h"] >= _A_WEEK_H else f"in {span_words(known['observed_h'] * 3600)}"
    texts = {
        "availability_share": ("of the time fit for work", percent, "the mean over all nodes"),
        "nodes": ("nodes", count, f"{count(known['nodes_hit'])} of them had an outage"),
        "outages": ("outages", count, f"{often}{going_on}"),
        "down_node_h": ("node-hours out of service", whole_hours, cost),
        "most_down_at_once": ("nodes out at once", count, "the most at one moment"),
    }
    return [
        plain_number(label, known[name], rows[name]["unit"], write(known[name]), note)
        for name, (label, write, note) in texts.items()
    ]
