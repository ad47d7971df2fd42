"""Names at the right ends of lines, apart from each other, where a legend would have to be looked up."""

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
"""Most lines whose names stand at their ends."""
_LETTERS, _LINES = 14, 3
"""Longest line of a label, and most lines of it; longer names would take too much of a narrow chart."""
_NEAR = 6
"""Least distance of two ends that the eye tells apart [px]."""
_FAR = 24
"""Farthest that a label may stand from the end of its line [px]."""
_GAP = 8
"""Between a line and its name [px]."""


@dataclass(frozen=True)
class LineEnd:
    """The right end of a line."""

    words: str
    """What the line is called, by which it has its colour."""
    value: float
    """Where it ends on the vertical axis."""
    row: Mapping[str, Any]
    """What else its row has, by which a page is narrowed."""


def named_at_ends(chart: Chart, ends: Sequence[LineEnd], most: float) -> Chart:
    """Return a chart of lines with their names at their ends; as it is where a legend serves better.

    A legend does for more than `MOST` lines, for names too long for the room beside a narrow chart, and where lines end
    so near to each other that names could not stand at their own.

    Parameters
    ----------
    chart : Chart
        Its colours are by the names of the lines, and its vertical axis begins at 0.
    ends : sequence of LineEnd
        One a line.
    most : float
        The largest value of the lines.
    """
    top = chart.y.scale["domain"][1] if "domain" in chart.y.scale else nice_top(most, chart.y.labels["tickCount"])
    labels = end_labels(chart, ends, top)
    return replace(chart, marks=[*chart.marks, *labels], ends=True) if labels else chart


def named_in_last(chart: Chart, last: object, *kept: str) -> Chart:
    """Return a chart of lines with their names at the rows whose place is `last`, where each line has one there.

    `kept` are columns by which a page is narrowed.
    """
    x, y, by = chart.x.column, chart.y.column, chart.by.column if chart.by is not None else ""
    known = [row for row in chart.rows if row[y] is not None]
    ends = [LineEnd(row[by], row[y], {c: row[c] for c in kept}) for row in known if row[x] == last]
    if sorted(end.words for end in ends) != sorted({row[by] for row in known}):
        return chart
    return named_at_ends(chart, ends, max((row[y] for row in known), default=0))


def end_labels(chart: Chart, ends: Sequence[LineEnd], top: float) -> list[Mark]:
    """Return the names of lines as marks, one each; none where they have no room. `top` is the end of the axis."""
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
    """Return a name right of a chart, at the height that its one row has; `name` is a list of lines."""
    # Of several lines the first stands at the place.
    up = -LINE * (len(rows[0]["name"]) - 1) / 2 if rows else 0
    look = {"align": "left", "baseline": "middle", "dx": _GAP, "dy": up, "lineHeight": LINE, "color": text_colour(hue)}
    text = {"x": {"value": "width"}, "text": {"field": "name", "type": "nominal"}}
    return Mark("text", look, y=y, on="y", rows=rows, channels=text)


def broken(words: str) -> list[str]:
    """Return words in lines short enough to stand beside a chart; nothing where one word is too long for that.

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
    """Return where the middles of labels stand so that none lies over another and all are beside the chart.

    Like the words of an axis they reach at most half a line beyond it. None where two ends are too near to be told
    apart, where there is no room, or where a label would stand far from its end.

    Parameters
    ----------
    places : sequence of float
        Where the lines end, from the top [px].
    heights : sequence of float
        Of the labels [px].
    height : float
        Of the chart [px].

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
    # Labels that touch are one block, whose middle is the mean of what its labels ask for.
    blocks: list[list[int]] = []
    for i in order:
        blocks.append([i])
        while len(blocks) > 1 and _top(blocks[-2], places, heights, height) + _sum(blocks[-2], heights) > _top(
            blocks[-1], places, heights, height
        ):
            last = blocks.pop()
            blocks[-1] += last
    found = [0.0] * len(places)
    for block in blocks:
        at = _top(block, places, heights, height)
        for i in block:
            found[i] = at + heights[i] / 2
            at += heights[i]
    far = any(abs(found[i] - places[i]) > max(_FAR, heights[i] / 2) for i in order)
    return None if far else found


def _sum(block: Sequence[int], heights: Sequence[float]) -> float:
    return sum(heights[i] for i in block)


def _top(block: Sequence[int], places: Sequence[float], heights: Sequence[float], height: float) -> float:
    """Return where a block of labels begins: as near to the ends as the chart has room."""
    wanted, above = 0.0, 0.0
    for i in block:
        wanted += places[i] - heights[i] / 2 - above
        above += heights[i]
    return min(max(wanted / len(block), -LINE / 2), height + LINE / 2 - above)


def nice_top(most: float, ticks: int) -> float:
    """Return where an axis from 0 with about so many ticks ends, as the chart's library rounds it.

    Examples
    --------
    >>> nice_top(17.9, 5), nice_top(192, 4), nice_top(0, 4)
    (20.0, 200.0, 0.0)
    """
    top, step = most, 0.0
    for _ in range(10):  # as often as d3-scale repeats it
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
