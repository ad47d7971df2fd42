"""Queueing: why jobs wait, who overtakes whom, and how full the cluster is through time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.report.axes import date_axis
from tracekit.report.charts import GPU_CLASSES, Panel, bars, data, palette
from tracekit.report.sections.interface import Facts, chart, chart_of, empty, says, says_of
from tracekit.report.theme import colour
from tracekit.report.when import local, start_of_day, trace_day
from tracekit.report.words import FEW, gpu_jobs, held_share, largest, owned_gpus, sample_size
from tracekit.text import count, counted, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

    from tracekit.report.structure import Row

FEW_HELD = 0.05
"""Share of the GPUs held below which the log hardly holds all jobs of the cluster."""

CLUSTERS = 4
"""Most clusters drawn."""


@says_of("queuing/delay_causes")
def causes_finding(rows: list[Row], facts: Facts) -> str | None:
    """Say which part of the waits of GPU jobs each cause explains, and whom it hits most."""
    sized = [r for r in rows if r["gpu_class"] != "0" and r["waits"]]
    waits = sum(r["waits"] for r in sized)
    if not waits:
        return None
    fair = sum(r["fair_share_waits"] for r in sized)
    text = f"Of {count(waits)} waits of GPU jobs above 0 s, {percent(fair / waits)} were mostly due to {_quota(facts)}"
    waited = sum(r["wait_s"] for r in sized)
    if fair and waited:
        text += f" (it explains {percent(sum(r['fair_share_wait_s'] for r in sized) / waited)} of all time waited)"
    placed = [r for r in sized if r["fragmentation_waits"] is not None]
    if placed:
        fragmented = sum(r["fragmentation_waits"] for r in placed)
        text += f" and {percent(fragmented / waits)} to free GPUs being scattered over the nodes"
    else:
        text += "; whether scattered GPUs played a part cannot be told without nodes"
    hit = largest(sized, "fair_share_share")
    if hit is not None and hit["fair_share_share"] and len(sized) > 1:
        part = f"{percent(hit['fair_share_share'])} of their waits{sample_size(hit['waits'])}"
        text += f". It holds up {gpu_jobs(hit['gpu_class'])} most: {part}"
    return text + "."


def _quota(facts: Facts) -> str:
    return "the quota of their VC" if facts.vcs else "too few free GPUs in the whole cluster"


@chart_of("queuing/delay_causes")
def causes_chart(rows: list[Row], facts: Facts) -> list[Panel]:
    """Draw the share of waits that each cause explains, by size class."""
    known = [r for r in rows if r["waits"] and r["gpu_class"] in GPU_CLASSES[1:]]
    if not known:
        return []
    full = "quota of the VC" if facts.vcs else "too few free GPUs"
    measures = {"fair_share_share": full, "fragmentation_share": "scattered free GPUs"}
    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in known)}
    if not any(r[c] for r in known for c in present):
        return []
    return [
        bars(
            known,
            key="gpu_class",
            values=[r["gpu_class"] for r in known],
            title="GPUs of the job",
            measures=present,
            axis_title="share of the waits with this main cause",
            count="waits",
        )
    ]


@says_of("queuing/out_of_order")
def order_finding(rows: list[Row], facts: Facts) -> str | None:
    """Say how many starts overtook somebody, and how much of that was harmless."""
    starts, early = sum(r["starts"] for r in rows), sum(r["out_of_order_starts"] for r in rows)
    if not starts:
        return None
    if not early:
        return f"None of {count(starts)} starts of GPU jobs overtook a job{_of_vc(facts)} that had queued longer."
    part = f" ({percent(early / starts)})" if starts >= FEW else ""
    text = f"{count(early)} of {count(starts)} starts of GPU jobs{part} overtook a job{_of_vc(facts)}"
    told = [r for r in rows if r["harmless_share"] is not None]
    weight = sum(r["out_of_order_starts"] for r in told)
    if weight:
        harmless = sum(r["harmless_share"] * r["out_of_order_starts"] for r in told) / weight
        text += f"; {_harm(harmless)}"
    most = largest(rows, "overtaken_jobs")
    if most is not None and most["overtaken_jobs"]:
        text += f". Most often overtaken are {gpu_jobs(most['gpu_class'])} ({counted(most['overtaken_jobs'], 'jobs')})"
    return text + "."


def _harm(harmless: float) -> str:
    if harmless == 0:
        return "each time the overtaken job could have started just then"
    when = "each time" if harmless == 1 else f"in {percent(harmless)} of these cases"
    return f"{when} the overtaken job lost nothing, since it could not have started then"


def _of_vc(facts: Facts) -> str:
    return " of the same VC" if facts.vcs else ""


@chart("queuing/out_of_order")
def order_chart(rows: list[Row]) -> list[Panel]:
    """Draw the share of starts that overtook somebody, by size class."""
    known = [r for r in rows if r["out_of_order_share"] is not None]
    if not any(r["out_of_order_share"] for r in known):
        return []
    return [
        bars(
            known,
            key="gpu_class",
            values=[r["gpu_class"] for r in known],
            title="GPUs of the job",
            measures={"out_of_order_share": "starts that overtook another job"},
            axis_title="share of the starts",
            count="starts",
        )
    ]


@says_of("queuing/cluster_timeline")
def timeline_finding(rows: list[Row], facts: Facts) -> str | None:
    """Say how much was held on average and at most, and when most was waited for."""
    times = len({r["time"] for r in rows})
    held = sum(r["running_gpus"] for r in rows)
    if not held:
        return None
    share = held_share(rows)
    mean = count(round(held / times))
    text = (
        f"On average jobs held {mean} GPUs"
        if share is None
        else f"Over the whole trace, jobs held {percent(share)} of {count(round(owned_gpus(rows) or 0))} GPUs,"
        f" {mean} on average"
    )
    text += f" and {count(round(_fullest(rows)))} in the fullest of the {count(times)} spans drawn"
    if share is not None and share < FEW_HELD:
        text += "; the log may hold a part of the cluster's jobs only"
    above = sum(r["capacity_gpus"] is not None and r["running_gpus"] > r["capacity_gpus"] + 0.5 for r in rows)
    if above:
        text += (
            f". In {counted(above, 'spans')} jobs held more GPUs than are owned: one of the two numbers is wrong there"
        )
    worst = largest(rows, "pending_gpus")
    if worst is not None and worst["pending_gpus"] >= 1:
        text += (
            f". The longest queue began {_minute(worst['time'], facts)}: waiting jobs asked for"
            f" {count(round(worst['pending_gpus']))} GPUs, while jobs held {count(round(worst['running_gpus']))}"
        )
    return text + "."


def _fullest(rows: list[Row]) -> float:
    """Return the most GPUs held in one interval, over all clusters."""
    held: dict[str, float] = {}
    for row in rows:
        held[row["time"]] = held.get(row["time"], 0.0) + row["running_gpus"]
    return max(held.values())


@empty("queuing/timeline")
def no_vc_timeline(_: list[Row], facts: Facts) -> str | None:
    """Say where the whole cluster is shown, where there are no VCs."""
    return None if facts.vcs else "The trace has no virtual clusters; the load of the whole cluster is shown above."


@says("queuing/timeline")
def vc_timeline_finding(_: list[Row]) -> str:
    """Say where to look; a report may hold the first rows only, which tell nothing of the whole time."""
    return "The table shows the means of the first intervals, its file those of all."


def _minute(time: str, facts: Facts) -> str:
    """Return an ISO time to the minute in words."""
    at = f" at {local(time, facts.timezone):%H:%M}" if facts.dated else ""
    return f"on {start_of_day(time, facts)}{at}"


@chart_of("queuing/cluster_timeline")
def timeline_chart(rows: list[Row], facts: Facts) -> list[Panel]:
    """Draw GPUs held, waited for and owned through time, one chart a cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    drawn = []
    for cluster in clusters[:CLUSTERS]:
        own = [r for r in rows if r["cluster"] == cluster]
        lines = {"running_gpus": "held", "pending_gpus": "waited for", "capacity_gpus": "owned"}
        top = max(max(r["running_gpus"], r["pending_gpus"]) for r in own)
        note = ""
        if top < FEW_HELD * max((r["capacity_gpus"] or 0 for r in own), default=0):
            # A line far above would press the others flat.
            del lines["capacity_gpus"]
            note = "What is owned is not drawn: it is far above."
        drawn.append(_lines(own, lines, facts, title=cluster or "" if len(clusters) > 1 else "", note=note))
    return drawn


