"""Pictures of when jobs come: observed and fitted batches an hour through the week."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import altair as alt

from tracekit.report.charts import data, palette
from tracekit.report.fit_curves import hours_known, weekly_rates
from tracekit.report.theme import colour
from tracekit.text import count, duration

if TYPE_CHECKING:
    from tracekit.answer import Row
    from tracekit.fit.model import WorkloadModel

__all__ = ["MATCH_COLOURS", "arrivals_chart", "week"]

_HEIGHT = 220
_HOURS = 24

MATCH_COLOURS = {"observed": colour("series-2"), "fitted": colour("series-1")}
"""Colours of observed and fitted, where there is one group of each."""


def arrivals_chart(model: WorkloadModel) -> alt.LayerChart:
    """Return observed and fitted batches an hour through the week."""
    arrivals, known = model.document["arrivals"], hours_known(model)
    step = "second" if arrivals["step_s"] == 1 else duration(arrivals["step_s"])
    by = {"hour_of_day": "hour of the day", "hour_of_week": "hour of the week"}.get(arrivals["rate"]["kind"])
    # A model that another program made may leave the number out.
    batches = f"{count(arrivals['batches'])} batches" if "batches" in arrivals else "batches"
    under = [
        f"{batches} in {count(arrivals['days'])} days; a batch is the jobs of one {step}",
        "one fitted rate for all hours" if by is None else f"the fitted rate depends on the {by}",
    ]
    hours = f"hour of the week ({arrivals['timezone']})" if known else "hour of the week, counted from the log's first"
    drawn = week(weekly_rates(model), title=hours, known=known, legend=True)
    title = alt.TitleParams("arrivals through the week", subtitle=under, anchor="start", frame="group")
    return drawn.properties(width=640, title=title)


def week(rows: list[Row], *, title: str, known: bool = True, legend: bool = False) -> alt.LayerChart:
    """Return batches an hour through the 168 hours of a week: fitted as a line, observed as points.

    Rows have hour_of_week, fitted, and observed, which may be None. Where hour 0 is Monday 00:00 (`known`) days have
    names, else numbers. `legend` adds a legend for a picture outside a page.
    """
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun") if known else tuple(f"day {d}" for d in range(1, 8))
    words = "['" + "','".join(days) + "'][datum.value / 24]"
    axis = alt.Axis(title=title, labelExpr=words, values=[_HOURS * day for day in range(7)], labelAlign="left")
    # The last hour is drawn to its end, a point in the middle of its hour.
    line = [{"what": "fitted", "hour_of_week": r["hour_of_week"], "batches": r["fitted"]} for r in rows]
    line.append({**line[-1], "hour_of_week": 7 * _HOURS})
    seen = [
        {"what": "observed", "hour_of_week": r["hour_of_week"] + 0.5, "batches": r["observed"]}
        for r in rows
        if r["observed"] is not None
    ]
    colours = MATCH_COLOURS if seen else {"fitted": MATCH_COLOURS["fitted"]}
    key = alt.Legend(title=None, orient="top") if legend else alt.Undefined
    encoded = {
        "x": alt.X("hour_of_week:Q", axis=axis, scale=alt.Scale(domain=[0, 7 * _HOURS], nice=False)),
        "y": alt.Y("batches:Q", axis=alt.Axis(title="batches an hour", tickCount=5), scale=alt.Scale(zero=True)),
        "color": alt.Color("what:N", scale=palette(colours), legend=key),
    }
    area = {k: encoded[k] for k in ("x", "y")}
    shade = MATCH_COLOURS["fitted"]
    layers = [
        alt.Chart(data(line)).mark_area(interpolate="step-after", opacity=0.15, color=shade).encode(**area),
        alt.Chart(data(line)).mark_line(interpolate="step-after", strokeWidth=1.5).encode(**encoded),
    ]
    if seen:
        layers.append(alt.Chart(data(seen)).mark_point(filled=True, size=16, opacity=0.9).encode(**encoded))
    return cast("alt.LayerChart", alt.layer(*layers).properties(height=_HEIGHT))
