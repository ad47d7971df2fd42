"""Charts over time for one job, node or user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import number, percentage, shown_time, times
from tracekit.report.charts import Chart, Mark, Tip, band, line, moment_tip, steps
from tracekit.report.theme import colour

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

_HEIGHT = 140


def held_chart(rows: Sequence[Row], facts: TraceFacts, title: str, *, owned: float | None = None) -> list[Chart]:
    """Draw the allocated GPUs over time, with `owned` as a line above; return no chart without rows."""
    if not rows:
        return []
    marks, note = [steps("series-1")], "The mean of each interval."
    if owned:
        dashes = {"color": colour("muted"), "strokeDash": [4, 3]}
        marks.append(Mark("rule", dashes, on="y", rows=[{"gpus": owned}]))
        note = f"{note} Dashed: all GPUs."
    chart = Chart(
        [{"time": shown_time(r["time"], facts), "gpus": round(r["gpus"], 2)} for r in rows],
        x=times((r["time"] for r in rows), facts),
        y=number("gpus", "GPUs allocated"),
        marks=marks,
        height=_HEIGHT,
        tips=[moment_tip(facts), Tip("gpus", "GPUs allocated", ",.2f")],
        title=title,
        note=note,
        wide=True,
    )
    return [chart]


def use_chart(rows: Sequence[Row], facts: TraceFacts, title: str) -> list[Chart]:
    """Draw the mean GPU utilization over time, with its range from the least to the most used GPU."""
    if not rows:
        return []
    columns, y, hue = ("mean", "least", "most"), percentage("mean", "GPU utilization (%)"), colour("series-2")
    spread = band(y.of("least"), "most", opacity=0.25, color=hue)
    chart = Chart(
        [{"time": shown_time(r["time"], facts), **{c: round(r[c], 1) for c in columns}} for r in rows],
        x=times((r["time"] for r in rows), facts),
        y=y,
        marks=[replace(spread, tips=()), line(1.5, color=hue, point=len(rows) == 1)],
        height=_HEIGHT,
        tips=[moment_tip(facts), *(Tip(c, c, ".1f") for c in columns)],
        title=title,
        note="Line: mean of the samples of each interval; pale: minimum to maximum.",
        wide=True,
    )
    return [chart]
