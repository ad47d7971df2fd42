"""Failures of nodes: what takes them out of service, for how much of the time, and how long until they are back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.phrases import enough, largest
from tracekit.report.sections.interface import Presentation
from tracekit.text import count, counted, duration, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


def out_of_service_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say how many GPU-hours nodes were out of service for, and what cost most of them."""
    out = [r for r in rows if r["state"] != "degraded"]
    events, going_on = (sum(r[name] for r in out) for name in ("events", "going_on"))
    if not events:
        return None
    lost = sum(r["gpu_hours"] or 0 for r in out)
    text = f"Nodes were out of service {counted(events, 'times')}"
    if going_on:
        text += f", {count(going_on)} of which the log does not see the end"
    worst = largest(out, "gpu_hours")
    if not lost or worst is None:
        return f"{text}."
    why = f"for {shorten(worst['cause'], 30)}" if worst["cause"] else "without a reason"
    return (
        f"{text}, with {count(lost)} GPU-hours; {percent(worst['gpu_hours'] / lost)} of these were of nodes"
        f" {worst['state']} {why}."
    )


def node_availability_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say for which share of the time the nodes were fit for work, and which one was least."""
    known = [r for r in rows if r["availability_share"] is not None]
    away = [r for r in known if r["events"]]
    if not away:
        return None
    mean = sum(r["availability_share"] for r in known) / len(known)
    worst = min(away, key=lambda r: r["availability_share"])
    text = (
        f"Nodes were fit for work {percent(mean)} of the time, the mean of {counted(len(known), 'nodes')};"
        f" {count(len(away))} of them {'was' if len(away) == 1 else 'were'} out of service at least once"
    )
    if len(away) == 1:
        return f"{text}."
    return f"{text}, and {shorten(worst['node_id'], 40)} most: it was fit {percent(worst['availability_share'])}."


def repair_time_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say what took longest until nodes were back, among causes with enough events."""
    told = [r for r in enough(rows, "events") if r["p50_h"] is not None and r["cause"] not in (None, "unknown")]
    if not told:
        return None
    slow, quick = (pick(told, key=lambda r: r["p50_h"]) for pick in (max, min))
    text = "Half of the times out of service were over within"
    if slow is quick:
        return f"{text} {duration(slow['p50_h'] * 3600)} where the cause was {slow['cause']}."
    return (
        f"{text} {duration(quick['p50_h'] * 3600)} where the cause was {quick['cause']}, and within"
        f" {duration(slow['p50_h'] * 3600)} where it was {slow['cause']}."
    )


PRESENTATIONS = (
    Presentation("failures/out_of_service", finding=out_of_service_finding),
    Presentation("failures/node_availability", finding=node_availability_finding),
    Presentation("failures/repair_time", finding=repair_time_finding),
)
