"""Failures of nodes: what takes them out of service, for how much of the time, and how long until they are back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.charts import Panel, bars
from tracekit.report.machines_alone import cause_shares
from tracekit.report.phrases import largest
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_CAUSES = 12
"""Most causes drawn."""


def out_of_service_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how often nodes were out of service, and what cost most hours, which need not be what happens most often."""
    out = [r for r in rows if r["state"] != "degraded"]
    events, going_on = (sum(r[name] for r in out) for name in ("events", "going_on"))
    if not events:
        return None
    text = f"Nodes were out of service {counted(events, 'times')}"
    if going_on:
        text += f", {count(going_on)} of which the log does not see the end"
    of, words = _hours_known(out)
    lost = sum(r[of] or 0 for r in out)
    worst = largest(out, of)
    if not lost or worst is None:
        return f"{text}."
    why = f"because of {shorten(worst['cause'], 30)}" if worst["cause"] else "without a stated reason"
    why = "for an unknown cause" if worst["cause"] == "unknown" else why
    if len(out) == 1:
        return f"{text}, {worst['state']} {why}, with {count(lost)} {words}."
    often = f"{percent(worst['events'] / events)} of these times, and {percent(worst[of] / lost)} of the {words}"
    return f"{text}: {often}, they were {worst['state']} {why}."


def _hours_known(rows: list[Row]) -> tuple[str, str]:
    """Return the column by which causes are compared, and its words: GPU-hours where they are known."""
    gpus = any(r["gpu_hours"] for r in rows)
    return ("gpu_hours", "GPU-hours") if gpus else ("node_hours", "node-hours")


def out_of_service_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw which share of the hours each cause took, beside its share of the events."""
    of, words = _hours_known([r for r in rows if r["state"] != "degraded"])
    shares = cause_shares(rows, of)
    if not shares:
        return []
    shown = [{**r, "label": shorten(r["cause"], 30) if r["cause"] else "no reason"} for r in shares[:_CAUSES]]
    panel = bars(
        shown,
        measures={"share": f"share of {words} out of service", "events_share": "share of times out of service"},
        axis_title="share",
        key="label",
        title="cause",
    )
    left = len(shares) - len(shown)
    note = f"Drawn: the {len(shown)} causes with most hours; {left} more." if left else ""
    return [replace(panel, note=note)]


def node_availability_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say for which share of the time the nodes were fit for work, and which one was least."""
    known = [r for r in rows if r["availability_share"] is not None]
    away = [r for r in known if r["events"]]
    if not away:
        return None
    mean = sum(r["availability_share"] for r in known) / len(known)
    worst = min(away, key=lambda r: r["availability_share"])
    share = percent(worst["availability_share"])
    return (
        f"{shorten(worst['node_id'], 40)} was out of service longest, fit for work {share} of the time (all nodes:"
        f" {percent(mean)}); {count(len(away))} of {counted(len(known), 'nodes')} {'was' if len(away) == 1 else 'were'}"
        " out at least once."
    )


def repair_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how long it took until nodes were back from the two commonest causes."""
    told = [r for r in rows if r["p50_h"] and r["cause"] not in (None, "unknown")]
    if not told:
        return None
    first, *second = sorted(told, key=lambda r: (-r["events"], r["cause"]))[:2]
    text = f"Half of the {count(first['events'])} outages by {first['cause']} were over within"
    text += f" {duration(first['p50_h'] * 3600)}"
    for row in second:
        text += f", half of the {count(row['events'])} by {row['cause']} within {duration(row['p50_h'] * 3600)}"
    return f"{text}."


PRESENTATIONS = (
    Presentation("failures/out_of_service", finding=out_of_service_finding, chart=out_of_service_chart),
    Presentation("failures/node_availability", finding=node_availability_finding),
    Presentation("failures/repair_time", finding=repair_time_finding),
)
