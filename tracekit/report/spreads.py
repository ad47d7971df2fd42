"""Charts of distributions: lines for percentile ranges, and curves that mark the median and the 90th percentile."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tracekit.report.axes import Axis, axis_values, durations, percentage, position, share
from tracekit.report.charts import Chart, Hues, Mark, Tip, diamond, dot, line, whisker
from tracekit.report.theme import colour
from tracekit.text import counted, duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row

DISTRIBUTION = "Dot: median. Diamond: mean. Thick line: middle half. Thin line: 10th to 90th percentile."
"""Default marks of a distribution, as in the page's key."""

SHARES = (0, 1, *range(5, 100, 5), 99, 100)
"""Percentiles that are the points of a curve."""
_MARKED = {50: "median", 90: "90 %:"}
"""Percentiles marked on a curve, with the words that precede their values."""
_CURVE = 190
"""Height of a curve [px]."""


def ranges(
    rows: Sequence[Row],
    *,
    y: Axis,
    wide: tuple[str, str],
    narrow: tuple[str, str] | None = None,
    title: str,
    by: Hues | None = None,
    apart: bool = False,
    tips: Sequence[Tip] = (),
    sizes: tuple[float, float] = (2, 9),
    mean: str | None = None,
    within: Sequence[float] = (),
    note: str = "",
) -> Chart:
    """Draw distributions as a thin line, a thick line inside it, and a dot for the median.

    Parameters
    ----------
    rows : sequence of dict
        One distribution per row.
    y : Axis
        Vertical axis, which gives the position of each row.
    wide, narrow : tuple of str
        Columns with the ends of the thin and the thick line, as durations (p90_s) or percentages (p90_pct).
    title : str
        Title of the horizontal axis, which is logarithmic for durations.
    by : Hues, optional
        Colours of the rows. By default, all rows have the same colour.
    apart : bool
        Whether rows with different colours are stacked vertically within one category.
    tips : sequence of Tip
        Tooltip lines, in addition to those for the percentiles.
    sizes : tuple of float
        Widths of the thin and the thick line [px].
    mean : str, optional
        Column with the mean, which is shown as a hollow diamond.
    within : sequence of float
        More values for the axis to include, so neighbouring charts have the same axis.
    """
    unit = wide[0].rpartition("_")[2]
    values = [*axis_values(rows, wide if mean is None else (*wide, mean)), *within]
    x = percentage(wide[0], title) if unit == "pct" else durations(wide[0], title, values)
    low, high = narrow or wide
    columns = dict.fromkeys((wide[0], low, f"p50_{unit}", *([mean] if mean else []), high, wide[1]))
    hue: dict[str, Any] = {} if by is not None else {"color": colour("series-1")}
    marks = [whisker(x, wide[1], sizes[0], **hue)]
    if narrow is not None:
        marks.append(whisker(x.of(low), high, sizes[1], 0.6, **hue))
    marks.append(dot(x.of(f"p50_{unit}"), stroke=colour("paper"), strokeWidth=1.5, **hue))
    if mean is not None:
        marks.append(diamond(x.of(mean), **hue))
    return Chart(
        [{**r, **{f"{c}_words": duration(r[c]) for c in r if c.endswith("_s") and r[c] is not None}} for r in rows],
        x=x,
        y=y,
        marks=marks,
        by=by,
        apart=apart,
        tips=[*tips, *map(_percentile_tip, columns)],
        note=note,
    )


def _percentile_tip(column: str) -> Tip:
    """Return the tooltip line for a percentile or a mean: a duration in words (p90_s) or a percentage (p90_pct)."""
    name = column.rpartition("_")[0]
    words = {"p50": "median", "mean": "mean"}.get(name, f"{name[1:]}th percentile")
    return Tip(f"{column}_words", words) if column.endswith("_s") else Tip(column, f"{words} (%)", ".1f")


TAIL = "Dot: median. Diamond: mean. Lines: up to the 90th and the 95th percentile."
"""Explanation of the marks in `tails`."""


def tails(rows: Sequence[Row], y: Axis, tips: Sequence[Tip], *, note: str = "", by: Hues | None = None) -> Chart:
    """Draw sampled GPU utilization: median, mean, 90th and 95th percentile [%]."""
    return ranges(
        rows,
        y=y,
        wide=("p50_pct", "p95_pct"),
        narrow=("p50_pct", "p90_pct"),
        title="GPU utilization (%)",
        by=by,
        apart=True,
        tips=[*tips, Tip("samples", "", ",")],
        sizes=(2, 6),
        mean="mean_pct",
        note=f"{TAIL} {note}".strip(),
    )


def curve(rows: Sequence[Row], vc: str, *, title: str, of: str, heading: str) -> Chart:
    """Draw the cumulative distribution of durations.

    Parameters
    ----------
    rows : sequence of dict
        One distribution per row: `cluster`, the tenant, and durations `p0_s` to `p100_s`. The chart shows only rows
        with the fewest names: the row for everything or, on a filtered page, for the selection.
    vc : str
        The tenant's column.
    title, of, heading : str
        Titles of the duration axis, the share axis and the chart.
    """
    columns = [f"p{p}_s" for p in SHARES]
    values = axis_values(rows, columns)
    x = durations("s", f"{title} (log scale)", values)
    marks = [
        {
            **_whose(r, vc),
            **_marked(r[f"p{p}_s"], p, duration(r[f"p{p}_s"]), left=position(r[f"p{p}_s"], values) > 0.5),
        }
        for r in rows
        for p in _MARKED
    ]
    shares = {"calculate": f"[{','.join(f'{p / 100:g}' for p in SHARES)}]", "as": "share"}
    through = replace(
        line(hue="series-1"),
        transform=[*FEWEST_NAMES, shares, {"flatten": ["s", "share"]}],
        channels={**_UPWARDS, "detail": [{"field": c, "type": "nominal"} for c in ("cluster", "vc")]},
    )
    return Chart(
        [{**_whose(r, vc), "s": [round(r[c], 1) for c in columns]} for r in rows],
        x=x,
        y=share("share", of, whole=True),
        marks=[through, *_points(marks, x, FEWEST_NAMES)],
        height=_CURVE,
        title=heading,
    )


