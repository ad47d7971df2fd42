"""Charts of one job, node or user: numbers through time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.report.charts import Panel, data
from tracekit.report.lines import shown_time, time_scale_of
from tracekit.report.theme import colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["held_panel", "use_panel"]

_HEIGHT = 140


def held_panel(rows: Sequence[Row], facts: TraceFacts, title: str, *, owned: float | None = None) -> list[Panel]:
    """Draw GPUs held through time; `owned` is a line above. Without rows there is nothing to draw."""
    if not rows:
        return []
    drawn = [{"time": shown_time(r["time"], facts), "gpus": round(r["gpus"], 2)} for r in rows]
    y = alt.Y("gpus:Q", axis=alt.Axis(title="GPUs held"), scale=alt.Scale(domainMin=0, nice=True))
    area = alt.Chart(data(drawn)).mark_area(interpolate="step-after", opacity=0.55, color=colour("series-1"))
    tooltip = [_when(facts), alt.Tooltip("gpus:Q", title="GPUs held", format=",.2f")]
    layers = [area.encode(x=time_scale_of(rows, facts), y=y, tooltip=tooltip)]
    note = "The mean of each interval."
    if owned:
        line = alt.Chart(data([{"owned": owned}])).mark_rule(color=colour("muted"), strokeDash=[4, 3])
        layers.append(line.encode(y="owned:Q"))
        note = f"{note} Dashed: all GPUs."
    return [Panel(alt.LayerChart(layer=layers, height=_HEIGHT), title=title, note=note, wide=True)]


def use_panel(rows: Sequence[Row], facts: TraceFacts, title: str) -> list[Panel]:
    """Draw the mean utilization of GPUs through time, and its range from the least to the most used."""
    if not rows:
        return []
    drawn: list[dict[str, Any]] = [
        {"time": shown_time(r["time"], facts), **{c: round(r[c], 1) for c in ("mean", "least", "most")}} for r in rows
    ]
    x = time_scale_of(rows, facts)
    scale = alt.Scale(domain=[0, 100])
    axis = alt.Axis(title="GPU utilization (%)", values=[0, 25, 50, 75, 100])
    base = alt.Chart(data(drawn)).encode(x=x)
    tooltip = [_when(facts), *(alt.Tooltip(f"{c}:Q", title=c, format=".1f") for c in ("mean", "least", "most"))]
    layers = [
        base.mark_area(opacity=0.25, color=colour("series-2")).encode(
            y=alt.Y("least:Q", axis=axis, scale=scale), y2="most:Q"
        ),
        base.mark_line(strokeWidth=1.5, color=colour("series-2"), point=len(rows) == 1).encode(
            y=alt.Y("mean:Q", axis=axis, scale=scale), tooltip=tooltip
        ),
    ]
    note = "Line: mean of the samples of each interval; pale: minimum to maximum."
    return [Panel(alt.LayerChart(layer=layers, height=_HEIGHT), title=title, note=note, wide=True)]


def _when(facts: TraceFacts) -> alt.Tooltip:
    if facts.dated:
        return alt.Tooltip("time:T", title="from", format="%Y-%m-%d %H:%M")
    return alt.Tooltip("time:Q", title="day", format=".3f")
