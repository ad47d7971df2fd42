"""Failures: which nodes fail more often than bad luck explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.report.amounts import named
from tracekit.report.charts import Panel, category, data, height, palette
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.text import count, shorten

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


def by_node_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the nodes that fail more often than chance explains, or say that there is none."""
    judged = [r for r in rows if r["p_value"] is not None]
    if not judged or not any(r["failed_trials"] for r in judged):
        return None
    counted = "counting one session's failures once"
    bad = [r for r in judged if r["suspect"]]
    if not bad:
        return (
            f"Failed attempts point to no node more than bad luck explains, {counted}; nearest to it comes"
            f" {_against(judged[0])}.{' Outages may: see below.' if facts.outages else ''}"
        )
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    where = "1 node" if len(bad) == 1 else f"{len(bad)} nodes"
    listed = ", ".join(_against(r) for r in bad[:3])
    return f"On {where} attempts fail more often than bad luck explains, {counted}: {listed}{more}."


def _against(row: Row) -> str:
    late, name = row.get("timed_out_attempts") or 0, shorten(row["node_id"], 30)
    # Which of the trials timed out is not kept: where no attempt did, none failed otherwise, or some of both.
    ended = "failed" if not late else "timed out" if late == row["failed_attempts"] else "failed or timed out"
    return f"{name} ({count(row['failed_trials'])} {ended}, {count(round(row['expected_failed_trials'], 1))} expected)"


def by_node_chart(rows: list[Row], _: TraceFacts) -> list[Panel]:
    """Draw failed against expected trials of the most suspect nodes."""
    shown = named([r for r in rows if r["p_value"] is not None and r["failed_trials"]], "node_id", "no node")
    if not shown:
        return []
    words = {True: "more than bad luck explains", False: "no more than bad luck explains"}
    shown = [{**r, "verdict": words[r["suspect"]]} for r in shown]
    colours = {words[True]: colour("status-failed"), words[False]: colour("series-1")}
    base = alt.Chart(data(shown)).encode(
        y=category("label", [r["label"] for r in shown], None),
        tooltip=[
            alt.Tooltip("label:N", title="node"),
            alt.Tooltip("failed_trials:Q", title="failures", format=","),
            alt.Tooltip("expected_failed_trials:Q", title="expected", format=",.1f"),
            alt.Tooltip("trials:Q", format=","),
            alt.Tooltip("failed_attempts:Q", title="failed attempts", format=","),
            alt.Tooltip("attempts:Q", format=","),
            alt.Tooltip("adjusted_p_value:Q", title="adjusted p-value", format=".2g"),
        ],
    )
    axis = alt.Axis(title="failures", tickCount=5, labelOverlap="greedy")
    scale = alt.Scale(domainMin=0, nice=True)
    bars = base.mark_bar(height=14).encode(
        x=alt.X("failed_trials:Q", axis=axis, scale=scale), color=alt.Color("verdict:N", scale=palette(colours))
    )
    ticks = base.mark_tick(thickness=2, size=20, color=colour("ink")).encode(x=alt.X("expected_failed_trials:Q"))
    legend = {w: c for w, c in colours.items() if any(r["verdict"] == w for r in shown)}
    note = f"Drawn: {len(shown)} of {len(rows)} nodes, the most suspect first. Line: at equal risk."
    drawn = cast("alt.LayerChart", alt.layer(bars, ticks).properties(height=height(len(shown), 24)))
    return [Panel(drawn, tuple(legend.items()), note=note)]


PRESENTATIONS = (Presentation("failures/by_node", finding=by_node_finding, chart=by_node_chart),)
