"""Utilization: which part of what they own clusters and tenants hold, on the whole and by hour of the day."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.axes import hour_axis
from tracekit.report.charts import Panel, bars, data, palette, percent_axis
from tracekit.report.line_labels import LineEnd, end_labels, named_at_ends, nice_top
from tracekit.report.phrases import hour_span, largest
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import duration, labels, percent, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

CLUSTERS = 4
"""Most clusters drawn."""

VCS = 15
"""Most tenants drawn."""


def no_vcs(_: list[Row], facts: TraceFacts) -> str | None:
    """Say where the whole cluster is shown, where there are no tenants."""
    if facts.vcs or not facts.load:
        return None
    return f"The trace has no {facts.tenant.spelled_many}; what the whole cluster held is shown at queueing."


def vc_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the tenant that uses most of what it owns and the one that uses least, with their waits."""
    known = [r for r in rows if r["allocated_share_mean"] is not None]
    most, least = largest(known, "allocated_share_mean"), largest(known, "allocated_share_mean", -1)
    several = len({r["cluster"] for r in rows}) > 1
    if most is None or least is None:
        return None
    base = "what it owns" if facts.quotas else "the most GPUs it ever held"
    share = percent(most["allocated_share_mean"])
    text = f"On average {_vc(most, facts, several=several)} held {share} of {base}{_waits(most)}"
    if most is not least:
        text += f", {_vc(least, facts, several=several)} {percent(least['allocated_share_mean'])}{_waits(least)}"
    return f"{text}."


def _vc(row: Row, facts: TraceFacts, *, several: bool) -> str:
    name = f"jobs without {facts.tenant.a}" if row["vc"] is None else shorten(row["vc"], 30)
    return f"{name} in {shorten(row['cluster'], 30)}" if several and row["cluster"] is not None else name


def _waits(row: Row) -> str:
    return f" (median wait {duration(row['queue_p50_s'])})" if row["queue_p50_s"] is not None else ""


def vc_chart(rows: list[Row], facts: TraceFacts) -> list[Panel]:
    """Draw the mean share of what each tenant owns that it held, the largest first."""
    known = [r for r in rows if r["allocated_share_mean"] is not None and r["capacity_gpus"]]
    if not known:
        return []
    chosen = sorted(known, key=lambda r: (-r["capacity_gpus"], r["cluster"] or "", r["vc"] or ""))[:VCS]
    several, one = len({r["cluster"] for r in known}) > 1, facts.tenant.one
    names = [" ".join(w for w in (r["cluster"] if several else None, r["vc"] or f"no {one}") if w) for r in chosen]
    short = labels(names)
    shown = [{**r, "tenant": short[name]} for r, name in zip(chosen, names, strict=True)]
    panel = bars(
        shown,
        key="tenant",
        values=[r["tenant"] for r in shown],
        title=None,
        measures={"allocated_share_mean": f"share of what the {one} owns"},
        axis_title=f"GPU time held of what the {one} owns"
        if facts.quotas
        else f"mean of the most that the {one} ever held",
    )
    left = len(known) - len(shown)
    many = facts.tenant.many
    note = f"Drawn: the {len(shown)} {many} that own most, largest first; {left} more." if left else ""
    return [replace(panel, note=note)]


