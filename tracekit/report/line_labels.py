"""Labels at the right ends of lines, which do not overlap and replace a legend."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tracekit.report.charts import LINE, Mark
from tracekit.report.theme import text_colour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.axes import Axis
    from tracekit.report.charts import Chart

MOST = 4
"""Maximum number of lines in a chart with labels at their ends."""
_LETTERS, _LINES = 14, 3
"""Maximum line length and number of lines of a label. Longer names would use too much of a narrow chart."""
_NEAR = 6
"""Minimum distance [px] at which two line ends can be distinguished."""
_FAR = 24
"""Maximum distance of a label from the end of its line [px]."""
_GAP = 8
"""Gap between a line and its label [px]."""


@dataclass(frozen=True)
class LineEnd:
    """The right end of a line."""

    words: str
    """Name of the line, which determines its colour."""
    value: float
    """Value at the end of the line on the vertical axis."""
    row: Mapping[str, Any]
    """Other columns of its row, which the page's filters use."""


def named_at_ends(chart: Chart, ends: Sequence[LineEnd], most: float) -> Chart:
    """Add labels at the line ends of a chart, or return the chart unchanged if a legend is better.

    A legend is better for more than `MOST` lines, for names too long for a narrow chart, and for lines that end too
    close together.

    Parameters
    ----------
    chart : Chart
        Line chart that is coloured by line name and has a vertical axis from 0.
    ends : sequence of LineEnd
        One end per line.
    most : float
        The largest value of all lines.
    """
    top = chart.y.scale["domain"][1] if "domain" in chart.y.scale else nice_top(most, chart.y.labels["tickCount"])
    labels = end_labels(chart, ends, top)
    return replace(chart, marks=[*chart.marks, *labels], ends=True) if labels else chart


def named_in_last(chart: Chart, last: object, *kept: str) -> Chart:
    """Add labels to a line chart at the rows whose x value is `last`, if every line has such a row.

    `kept` lists the columns that the page's filters use.
    """
    x, y, by = chart.x.column, chart.y.column, chart.by.column if chart.by is not None else ""
    known = [row for row in chart.rows if row[y] is not None]
    ends = [LineEnd(row[by], row[y], {c: row[c] for c in kept}) for row in known if row[x] == last]
    if sorted(end.words for end in ends) != sorted({row[by] for row in known}):
        return chart
    return named_at_ends(chart, ends, max((row[y] for row in known), default=0))


def end_labels(chart: Chart, ends: Sequence[LineEnd], top: float) -> list[Mark]:
    """Return one label mark per line, or none if the labels do not fit. `top` is the end of the axis."""
    lines, height = [broken(end.words) for end in ends], chart.height
    if not 1 < len(ends) <= MOST or top <= 0 or not all(1 <= len(one) <= _LINES for one in lines):
        return []
    pixels = [height * (1 - end.value / top) for end in ends]
    places = parted(pixels, [LINE * len(one) for one in lines], height)
    if places is None or chart.by is None:
        return []
    return [
        beside(
            [{**end.row, "at": round(top * (1 - place / height), 6), "name": name}],
            chart.by.colours[end.words],
            chart.y.of("at"),
        )
        for end, name, place in zip(ends, lines, places, strict=True)
    ]


def beside(rows: Sequence[Row], hue: str, y: Axis) -> Mark:
    """Return a label to the right of a chart, at the height of its only row. `name` is a list of text lines."""
    # If there are several text lines, the first line is at the given height.
    up = -LINE * (len(rows[0]["name"]) - 1) / 2 if rows else 0
    look = {"align": "left", "baseline": "middle", "dx": _GAP, "dy": up, "lineHeight": LINE, "color": text_colour(hue)}
    text = {"x": {"value": "width"}, "text": {"field": "name", "type": "nominal"}}
    return Mark("text", look, y=y, on="y", rows=rows, channels=text)


def broken(words: str) -> list[str]:
    """Split words into lines that fit next to a chart, or return [] if a single word is too long.

    Examples
    --------
    >>> broken("if nodes failed independently"), broken("a_very_long_name_of_a_cluster")
    (['if nodes', 'failed', 'independently'], [])
    """
    lines: list[str] = []
    for word in words.split():
        if len(word) > _LETTERS:
            return []
        if lines and len(lines[-1]) + 1 + len(word) <= _LETTERS:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def parted(places: Sequence[float], heights: Sequence[float], height: float) -> list[float] | None:
    """Find label centres so that no labels overlap and all are within the chart's height.

    Like axis labels, the labels may extend up to half a line beyond the chart. Return None if two ends are too close to
    distinguish, if the chart is too small, or if a label would be too far from its line end.

    Parameters
    ----------
    places : sequence of float
        Distances of the line ends from the top [px].
    heights : sequence of float
        Heights of the labels [px].
    height : float
        Height of the chart [px].

    Examples
    --------
    >>> parted([10, 16, 90], [14, 14, 14], 100)
    [6.0, 20.0, 90.0]
    >>> parted([10, 12], [14, 14], 100) is None
    True
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    if any(places[b] - places[a] < _NEAR for a, b in pairwise(order)) or sum(heights) > height + LINE:
        return None

    def top(block: Sequence[int]) -> float:
        """Return the top of a block of labels, which is as close to the line ends as the chart allows."""
        wanted, above = 0.0, 0.0
        for i in block:
            wanted += places[i] - heights[i] / 2 - above
            above += heights[i]
        return min(max(wanted / len(block), -LINE / 2), height + LINE / 2 - above)

    # Touching labels form a block, centred on the mean of their preferred positions.
    blocks: list[list[int]] = []
    for i in order:
        blocks.append([i])
        while len(blocks) > 1 and top(blocks[-2]) + sum(heights[k] for k in blocks[-2]) > top(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    found = [0.0] * len(places)
    for block in blocks:
        at = top(block)
        for i in block:
            found[i] = at + heights[i] / 2
            at += heights[i]
    far = any(abs(found[i] - places[i]) > max(_FAR, heights[i] / 2) for i in order)
    return None if far else found


def nice_top(most: float, ticks: int) -> float:
    """Return the end of an axis that starts at 0 and has about `ticks` ticks, rounded as the chart library does.

    Examples
    --------
    >>> nice_top(17.9, 5), nice_top(192, 4), nice_top(0, 4)
    (20.0, 200.0, 0.0)
    """
    top, step = most, 0.0
    for _ in range(10):  # d3-scale uses the same number of iterations
        if top <= 0:
            return 0.0
        power = 10.0 ** math.floor(math.log10(top / ticks))
        error = top / ticks / power
        factor = 10 if error >= math.sqrt(50) else 5 if error >= math.sqrt(10) else 2 if error >= math.sqrt(2) else 1
        if factor * power == step:
            break
        step = factor * power
        top = math.ceil(round(top / step, 9)) * step
    return top