_UPWARDS = {"order": {"field": "share", "type": "quantitative"}}
FEWEST_NAMES = (
    {"joinaggregate": [{"op": "min", "field": "names", "as": "fewest"}]},
    {"filter": "datum.names === datum.fewest"},
)
"""Transforms that keep only the rows with the fewest names, among those that pass the page's filters."""


def _whose(row: Row, vc: str) -> dict[str, Any]:
    """Return a row's cluster and tenant, which the page's filters use, and how many of the two are set."""
    names = ("all", "cluster", "tenant").index(row["scope"])
    return {"cluster": row["cluster"], "vc": row.get(vc), "names": names}


def _marked(at: float, percentile: int, words: str, *, left: bool) -> dict[str, Any]:
    """Return a point of a curve with its label, which is on the left if it would otherwise leave the chart."""
    return {"s": at, "share": percentile / 100, "words": f"{_MARKED[percentile]} {words}", "left": left}


def _points(rows: Sequence[Row], x: Axis, kept: Sequence[Mapping[str, Any]] = ()) -> list[Mark]:
    """Return points on a curve with their labels."""
    # A curve never falls, so there is space for labels below it on the right and above it on the left.
    sides = {"!datum.left": {"align": "left", "dx": 8, "dy": 9}, "datum.left": {"align": "right", "dx": -8, "dy": -7}}
    words = {"text": {"field": "words", "type": "nominal"}}
    point = dot(x, color=colour("series-1"), stroke=colour("paper"))
    return [
        replace(point, rows=rows, transform=kept, tips=[Tip("words", "is")]),
        *(
            Mark("text", style, rows=rows, transform=[*kept, {"filter": which}], channels=words)
            for which, style in sides.items()
        ),
    ]


def percentile_size(rows: Sequence[Row], percentile: int) -> float | None:
    """Find the smallest GPU count that at least `percentile` percent of the jobs do not exceed.

    Jobs of unknown size are ignored. If there are no jobs, return None.

    Parameters
    ----------
    rows : sequence of dict
        `gpu_count` and the number of `jobs` with it.
    percentile : int
        Percentile from 1 to 100.

    Examples
    --------
    >>> rows = [{"gpu_count": 1, "jobs": 5}, {"gpu_count": 4, "jobs": 4}, {"gpu_count": 8, "jobs": 1}]
    >>> [percentile_size(rows, p) for p in (50, 51, 90, 91)]
    [1, 4, 4, 8]
    """
    ordered = _by_size(rows)
    below = list(accumulate(row["jobs"] for row in ordered))
    # Rounding may put a share just below its percentile, so use whole numbers.
    reached = (row["gpu_count"] for row, n in zip(ordered, below, strict=True) if 100 * n >= percentile * below[-1])
    return next(reached, None)


def _by_size(rows: Sequence[Row]) -> list[Row]:
    known = (row for row in rows if row["gpu_count"] is not None and row["jobs"])
    return sorted(known, key=lambda row: row["gpu_count"])


def size_curve(rows: Sequence[Row]) -> Chart | None:
    """Draw the cumulative share of jobs by requested GPUs, or return None if all jobs request the same number.

    Each doubling of GPUs has the same length on the axis; 0 is one doubling below the smallest count.

    Parameters
    ----------
    rows : sequence of dict
        `gpu_count`, which is 0 for CPU jobs, and the number of `jobs` with it.
    """
    ordered = _by_size(rows)
    if len(ordered) < 2:
        return None
    above = [math.log2(row["gpu_count"]) for row in ordered if row["gpu_count"] > 0]
    first, top, zero = math.floor(min(above)), math.ceil(max(above)), ordered[0]["gpu_count"] <= 0
    low = first - 1 if zero else first

    def place(size: float) -> float:
        return round(math.log2(size), 4) if size > 0 else float(low)

    below = list(accumulate(row["jobs"] for row in ordered))
    steps = [{"s": place(ordered[0]["gpu_count"]), "share": 0.0}]
    steps += [
        {"s": place(r["gpu_count"]), "share": round(n / below[-1], 5)} for r, n in zip(ordered, below, strict=True)
    ]
    sizes = {p: size for p in _MARKED if (size := percentile_size(ordered, p)) is not None}
    marks = [
        _marked(place(size), p, counted(size, "GPUs"), left=place(size) > (low + top) / 2) for p, size in sizes.items()
    ]
    words = "format(pow(2, datum.value), ',~g')"
    x = Axis(
        "s",
        f"GPUs at most (log scale{', 0 for CPU jobs' if zero else ''})",
        scale={"domain": [low - _EDGE, top + _EDGE], "nice": False},
        labels={
            "values": list(range(low, top + 1)),
            "labelExpr": f"datum.value < {first} ? '0' : {words}" if zero else words,
            "labelOverlap": "parity",
            "labelSeparation": 6,
        },
    )
    return Chart(
        steps,
        x=x,
        y=share("share", "jobs of known size", whole=True),
        marks=[replace(line(hue="series-1", interpolate="step-after"), channels=_UPWARDS), *_points(marks, x)],
        height=_CURVE,
        title="Jobs up to a size",
    )


_EDGE = 0.15
"""Margin at both ends of the axis [doublings]."""