def hour_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say at which hour most of the GPUs are held, and at which least."""
    known = [r for r in rows if r["allocated_share"] is not None]
    most, least = largest(known, "allocated_share"), largest(known, "allocated_share", -1)
    if most is None or least is None or most is least:
        return None
    where = f" in {shorten(most['cluster'], 30)}" if len({r["cluster"] for r in known}) > 1 else ""
    other = f" in {shorten(least['cluster'], 30)}" if where else ""
    what = "The largest share of a cluster's GPUs is" if where else "The most GPUs are"
    return (
        f"{what} held between {hour_span(most['hour'])}{where}, {percent(most['allocated_share'])} on average,"
        f" and the {'smallest' if where else 'fewest'} between {hour_span(least['hour'])}{other},"
        f" {percent(least['allocated_share'])}."
    )


def hour_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw the share of GPUs held, how busy GPUs are, and submissions by hour; a line a cluster.

    Submissions with GPUs stand beside all where the two differ.
    """
    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))[:CLUSTERS]
    named = labels([c for c in clusters if c is not None])
    names = {named[c] if c is not None else "no cluster": c for c in clusters}
    colours = {words: colour(f"series-{i}") for i, words in enumerate(names, 1)}
    shown = [
        {
            "hour": r["hour"],
            "cluster": words,
            "held": r["allocated_share"],
            "busy": None if r["gpu_util_pct"] is None else r["gpu_util_pct"] / 100,
            "jobs": r["submitted_jobs"],
            "gpu_jobs": r["submitted_gpu_jobs"],
        }
        for words, cluster in names.items()
        for r in rows
        if r["cluster"] == cluster
    ]
    kinds = [
        ("held", "Held by jobs", percent_axis("GPUs held"), ".1%", ""),
        (
            "busy",
            "Computing",
            percent_axis("utilization"),
            ".1%",
            "Of all GPUs with telemetry.",
        ),
        ("jobs", "Submitted", _jobs_axis("jobs"), ",.1f", "Mean number of jobs."),
        (
            "gpu_jobs",
            "Submitted, with GPUs",
            _jobs_axis("jobs with GPUs"),
            ",.1f",
            "Where sizes are known.",
        ),
    ]
    if all(r["gpu_jobs"] in (None, r["jobs"]) for r in shown):
        kinds.pop()
    legend = tuple(colours.items()) if len(colours) > 1 else ()
    panels = []
    for column, title, axis, form, note in kinds:
        if any(r[column] is not None for r in shown):
            drawn, at_ends = _by_hour(shown, column, axis, form, colours)
            panels.append(Panel(drawn, legend, title, note, ends=at_ends))
    return panels


def _jobs_axis(title: str) -> alt.Axis:
    return alt.Axis(title=title, tickCount=4)


_HEIGHT = 150


def _by_hour(
    rows: list[Row], column: str, axis: alt.Axis, form: str, colours: dict[str, str]
) -> tuple[alt.Chart | alt.LayerChart, bool]:
    """Return lines, and whether their names stand at their ends."""
    # A line breaks where an hour has no number.
    points = [{k: r[k] for k in ("hour", "cluster", column)} for r in rows]
    y = alt.Y(f"{column}:Q", axis=axis, scale=alt.Scale(domainMin=0))
    drawn: alt.Chart = (
        alt.Chart(data(points))
        .mark_line(point=True, strokeWidth=1.5)
        .encode(
            x=alt.X("hour:Q", scale=alt.Scale(domain=[0, 23]), axis=hour_axis()),
            y=y,
            color=alt.Color("cluster:N", scale=palette(colours)),
            tooltip=[
                alt.Tooltip("cluster:N"),
                alt.Tooltip("hour:Q", title="hour"),
                alt.Tooltip(f"{column}:Q", format=form),
            ],
        )
        .properties(height=_HEIGHT)
    )
    ends = [
        LineEnd(r["cluster"], r[column], colours[r["cluster"]], {"cluster": r["cluster"]})
        for r in points
        if r["hour"] == _LAST_HOUR and r[column] is not None
    ]
    if len(ends) < len({r["cluster"] for r in points if r[column] is not None}):
        return drawn, False
    top = nice_top(max(r[column] for r in points if r[column] is not None), axis.tickCount)
    return named_at_ends(drawn, end_labels(ends, top=top, height=_HEIGHT, axis=y))


_LAST_HOUR = 23


PRESENTATIONS = (
    Presentation("utilization/vc", finding=vc_finding, chart=vc_chart, why_empty=no_vcs),
    Presentation("utilization/cluster_by_hour", finding=hour_finding, chart=hour_chart),
)