@says("locality/fragmentation")
def fragmentation_finding(rows: list[Row]) -> str | None:
    """Say which part of the free GPUs a large gang could have used."""
    free = sum(r["free_gpus"] for r in rows)
    if not free:
        return "No GPU was free at any of the moments looked at." if rows else None
    usable = sum(r["largest_gang"] for r in rows)
    whole = sum(1 for r in rows if r["whole_free_nodes"]) / len(rows)
    when = "every moment" if whole == 1 else f"{percent(whole)} of the moments"
    return (
        f"One job with good locality could have taken {percent(usable / free)} of the GPUs that were free, on average; "
        f"at {when} looked at, one node or more was wholly free."
    )


@chart_of("locality/fragmentation")
def fragmentation_chart(rows: list[Row], facts: Facts) -> list[Panel]:
    """Draw free GPUs and the largest gang that would fit through time, one chart a cluster."""
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    lines = {"free_gpus": "free", "largest_gang": "of use to one gang"}
    return [
        _lines([r for r in rows if r["cluster"] == c], lines, facts, title=c or "" if len(clusters) > 1 else "")
        for c in clusters[:CLUSTERS]
    ]


def _lines(rows: Sequence[Row], measures: dict[str, str], facts: Facts, *, title: str, note: str = "") -> Panel:
    import altair as alt

    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in rows)}
    names = {words: colour(f"series-{i}") for i, words in enumerate(present.values(), 1)}
    # One row holds all measures: a page has many.
    wide = [
        {
            "time": f"{local(r['time'], facts.timezone).isoformat()[:16]}Z" if facts.dated else trace_day(r["time"]),
            **{words: None if r[column] is None else round(r[column], 1) for column, words in present.items()},
        }
        for r in rows
    ]
    drawn = (
        alt.Chart(data(wide))
        .transform_fold(list(names), as_=["measure", "value"])
        .mark_line(interpolate="step-after", strokeWidth=1.3)
        .encode(
            x=_time(rows, facts),
            y=alt.Y("value:Q", axis=alt.Axis(title="GPUs", tickCount=4), scale=alt.Scale(domainMin=0, nice=True)),
            color=alt.Color("measure:N", scale=palette(names)),
            tooltip=[
                alt.Tooltip("time:T", title="from", format="%Y-%m-%d %H:%M")
                if facts.dated
                else alt.Tooltip("time:Q", title="day", format=".2f"),
                alt.Tooltip("measure:N", title="GPUs"),
                alt.Tooltip("value:Q", format=",.1f"),
            ],
        )
        .properties(height=180)
    )
    return Panel(drawn, tuple(names.items()), title=title, note=note)


def _time(rows: Sequence[Row], facts: Facts) -> alt.X:
    import altair as alt

    if facts.dated:
        times = [local(r["time"], facts.timezone) for r in rows]
        # Times are written with a Z, since a browser reads others as its own.
        return alt.X("time:T", scale=alt.Scale(type="utc"), axis=date_axis(min(times), max(times), facts.timezone))
    axis = alt.Axis(title="days since the start of the trace", labelOverlap="parity", labelSeparation=8)
    return alt.X("time:Q", axis=axis)
