"""Sizes of jobs as a curve of steps, with median and 90th percentile marked."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import altair as alt

from tracekit.report.charts import data, percent_axis
from tracekit.report.theme import colour
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row

__all__ = ["percentile_size", "size_curve"]

_MARKED = {50: "median", 90: "90 %:"}
"""Percentiles that are marked, and the words in front of their sizes."""
_EDGE = 0.15
"""Room at both ends of the axis, in doublings."""


def percentile_size(rows: Sequence[Row], percentile: int) -> float | None:
    """Return the smallest number of GPUs that at least so many per cent of the jobs do not exceed.

    Jobs of unknown size are not counted; None where there is no job.

    Parameters
    ----------
    rows : sequence of dict
        `gpu_count` and how many `jobs` have it.
    percentile : int
        From 1 to 100.

    Examples
    --------
    >>> rows = [{"gpu_count": 1, "jobs": 5}, {"gpu_count": 4, "jobs": 4}, {"gpu_count": 8, "jobs": 1}]
    >>> [percentile_size(rows, p) for p in (50, 51, 90, 91)]
    [1, 4, 4, 8]
    """
    ordered = _by_size(rows)
    below = list(accumulate(row["jobs"] for row in ordered))
    # Whole numbers: a share may round to just below its percentile.
    reached = (row["gpu_count"] for row, n in zip(ordered, below, strict=True) if 100 * n >= percentile * below[-1])
    return next(reached, None)


def _by_size(rows: Sequence[Row]) -> list[Row]:
    known = (row for row in rows if row["gpu_count"] is not None and row["jobs"])
    return sorted(known, key=lambda row: row["gpu_count"])


def size_curve(rows: Sequence[Row]) -> alt.LayerChart | None:
    """Return the share of jobs that ask for at most each number of GPUs; None where all ask for the same.

    Parameters
    ----------
    rows : sequence of dict
        `gpu_count`, where 0 is a CPU job, and how many `jobs` have it.
    """
    ordered = _by_size(rows)
    if len(ordered) < 2:
        return None
    axis = _Doublings([row["gpu_count"] for row in ordered])
    below = list(accumulate(row["jobs"] for row in ordered))
    steps = [{"at": axis.place(ordered[0]["gpu_count"]), "share": 0.0}]
    steps += [
        {"at": axis.place(row["gpu_count"]), "share": round(number / below[-1], 5)}
        for row, number in zip(ordered, below, strict=True)
    ]
    marks: list[dict[str, Any]] = []
    for percentile, words in _MARKED.items():
        size = percentile_size(ordered, percentile)
        if size is not None:
            at = axis.place(size)
            left = at > (axis.low + axis.top) / 2
            marks.append(
                {"at": at, "share": percentile / 100, "words": f"{words} {counted(size, 'GPUs')}", "left": left}
            )
    x, y = axis.x(), alt.Y("share:Q", axis=percent_axis("jobs of known size"), scale=alt.Scale(domain=[0, 1]))
    line = alt.Chart(data(steps)).mark_line(interpolate="step-after", strokeWidth=2, color=colour("series-1"))
    base = alt.Chart(data(marks)).encode(x=x, y=y)
    point = base.mark_point(filled=True, size=60, opacity=1, color=colour("series-1"), stroke=colour("paper"))
    point = point.encode(tooltip=[alt.Tooltip("words:N", title="is")])
    # A curve never falls: it leaves room below it on the right, and above it on the left.
    right = base.transform_filter("!datum.left").mark_text(align="left", dx=8, dy=9).encode(text="words:N")
    left_of = base.transform_filter("datum.left").mark_text(align="right", dx=-8, dy=-7).encode(text="words:N")
    layers = (line.encode(x=x, y=y, order=alt.Order("share:Q")), point, right, left_of)
    return cast("alt.LayerChart", alt.layer(*layers).properties(height=190))


class _Doublings:
    """An axis on which each doubling of GPUs is as long, with a place for 0 one doubling below the least."""

    def __init__(self, sizes: Sequence[float]) -> None:
        above = [math.log2(size) for size in sizes if size > 0]
        self.zero = min(sizes) <= 0
        self.first, self.top = math.floor(min(above, default=0.0)), math.ceil(max(above, default=0.0))
        self.low = self.first - 1 if self.zero else self.first

    def place(self, size: float) -> float:
        return round(math.log2(size), 4) if size > 0 else float(self.low)

    def x(self) -> alt.X:
        words = "format(pow(2, datum.value), ',~g')"
        axis = alt.Axis(
            title=f"GPUs at most (log scale{'; 0: CPU jobs' if self.zero else ''})",
            values=list(range(self.low, self.top + 1)),
            labelExpr=f"datum.value < {self.first} ? '0' : {words}" if self.zero else words,
            labelOverlap="parity",
            labelSeparation=6,
        )
        scale = alt.Scale(domain=[self.low - _EDGE, self.top + _EDGE], nice=False)
        return alt.X("at:Q", axis=axis, scale=scale)
