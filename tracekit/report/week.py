"""Charts by hour of the week: heat maps, and fitted and observed rates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import Axis, hours, number
from tracekit.report.charts import Chart, Hues, Mark, dot, line
from tracekit.report.phrases import WEEKDAYS
from tracekit.report.spreads import FEWEST_NAMES
from tracekit.report.theme import colour, pale
from tracekit.text import count, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.answer import Row
    from tracekit.report.charts import Tip


DAYS = tuple(day[:3] for day in WEEKDAYS)


class Shades:
    """Shades from pale to full colour for ranges of numbers."""

    def __init__(self, ends: Sequence[float], words: Callable[[float], str]) -> None:
        self.ends = list(ends)
        """Lower end of each step, except the first."""
        self.words = words

    @property
    def strengths(self) -> list[float]:
        """Opacity of each step."""
        steps = len(self.ends) + 1
        return [round(0.12 + 0.88 * i / max(steps - 1, 1), 2) for i in range(steps)]

    def legend(self, hue: str) -> tuple[tuple[str, str], ...]:
        """Return each step's label and colour."""
        if not self.ends:
            return ()
        words = [f"below {self.words(self.ends[0])}", *(f"from {self.words(end)}" for end in self.ends)]
        return tuple(zip(words, (pale(hue, s) for s in self.strengths), strict=True))


_STEPS = 5
_DURATIONS = (60, 600, 3600, 6 * 3600, 86400, 7 * 86400)


def linear_shades(values: Sequence[float]) -> Shades:
    """Return up to five steps of an equal and round size.

    Examples
    --------
    >>> linear_shades([0.5, 7]).ends
    [2.0, 4.0, 6.0]
    """
    top = max(values, default=0.0)
    if top <= 0:
        return Shades([], count)
    tens = 10.0 ** (math.floor(math.log10(top)) - 1)
    step = next(r * tens for r in (1, 2, 5, 10, 20) if top / (r * tens) <= _STEPS)
    steps = math.ceil(top / step) - 1
    return Shades([float(f"{step * (i + 1):.6g}") for i in range(steps)], lambda v: f"{v:,g}")


def time_shades(values: Sequence[float]) -> Shades:
    """Return the steps that end at 1 min, 10 min, 1 h, 6 h, 1 d or 7 d, but only those that separate the values.

    Examples
    --------
    >>> time_shades([0, 30, 4000]).ends
    [60, 600, 3600]
    """
    low, top = min(values, default=0.0), max(values, default=0.0)
    return Shades([end for end in _DURATIONS if low <= end < top], duration)


def hours_of_week(
    rows: Sequence[Row], value: str, shades: Shades, *, hue: str, title: str, tips: Sequence[Tip]
) -> Chart:
    """Draw a heat map of the hours of the week with one row per day. Darker means more.

    Parameters
    ----------
    rows : sequence of dict
        Rows with `day`, `hour`, `cluster`, `names` (0 for all clusters together) and, if known, the value.
    """
    strengths = {"type": "threshold", "domain": shades.ends, "range": shades.strengths}
    squares = Mark(
        "rect",
        {"color": colour(hue)},
        transform=[*FEWEST_NAMES, {"filter": f"isValid(datum.{value})"}],
        channels={"opacity": {"field": value, "type": "quantitative", "scale": strengths}},
    )
    return Chart(
        rows,
        x=replace(hours(type="ordinal"), scale={"domain": list(range(24)), "padding": 0}),
        y=Axis("day", None, "nominal", {"domain": list(DAYS), "padding": 0}, {"grid": False}, {"sort": None}),
        marks=[squares],
        height=7 * 20,
        by=Hues("", dict(shades.legend(hue))),
        tips=tips,
        title=title,
    )


FITTED, OBSERVED = colour("series-1"), colour("series-2")
"""Colours of fitted and observed values of a single group."""
_HOURS = 24


def weekly_rates_chart(rows: list[Row], *, title: str, known: bool = True, note: str = "") -> Chart:
    """Draw batches per hour over the 168 hours of a week, fitted as a line and observed as points.

    Rows have hour_of_week, fitted and observed (which may be None). Days have names if hour 0 is Monday 00:00
    (`known`), otherwise numbers.
    """
    days = DAYS if known else tuple(f"day {d}" for d in range(1, 8))
    labels = {
        "labelExpr": "['" + "','".join(days) + "'][datum.value / 24]",
        "values": [_HOURS * day for day in range(7)],
        "labelAlign": "left",
    }
    # The line continues to the end of the last hour. Each point is in the middle of its hour.
    fitted = [{"what": "fitted", "hour_of_week": r["hour_of_week"], "batches": r["fitted"]} for r in rows]
    fitted.append({**fitted[-1], "hour_of_week": 7 * _HOURS})
    seen = [
        {"what": "observed", "hour_of_week": r["hour_of_week"] + 0.5, "batches": r["observed"]}
        for r in rows
        if r["observed"] is not None
    ]
    points = [replace(dot(size=16, opacity=0.9), rows=seen)] if seen else []
    return Chart(
        fitted,
        x=Axis("hour_of_week", title, scale={"domain": [0, 7 * _HOURS], "nice": False}, labels=labels),
        y=number("batches", "batches per hour"),
        marks=[
            Mark("area", {"interpolate": "step-after", "opacity": 0.15, "color": FITTED}),
            line(1.5, interpolate="step-after"),
            *points,
        ],
        height=220,
        by=Hues("what", {**({"observed": OBSERVED} if seen else {}), "fitted": FITTED}),
        note=note,
    )
