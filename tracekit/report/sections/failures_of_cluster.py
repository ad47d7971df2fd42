"""Failures: what outages of nodes took of the cluster, and when each of the worst nodes was out of service."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.report.axes import date_axis, day_axis, day_scale
from tracekit.report.charts import Panel, category, data, height
from tracekit.report.lines import clock_of
from tracekit.report.phrases import largest, whole_hours
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.report.times import local, span_words, start_of_day, trace_day
from tracekit.text import count, counted, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_ROW = 13
"""Height of a node's row [px]."""
_NAME = 18
"""Most characters of a node's name beside its row."""


def cluster_availability_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say for which part of the time nodes were fit for work, and what outages took."""
    known = {r["metric"]: r["value"] for r in rows}
    share = known.get("availability_share")
    if not known.get("outages") or share is None:
        return None
    gpus = known.get("down_gpu_h")
    took = f"{whole_hours(known['down_node_h'])} node-hours" + ("" if gpus is None else f", {_gpu_hours(known)}")
    text = (
        f"The {counted(known['nodes'], 'nodes')} were fit for work {percent(share)} of the time;"
        f" {counted(known['outages'], 'outages')} of {counted(known['nodes_hit'], 'nodes')} took {took}"
    )
    most = known["most_down_at_once"]
    return f"{text}, at most {counted(most, 'nodes')} at once."


def _gpu_hours(known: dict[str, float]) -> str:
    hours = f"{whole_hours(known['down_gpu_h'])} GPU-hours"
    if known["known_gpu_nodes"] == known["nodes"]:
        return hours
    return f"and {hours} of the {count(known['known_gpu_nodes'])} nodes whose GPUs are known"


def availability_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say when most nodes were out of service."""
    whole = [r for r in rows if r["node_id"] is None]
    worst = largest(whole, "nodes_down")
    if worst is None or not worst["nodes_down"]:
        return None
    mean = sum(r["nodes_down"] for r in whole) / len(whole)
    if worst["span_h"] < 1:  # the log covers hours: a day does not say when
        return f"On average {_nodes(mean)} out of service."
    at = f" at {local(worst['start_time'], facts.timezone):%H:%M}" if facts.clocked else ""
    return (
        f"On average {_nodes(mean)} out of service, and {count(round(worst['nodes_down'], 1))} in the"
        f" {span_words(worst['span_h'] * 3600)} from {start_of_day(worst['start_time'], facts)}{at} on, the most."
    )


def _nodes(number: float) -> str:
    shown = round(number, 1) if number >= 0.1 else round(number, 3)
    return f"{count(shown)} {'node was' if shown == 1 else 'nodes were'}"


def availability_chart(rows: list[Row], facts: TraceFacts) -> list[Panel]:
    """Draw the nodes out of service through time, and below it a strip for each of the worst nodes.

    The query bounds both: a number of spans, and a number of nodes.
    """
    whole = [r for r in rows if r["node_id"] is None]
    nodes = [r for r in rows if r["node_id"] is not None]
    if not nodes:
        return []
    ends = _axis(whole, facts)
    panels = [_whole(whole, ends, facts)]
    panels.append(_strip(nodes, whole, ends, facts))
    return panels


def _whole(rows: list[Row], ends: dict[str, Any], facts: TraceFacts) -> Panel:
    shown = [{**_span(r, facts), "nodes": round(r["nodes_down"], 3), "share": r["down_share"]} for r in rows]
    axis = alt.Axis(title="nodes", tickCount=4)
    drawn = (
        alt.Chart(data(shown))
        .mark_rect(color=colour("status-failed"))
        .encode(
            **ends,
            y=alt.Y("nodes:Q", axis=axis, scale=alt.Scale(domainMin=0, nice=True), stack=None),
            y2=alt.Y2(datum=0),
            tooltip=[
                _when(facts),
                alt.Tooltip("nodes:Q", title="nodes out of service", format=",.1f"),
                alt.Tooltip("share:Q", title="of all nodes", format=".1%"),
            ],
        )
        .properties(height=110)
    )
    return Panel(drawn, title="nodes out of service, average of each span", wide=True)


def _strip(nodes: list[Row], whole: list[Row], ends: dict[str, Any], facts: TraceFacts) -> Panel:
    names = _labels(nodes)
    shown = [
        {**_span(r, facts), "node": names[r["rank"]], "share": round(r["down_share"], 4), "hours": r["down_h"]}
        for r in nodes
    ]
    drawn = (
        alt.Chart(data(shown))
        .mark_rect(color=colour("status-failed"))
        .encode(
            **ends,
            y=category("node", list(names.values()), None),
            opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.15, 1])),
            tooltip=[
                _when(facts),
                alt.Tooltip("node:N"),
                alt.Tooltip("share:Q", title="of the span out of service", format=".0%"),
                alt.Tooltip("hours:Q", title="hours", format=",.1f"),
            ],
        )
        .properties(height=height(len(names), _ROW))
    )
    note = f"Drawn: the {count(len(names))} nodes that were out longest, in {len(whole)} spans; the darker, the longer."
    return Panel(drawn, title="when each of the worst nodes was out of service", note=note, wide=True)


def _labels(nodes: list[Row]) -> dict[int, str]:
    """Return a name for each rank; long ones are cut, and told apart by their rank where two of them are then alike."""
    names = {r["rank"]: shorten(r["node_id"], _NAME) for r in nodes}
    alike = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {rank: f"{name} ({rank})" if name in alike else name for rank, name in sorted(names.items())}


def _span(row: Row, facts: TraceFacts) -> dict[str, Any]:
    length = timedelta(hours=row["span_h"])
    if not facts.dated:
        start = trace_day(row["start_time"], facts)
        return {"from": start, "to": round(start + row["span_h"] / 24, 4)}
    since = local(row["start_time"], facts.timezone)
    return {"from": f"{since.isoformat()[:16]}Z", "to": f"{(since + length).isoformat()[:16]}Z"}


def _axis(whole: list[Row], facts: TraceFacts) -> dict[str, Any]:
    """Return both ends of a span on the axis of time that the two charts share."""
    if not facts.dated:
        last = max(_span(r, facts)["to"] for r in whole)
        return {"x": alt.X("from:Q", scale=day_scale(last), axis=day_axis(last, clock_of(facts))), "x2": alt.X2("to:Q")}
    times = [local(r["start_time"], facts.timezone) for r in whole]
    end = max(times) + timedelta(hours=whole[0]["span_h"])
    # Times are written with a Z, since a browser reads others as its own.
    axis = date_axis(min(times), end, facts.timezone)
    return {"x": alt.X("from:T", scale=alt.Scale(type="utc"), axis=axis), "x2": alt.X2("to:T")}


def _when(facts: TraceFacts) -> alt.Tooltip:
    if facts.dated:
        return alt.Tooltip("from:T", title="from", format="%Y-%m-%d %H:%M")
    return alt.Tooltip("from:Q", title="from day", format=".2f")


PRESENTATIONS = (
    Presentation("failures/cluster_availability", finding=cluster_availability_finding),
    Presentation("failures/availability_over_time", finding=availability_finding, chart=availability_chart),
)
