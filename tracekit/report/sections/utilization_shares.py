"""Utilization: which part of what they own clusters and VCs hold, on the whole and by hour of the day."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.charts import Panel, bars, data, palette, percent_axis
from tracekit.report.sections.interface import Facts, chart, chart_of, says, says_of
from tracekit.report.theme import colour
from tracekit.report.words import largest
from tracekit.text import duration, labels, percent, shorten

if TYPE_CHECKING:
    from tracekit.report.structure import Row

CLUSTERS = 4
"""Most clusters drawn."""

VCS = 15
"""Most VCs drawn."""


@says_of("utilization/vc")
def vc_finding(rows: list[Row], facts: Facts) -> str | None:
    """Name the VC that uses most of what it owns and the one that uses least, with their waits."""
    known = [r for r in rows if r["allocated_share_mean"] is not None]
    most, least = largest(known, "allocated_share_mean"), largest(known, "allocated_share_mean", -1)
    several = len({r["cluster"] for r in rows}) > 1
    if not facts.vcs:
        return "The trace has no virtual clusters: what follows is the cluster as a whole."
    if most is None or least is None:
        return None
    text = f"{_vc(most, several=several)} held {percent(most['allocated_share_mean'])} of what it owns{_waits(most)}"
    if most is least:
        return text + "."
    return f"{text}; {_vc(least, several=several)} held {percent(least['allocated_share_mean'])}{_waits(least)}."


def _vc(row: Row, *, several: bool) -> str:
    name = "jobs without a VC" if row["vc"] is None else shorten(row["vc"], 30)
    return f"{name} in {shorten(row['cluster'], 30)}" if several and row["cluster"] is not None else name


def _waits(row: Row) -> str:
    return f" (median wait {duration(row['queue_p50_s'])})" if row["queue_p50_s"] is not None else ""


@chart_of("utilization/vc")
def vc_chart(rows: list[Row], facts: Facts) -> list[Panel]:
    """Draw the mean share of what each VC owns that it held, the largest VCs first."""
    known = [r for r in rows if r["allocated_share_mean"] is not None and r["capacity_gpus"]]
    if not known or not facts.vcs:
        return []
    chosen = sorted(known, key=lambda r: (-r["capacity_gpus"], r["cluster"] or "", r["vc"] or ""))[:VCS]
    several = len({r["cluster"] for r in known}) > 1
    names = [" ".join(w for w in (r["cluster"] if several else None, r["vc"] or "no VC") if w) for r in chosen]
    short = labels(names)
    shown = [{**r, "tenant": short[name]} for r, name in zip(chosen, names, strict=True)]
    panel = bars(
        shown,
        key="tenant",
        values=[r["tenant"] for r in shown],
        title=None,
        measures={"allocated_share_mean": "share of what the VC owns"},
        axis_title="GPU time held of what the VC owns",
    )
    left = len(known) - len(shown)
    note = f"Drawn: the {len(shown)} VCs that own most, largest first; {left} more in the table." if left else ""
    return [replace(panel, note=note)]


@says("utilization/cluster_by_hour")
def hour_finding(rows: list[Row]) -> str | None:
    """Say at which hour most of the GPUs are held, and at which least."""
    known = [r for r in rows if r["allocated_share"] is not None]
    most, least = largest(known, "allocated_share"), largest(known, "allocated_share", -1)
    if most is None or least is None or most is least:
        return None
    where = f" in {shorten(most['cluster'], 30)}" if len({r["cluster"] for r in known}) > 1 else ""
    other = f" in {shorten(least['cluster'], 30)}" if where else ""
    return (
        f"The most GPUs are held between {_hours(most['hour'])}{where}, {percent(most['allocated_share'])} on average,"
        f" and the fewest between {_hours(least['hour'])}{other}, {percent(least['allocated_share'])}."
    )


def _hours(hour: int) -> str:
    return f"{hour:02d}:00 and {(hour + 1) % 24:02d}:00"


@chart("utilization/cluster_by_hour")
def hour_chart(rows: list[Row]) -> list[Panel]:
    """Draw the share of GPUs held, and how busy they are, by hour; one chart a cluster."""
    import altair as alt

    clusters = sorted({r["cluster"] for r in rows}, key=lambda c: (c is None, c or ""))
    measures = {"allocated_share": "held by jobs", "busy": "computing, of all that telemetry watches"}
    drawn = []
    for cluster in clusters[:CLUSTERS]:
        own = [
            {**r, "busy": None if r["gpu_util_pct"] is None else r["gpu_util_pct"] / 100}
            for r in rows
            if r["cluster"] == cluster
        ]
        present = {c: words for c, words in measures.items() if any(r[c] is not None for r in own)}
        names = {words: colour(f"series-{i}") for i, words in enumerate(present.values(), 1)}
        long = [
            {"hour": r["hour"], "measure": words, "share": r[column]} for r in own for column, words in present.items()
        ]
        if not present:
            continue
        lines = (
            alt.Chart(data(long))
            .mark_line(point=True, strokeWidth=1.5)
            .encode(
                x=alt.X("hour:Q", scale=alt.Scale(domain=[0, 23]), axis=alt.Axis(title="hour of the day", tickCount=8)),
                y=alt.Y("share:Q", axis=percent_axis("share of the GPUs"), scale=alt.Scale(domainMin=0)),
                color=alt.Color("measure:N", scale=palette(names)),
                tooltip=[
                    alt.Tooltip("hour:Q", title="hour"),
                    alt.Tooltip("measure:N", title="GPUs"),
                    alt.Tooltip("share:Q", format=".1%"),
                ],
            )
            .properties(height=160)
        )
        drawn.append(Panel(lines, tuple(names.items()), title=cluster or "" if len(clusters) > 1 else ""))
    return drawn
