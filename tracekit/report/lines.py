"""Numbers of GPUs through time, as charts of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.axes import date_axis, day_axis, day_scale
from tracekit.report.charts import Panel, data, palette
from tracekit.report.theme import colour
from tracekit.report.times import local, trace_day

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["gpu_lines", "shown_time", "time_scale_of"]


def gpu_lines(
    rows: Sequence[Row], measures: dict[str, str], facts: TraceFacts, *, title: str, note: str = "", height: int = 180
) -> Panel:
    """Draw numbers of GPUs through time.

    Parameters
    ----------
    rows : sequence of Row
        With `time` and the measures.
    measures : dict
        Columns, and what they are called.
    """
    present = {c: words for c, words in measures.items() if any(r[c] is not None for r in rows)}
    names = {words: colour(f"series-{i}") for i, words in enumerate(present.values(), 1)}
    # One row holds all measures: a page has many.
    wide = [
        {
            "time": shown_time(r["time"], facts),
            **{words: None if r[column] is None else round(r[column], 1) for column, words in present.items()},
        }
        for r in rows
    ]
    drawn = (
        alt.Chart(data(wide))
        .transform_fold(list(names), as_=["measure", "value"])
        .mark_line(interpolate="step-after", strokeWidth=1.3)
        .encode(
            x=time_scale_of(rows, facts),
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
        .properties(height=height)
    )
    return Panel(drawn, tuple(names.items()), title=title, note=note)


def shown_time(time: str, facts: TraceFacts) -> str | float:
    """Return a time as charts take it: that of the clocks of the trace's zone, or days from its start."""
    return f"{local(time, facts.timezone).isoformat()[:16]}Z" if facts.dated else trace_day(time)


def time_scale_of(rows: Sequence[Row], facts: TraceFacts, *, labels: bool = True) -> alt.X:
    """Return the horizontal axis of rows with a `time`; without labels where a chart below has them."""
    if facts.dated:
        times = [local(r["time"], facts.timezone) for r in rows]
        axis = date_axis(min(times), max(times), facts.timezone)
        # Times are written with a Z, since a browser reads others as its own.
        return alt.X("time:T", scale=alt.Scale(type="utc"), axis=axis if labels else _bare(axis))
    last = max(trace_day(r["time"]) for r in rows)
    axis = day_axis(last)
    return alt.X("time:Q", scale=day_scale(last), axis=axis if labels else _bare(axis))


def _bare(axis: alt.Axis) -> alt.Axis:
    """Return an axis without its words, whose lines stay."""
    return alt.Axis(**axis.to_dict() | {"title": None, "labels": False, "ticks": False})
