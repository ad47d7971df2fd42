"""Names at the right ends of lines, apart from each other, where a legend would have to be looked up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import altair as alt

from tracekit.report.charts import data
from tracekit.report.theme import text_colour

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row

__all__ = ["MOST", "LineEnd", "beside", "broken", "end_labels", "named_at_ends", "nice_top", "parted"]

MOST = 4
"""Most lines whose names stand at their ends."""
LINE = 14
"""Height of a line of a label [px]."""
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
    """What the line is called."""
    value: float
    """Where it ends on the vertical axis."""
    colour: str
    """As charts write it: 'var(--series-1)'."""
    row: Mapping[str, Any]
    """What else its row has, by which a page is narrowed."""


def end_labels(ends: Sequence[LineEnd], *, top: float, height: float, axis: alt.Y) -> list[alt.Chart]:
    """Return a layer for each name; none where a legend serves better.

    A legend does for more than `MOST` lines, for names too long for the room beside a narrow chart, and where lines end
    so near to each other that names could not stand at their own.

    Parameters
    ----------
    ends : sequence of LineEnd
        One a line.
    top : float
        Where the vertical axis ends, which begins at 0.
    height : float
        Of the chart [px].
    axis : alt.Y
        The vertical axis of the lines.
    """
    names = [broken(end.words) for end in ends]
    if not 1 < len(ends) <= MOST or top <= 0 or not all(1 <= len(lines) <= _LINES for lines in names):
        return []
    pixels = [height * (1 - end.value / top) for end in ends]
    places = parted(pixels, [LINE * len(lines) for lines in names], height)
    if places is None:
        return []
    return [
        _label({**end.row, "at": round(top * (1 - place / height), 6), "name": lines}, end.colour, axis)
        for end, lines, place in zip(ends, names, places, strict=True)
    ]


def named_at_ends(lines: alt.Chart, labels: Sequence[alt.Chart]) -> tuple[alt.Chart | alt.LayerChart, bool]:
    """Return lines with their names, where there are any, and whether there are."""
    if not labels:
        return lines, False
    height = lines.height
    both = alt.layer(lines, *labels)
    return cast("alt.LayerChart", both.properties(height=height)), True


def _label(row: Row, hue: str, axis: alt.Y) -> alt.Chart:
    return beside(data([row]), row["name"], hue, alt.Y("at:Q", axis=axis["axis"], scale=axis["scale"]))


def beside(rows: alt.InlineData, lines: Sequence[str], hue: str, y: alt.Y) -> alt.Chart:
    """Return a name right of a chart, at the height that its one row has."""
    # Of several lines the first stands at the place.
    up = -LINE * (len(lines) - 1) / 2
    mark = alt.Chart(rows).mark_text(
        align="left", baseline="middle", dx=_GAP, dy=up, lineHeight=LINE, color=text_colour(hue)
    )
    drawn: alt.Chart = mark.encode(x=alt.value("width"), y=y, text=alt.Text("name:N"))
    return drawn


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
