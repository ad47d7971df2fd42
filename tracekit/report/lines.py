"""Numbers of GPUs through time, as charts of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.report.axes import date_axis, day_axis, day_scale
from tracekit.report.charts import Panel, data, palette
from tracekit.report.line_labels import LineEnd, beside, broken, end_labels, named_at_ends, nice_top
from tracekit.report.theme import colour
from tracekit.report.times import local, trace_day

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["clock_of", "gpu_lines", "held_above_waiting", "shown_time", "time_scale_of"]

_UPPER, _LOWER = 0.56, 0.68
"""Where the upper of two panels ends, and where the lower begins, as parts of the height."""
_ALONE = 2 / 3
"""The part of that height which the upper one has by itself."""
_MARGIN = 52
"""Width left of both [px], so that charts below each other have one axis of time."""


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
    y = alt.Y("value:Q", axis=alt.Axis(title="GPUs", tickCount=4), scale=alt.Scale(domainMin=0, nice=True))
    lines = (
        alt.Chart(data(wide))
        .transform_fold(list(names), as_=["measure", "value"])
        .mark_line(interpolate="step-after", strokeWidth=1.3)
        .encode(
            x=time_scale_of(rows, facts),
            y=y,
            color=alt.Color("measure:N", scale=palette(names)),
            tooltip=[
                _when(facts),
                alt.Tooltip("measure:N", title="GPUs"),
                alt.Tooltip("value:Q", format=",.1f"),
            ],
        )
        .properties(height=height)
    )
    last, time = rows[-1], shown_time(rows[-1]["time"], facts)
    ends = [
        LineEnd(words, last[column], names[words], {"time": time})
        for column, words in present.items()
        if last[column] is not None
    ]
    top = nice_top(max(row[column] or 0 for row in rows for column in present), 4) if present else 0
    labels = end_labels(ends, top=top, height=height, axis=y) if len(ends) == len(names) else []
    drawn, named = named_at_ends(lines, labels)
    return Panel(drawn, tuple(names.items()), title=title, note=note, ends=named)


def held_above_waiting(
    rows: Sequence[Row], facts: TraceFacts, *, title: str, owned: str = "", note: str = "", height: int = 200
) -> Panel:
    """Draw GPUs held through time, and below them, on a scale of their own, the GPUs that waiting jobs ask for.

    Parameters
    ----------
    rows : sequence of Row
        With `time`, `running_gpus` and `pending_gpus`; with `cluster` and `vc`, by which a page is narrowed.
    owned : str
        What `capacity_gpus` is, which is drawn as a line where this is given.
    height : int
        Of both [px]; where nothing is waited for, what is held has two thirds of it.
    """
    owned = owned if any(r.get("capacity_gpus") is not None for r in rows) else ""
    columns = {"running_gpus": "held", "pending_gpus": "waiting", **({"capacity_gpus": "there"} if owned else {})}
    drawn = [
        {
            **{name: r[name] for name in ("cluster", "vc") if name in r},
            "time": shown_time(r["time"], facts),
            **{short: None if r[c] is None else round(r[c], 1) for c, short in columns.items()},
        }
        for r in rows
    ]
    x = time_scale_of(rows, facts, grid=False)
    words = {"held": "GPUs held", "waiting": "GPUs waited for", "there": f"GPUs {owned}"}
    tooltip = [_when(facts), *(alt.Tooltip(f"{c}:Q", title=words[c], format=",.1f") for c in columns.values())]

    # Where nothing is waited for, what is held has the height by itself.
    alone = not any(row["waiting"] for row in drawn)

    def place(column: str, ends: tuple[str, str], title: str) -> alt.Y:
        axis = alt.Axis(title=title, orient="left", tickCount=3, minExtent=_MARGIN, maxExtent=_MARGIN)
        # Both have a part of one height, so that they keep one axis of time on every page and sheet.
        scale = alt.Scale(domainMin=0, nice=3, range=[alt.ExprRef(end) for end in ends])
        return alt.Y(f"{column}:Q", axis=axis, scale=scale)

    def area(hue: str, y: alt.Y) -> alt.Chart:
        mark = alt.Chart().mark_area(interpolate="step-after", opacity=0.55, color=colour(hue))
        chart: alt.Chart = mark.encode(x=x, y=y, tooltip=tooltip)
        return chart

    above, below = ("height" if alone else f"height * {_UPPER}", "0"), ("height", f"height * {_LOWER}")
    upper = [area("series-1", place("held", above, "held"))]
    if owned:
        y = place("there", above, "held")
        line = alt.Chart().mark_line(interpolate="step-after", strokeWidth=1.2, color=colour("muted"))
        upper.append(line.encode(x=x, y=y))
        # Beside the end: above it the line itself may run, where less is there than before.
        name = broken(owned)
        last = [{**row, "name": name} for row in drawn if row["there"] is not None][-1:]
        upper.append(beside(data(last), name, colour("muted"), y))
    panels: list[alt.Chart | alt.LayerChart] = [cast("alt.LayerChart", alt.layer(*upper))]
    if not alone:
        panels.append(area("series-2", place("waiting", below, "waited for")))
    both = alt.layer(*panels, data=data(drawn)).resolve_scale(y="independent")
    return Panel(both.properties(height=round(height * _ALONE) if alone else height), title=title, note=note)


def _when(facts: TraceFacts) -> alt.Tooltip:
    if facts.dated:
        return alt.Tooltip("time:T", title="from", format="%Y-%m-%d %H:%M")
    return alt.Tooltip("time:Q", title="day", format=".2f")


def shown_time(time: str, facts: TraceFacts) -> str | float:
    """Return a time as charts take it: that of the clocks of the trace's zone, or days from its start."""
    return f"{local(time, facts.timezone).isoformat()[:16]}Z" if facts.dated else trace_day(time, facts)


def time_scale_of(rows: Sequence[Row], facts: TraceFacts, *, labels: bool = True, grid: bool = True) -> alt.X:
    """Return the horizontal axis of rows with a `time`; without labels where a chart below has them."""
    changed: dict[str, object] = {} if labels else {"title": None, "labels": False, "ticks": False}
    changed |= {} if grid else {"grid": False}
    if facts.dated:
        times = [local(r["time"], facts.timezone) for r in rows]
        axis = date_axis(min(times), max(times), facts.timezone)
        # Times are written with a Z, since a browser reads others as its own.
        return alt.X("time:T", scale=alt.Scale(type="utc"), axis=_with(axis, changed))
    last = max(trace_day(r["time"], facts) for r in rows)
    axis = day_axis(last, clock_of(facts))
    return alt.X("time:Q", scale=day_scale(last), axis=_with(axis, changed))


def clock_of(facts: TraceFacts) -> str | None:
    """Return the time zone in which the days of a trace without dates begin; None where they begin with the trace."""
    return facts.timezone if facts.clocked else None


def _with(axis: alt.Axis, more: dict[str, object]) -> alt.Axis:
    """Return an axis with some of its properties changed."""
    return alt.Axis(**axis.to_dict() | more) if more else axis
