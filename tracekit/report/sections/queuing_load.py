"""Queueing: why jobs wait, who overtakes whom, and how full the cluster is through time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.charts import GPU_CLASSES, Panel, bars, data, palette
from tracekit.report.sections.interface import chart, says
from tracekit.report.theme import colour
from tracekit.report.words import gpu_jobs, largest
from tracekit.text import count, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.report.structure import Row

CLUSTERS = 4
"""Most clusters drawn."""


@says("queuing/delay_causes")
def causes_finding(rows: list[Row]) -> str | None:
    """Say which part of the waits of GPU jobs each cause explains, and whom it hits most."""
    sized = [r for r in rows if r["gpu_class"] != "0" and r["waits"]]
    waits = sum(r["waits"] for r in sized)
    if not waits:
        return None
    fair = sum(r["fair_share_waits"] for r in sized)
    text = f"Of {count(waits)} waits of GPU jobs, {percent(fair / waits)} were mostly due to the quota of their VC"
    waited = sum(r["wait_s"] for r in sized)
    if fair and waited:
        text += (
            f" (the quota explains {percent(sum(r['fair_share_wait_s'] for r in sized) / waited)} of all time waited)"
        )
    placed = [r for r in sized if r["fragmentation_waits"] is not None]
    if placed:
        fragmented = sum(r["fragmentation_waits"] for r in placed)
        text += f" and {percent(fragmented / waits)} to free GPUs being scattered over the nodes"
    else:
        text += "; whether scattered GPUs played a part cannot be told without nodes"
    hit = largest(sized, "fair_share_share")
    if hit is not None and hit["fair_share_share"] and len(sized) > 1:
        text += (
            f". The quota holds up {gpu_jobs(hit['gpu_class'])} most: {percent(hit['fair_share_share'])} of their waits"
        )
    return text + "."


@chart("queuing/delay_causes")
def causes_chart(rows: list[Row]) -> list[Panel]:
    """Draw the share of waits that each cause explains, by size class."""
    known = [r for r in rows if r["waits"] and r["gpu_class"] in GPU_CLASSES[1:]]
    if not known:
        return []
    measures = {"fair_share_share": "quota of the VC", "fragmentation_share": "scattered free GPUs"}
    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in known)}
    return [
        bars(
            known,
            key="gpu_class",
            values=[r["gpu_class"] for r in known],
            title="GPUs of the job",
            measures=present,
            axis_title="share of the waits with this main cause",
        )
    ]


@says("queuing/out_of_order")
def order_finding(rows: list[Row]) -> str | None:
    """Say how many starts overtook somebody, and how much of that was harmless."""
    starts, early = sum(r["starts"] for r in rows), sum(r["out_of_order_starts"] for r in rows)
    if not starts:
        return None
    if not early:
        return f"None of {count(starts)} starts of GPU jobs overtook a job of the same VC that had queued longer."
    text = f"{percent(early / starts)} of {count(starts)} starts of GPU jobs overtook a job of the same VC"
    told = [r for r in rows if r["harmless_share"] is not None]
    weight = sum(r["out_of_order_starts"] for r in told)
    if weight:
        harmless = sum(r["harmless_share"] * r["out_of_order_starts"] for r in told) / weight
        text += f"; {percent(harmless)} of these took nothing from it, since it could not have started then"
    most = largest(rows, "overtaken_jobs")
    if most is not None and most["overtaken_jobs"]:
        text += f". Most often overtaken are {gpu_jobs(most['gpu_class'])} ({count(most['overtaken_jobs'])} jobs)"
    return text + "."


@chart("queuing/out_of_order")
def order_chart(rows: list[Row]) -> list[Panel]:
    """Draw the share of starts that overtook somebody, by size class."""
    known = [r for r in rows if r["out_of_order_share"] is not None]
    if not known:
        return []
    return [
        bars(
            known,
            key="gpu_class",
            values=[r["gpu_class"] for r in known],
            title="GPUs of the job",
            measures={"out_of_order_share": "starts that overtook another job"},
            axis_title="share of the starts",
        )
    ]


@says("queuing/cluster_timeline")
def timeline_finding(rows: list[Row]) -> str | None:
    """Say how much was held on average, and when most was waited for."""
    held = sum(r["running_gpus"] for r in rows)
    if not rows or not held:
        return None
    owned = sum(r["capacity_gpus"] for r in rows if r["capacity_gpus"] is not None)
    used = sum(r["running_gpus"] for r in rows if r["capacity_gpus"] is not None)
    text = (
        f"Over the whole trace, jobs held {percent(used / owned)} of the GPUs"
        if owned
        else f"On average jobs held {count(round(held / len({r['time'] for r in rows})))} GPUs"
    )
    worst = largest(rows, "pending_gpus")
    if worst is not None and worst["pending_gpus"] >= 1:
        text += (
            f". Most was waited for from {_minute(worst['time'])} UTC on: {count(round(worst['pending_gpus']))} GPUs, "
            f"while jobs held {count(round(worst['running_gpus']))}"
        )
    return text + "."


def _minute(time: str) -> str:
    """Return an ISO time to the minute, with a blank in the middle."""
    return time[:16].replace("T", " ")


@chart("queuing/cluster_timeline")
def timeline_chart(rows: list[Row]) -> list[Panel]:
    """Draw GPUs held, waited for and owned through time, one chart a cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    drawn = []
    for cluster in clusters[:CLUSTERS]:
        own = [r for r in rows if r["cluster"] == cluster]
        lines = {"running_gpus": "held", "pending_gpus": "waited for", "capacity_gpus": "owned"}
        drawn.append(_lines(own, lines, "GPUs", title=cluster or "" if len(clusters) > 1 else ""))
    return drawn


