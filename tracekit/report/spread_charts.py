"""Distributions as curves, with median and 90th percentile marked, and hours of the week as squares of a map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import altair as alt

from tracekit.report.axes import hour_axis
from tracekit.report.charts import Panel, axis_values, data, percent_axis, position, time_axis, time_scale
from tracekit.report.theme import colour, pale
from tracekit.text import count, duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracekit.answer import Row

__all__ = ["DAYS", "Shades", "curve", "hours_of_week", "linear_shades", "time_shades"]

SHARES = (0, 1, *range(5, 100, 5), 99, 100)
"""Percentiles that a curve goes through."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

_MARKED = {50: "median", 90: "90 %:"}
"""Percentiles that are marked, and the words in front of their values."""
_LEFT = 0.5
"""Part of the axis beyond which a label stands left of its mark, so that it does not leave the chart."""


def curve(rows: Sequence[Row], *, title: str, share: str) -> alt.LayerChart:
    """Return the share of values that are no longer than each duration.

    Parameters
    ----------
    rows : sequence of dict
        One distribution a row: `cluster`, `vc`, and durations `p0_s` to `p100_s`. Of all rows in the chart those
        with the fewest names are drawn: that of all, and once the page is narrowed, that of what was chosen.
    title, share : str
        Of the axis of durations, and of that of shares.
    """
    columns = [f"p{p}_s" for p in SHARES]
    values = axis_values(rows, columns)
    scale, axis = time_scale(values), time_axis(f"{title} (log scale)", values)
    y = alt.Y("share:Q", axis=percent_axis(share), scale=alt.Scale(domain=[0, 1]))
    lines = [{**_whose(r), "s": [round(r[c], 1) for c in columns]} for r in rows]
    marks = [
        {
            **_whose(r),
            "s": r[f"p{p}_s"],
            "share": p / 100,
            "words": f"{words} {duration(r[f'p{p}_s'])}",
            "left": position(r[f"p{p}_s"], values) > _LEFT,
        }
        for r in rows
        for p, words in _MARKED.items()
    ]
    line = (
        _fewest_names(alt.Chart(data(lines)))
        .transform_calculate(share=f"[{','.join(f'{p / 100:g}' for p in SHARES)}]")
        .transform_flatten(["s", "share"])
        .mark_line(strokeWidth=2, color=colour("series-1"))
        .encode(
            x=alt.X("s:Q", scale=scale, axis=axis),
            y=y,
            order=alt.Order("share:Q"),
            detail=[alt.Detail("cluster:N"), alt.Detail("vc:N")],
        )
    )
    base = _fewest_names(alt.Chart(data(marks))).encode(x=alt.X("s:Q", scale=scale, axis=axis), y=y)
    point = base.mark_point(filled=True, size=60, opacity=1, color=colour("series-1"), stroke=colour("paper"))
    point = point.encode(tooltip=[alt.Tooltip("words:N", title="is")])
    right = base.transform_filter("!datum.left").mark_text(align="left", dx=8, dy=9).encode(text="words:N")
    left = base.transform_filter("datum.left").mark_text(align="right", dx=-8, dy=-7).encode(text="words:N")
    return cast("alt.LayerChart", alt.layer(line, point, right, left).properties(height=190))


def _whose(row: Row) -> dict[str, Any]:
    """Return of whom a row is, by which a page is narrowed, and how many names that are."""
    return {"cluster": row["cluster"], "vc": row.get("vc"), "names": _SCOPES.index(row["scope"])}


_SCOPES = ("all", "cluster", "tenant")


def _fewest_names(chart: alt.Chart) -> alt.Chart:
    """Keep, of the rows that a page leaves, those with the fewest names."""
    least = chart.transform_joinaggregate(fewest="min(names)")
    return least.transform_filter("datum.names === datum.fewest")


class Shades:
    """Steps from pale to full that numbers are drawn in."""

    def __init__(self, ends: Sequence[float], words: Callable[[float], str]) -> None:
        self.ends = list(ends)
        """Where each step but the first begins."""
        self.words = words

    @property
    def strengths(self) -> list[float]:
        """The opacity of each step."""
        steps = len(self.ends) + 1
        return [round(0.12 + 0.88 * i / max(steps - 1, 1), 2) for i in range(steps)]

    def legend(self, hue: str) -> tuple[tuple[str, str], ...]:
        """Return the words and the colour of each step."""
        if not self.ends:
            return ()
        words = [f"below {self.words(self.ends[0])}", *(f"from {self.words(end)}" for end in self.ends)]
        return tuple(zip(words, (pale(hue, s) for s in self.strengths), strict=True))


_STEPS = 5
_DURATIONS = (60, 600, 3600, 6 * 3600, 86400, 7 * 86400)


def linear_shades(values: Sequence[float]) -> Shades:
    """Return up to five steps of a round length.

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
    number = math.ceil(top / step) - 1
    return Shades([float(f"{step * (i + 1):.6g}") for i in range(number)], lambda v: f"{v:,g}")


def time_shades(values: Sequence[float]) -> Shades:
    """Return steps that end on 1 min, 10 min, 1 h, 6 h, 1 d or 7 d, those that tell the values apart.

    Examples
    --------
    >>> time_shades([0, 30, 4000]).ends
    [60, 600, 3600]
    """
    low, top = min(values, default=0.0), max(values, default=0.0)
    return Shades([end for end in _DURATIONS if low <= end < top], duration)


def hours_of_week(
    rows: Sequence[Row], value: str, shades: Shades, *, hue: str, title: str, tooltip: Sequence[alt.Tooltip]
) -> Panel:
    """Return a map of the hours of the week: days below each other, the darker the more.

    Parameters
    ----------
    rows : sequence of dict
        With `day`, `hour`, `cluster`, `names` (0 for all clusters together), and the value where it is known.
    """
    base = _fewest_names(alt.Chart(data(rows))).encode(
        x=alt.X("hour:O", axis=hour_axis(), scale=alt.Scale(domain=list(range(24)), padding=0)),
        y=alt.Y(
            "day:N", sort=None, scale=alt.Scale(domain=list(DAYS), padding=0), axis=alt.Axis(title=None, grid=False)
        ),
    )
    strengths = alt.Scale(type="threshold", domain=shades.ends, range=shades.strengths)
    cells = base.transform_filter(f"isValid(datum.{value})").mark_rect(color=colour(hue))
    shade = alt.Opacity(f"{value}:Q", scale=strengths)
    cells = cells.encode(opacity=shade, tooltip=list(tooltip))
    return Panel(cells.properties(height=7 * 20), shades.legend(hue), title=title)