@says("locality/fragmentation")
def fragmentation_finding(rows: list[Row]) -> str | None:
    """Say which part of the free GPUs a large gang could have used."""
    free = sum(r["free_gpus"] for r in rows)
    if not free:
        return "No GPU was free at any of the moments looked at." if rows else None
    usable = sum(r["largest_gang"] for r in rows)
    whole = sum(1 for r in rows if r["whole_free_nodes"])
    return (
        f"One job with good locality could have taken {percent(usable / free)} of the GPUs that were free, on average; "
        f"at {percent(whole / len(rows))} of the moments looked at at least one node was wholly free."
    )


@chart("locality/fragmentation")
def fragmentation_chart(rows: list[Row]) -> list[Panel]:
    """Draw free GPUs and the largest gang that would fit through time, one chart a cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    lines = {"free_gpus": "free", "largest_gang": "of use to one gang"}
    return [
        _lines([r for r in rows if r["cluster"] == c], lines, "GPUs", title=c or "" if len(clusters) > 1 else "")
        for c in clusters[:CLUSTERS]
    ]


def _lines(rows: Sequence[Row], measures: dict[str, str], axis: str, *, title: str) -> Panel:
    import altair as alt

    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in rows)}
    names = {words: colour(f"series-{i}") for i, words in enumerate(present.values(), 1)}
    # A Z makes the browser read the time as UTC and not as its own. One row holds all measures: a page has many.
    wide = [
        {
            "time": f"{r['time'][:16]}Z",
            **{words: None if r[column] is None else round(r[column], 1) for column, words in present.items()},
        }
        for r in rows
    ]
    drawn = (
        alt.Chart(data(wide))
        .transform_fold(list(names), as_=["measure", "value"])
        .mark_line(interpolate="step-after", strokeWidth=1.3)
        .encode(
            x=alt.X("time:T", scale=alt.Scale(type="utc"), axis=alt.Axis(title="time (UTC)", labelOverlap="greedy")),
            y=alt.Y("value:Q", axis=alt.Axis(title=axis, tickCount=4), scale=alt.Scale(domainMin=0)),
            color=alt.Color("measure:N", scale=palette(names)),
            tooltip=[
                alt.Tooltip("time:T", title="from", format="%Y-%m-%d %H:%M"),
                alt.Tooltip("measure:N", title="GPUs"),
                alt.Tooltip("value:Q", format=",.1f"),
            ],
        )
        .properties(height=180)
    )
    return Panel(drawn, tuple(names.items()), title=title)
