"""A chart as data: rows, axes, marks and colours. One renderer writes it as Vega-Lite for pages, notebooks and files.

Colours are CSS variables (see `theme`). Legends are HTML lists, because these wrap on a phone and are readable by
screen readers. Widths follow the page.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tracekit.report.phrases import status_word
from tracekit.report.theme import colour

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.axes import Axis
    from tracekit.report.facts import TraceFacts

    Legend = tuple[tuple[str, str], ...]
    Holder = Callable[[Sequence[Row]], dict[str, Any]]

GPU_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")
"""Size classes of jobs, from small to large."""

STATUSES = (
    "completed",
    "cancelled",
    "failed",
    "timeout",
    "node_fail",
    "out_of_memory",
    "preempted",
    "running",
    "pending",
    "unknown",
)
"""Job statuses in stacking order."""

_MEANINGFUL = ("var(--class-", "var(--status-")
"""Colours of sizes and statuses. They need a legend even if a chart uses only one of them."""


@dataclass(frozen=True)
class Hues:
    """A column shown by colour, and the colour of each value, such as 'var(--series-1)'.

    Without a column, the marks have their own colours, and this is only the legend.
    """

    column: str
    colours: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)
    """Legend labels that differ from the values."""
    told: bool = True
    """Whether the page shows a legend for the colours. If not, the chart's note explains them."""

    @property
    def legend(self) -> Legend:
        """Legend entries: (label, colour)."""
        return tuple((self.words.get(value, value), hue) for value, hue in self.colours.items())

    def scale(self) -> dict[str, Any]:
        """Return a colour scale with a fixed colour for each value."""
        return {"domain": list(self.colours), "range": list(self.colours.values())}


def series(column: str, names: Iterable[str], first: int = 1) -> Hues:
    """Assign series colours to names without a fixed colour, starting with number `first`."""
    return Hues(column, {name: colour(f"series-{i}") for i, name in enumerate(names, first)})


def size_hues(rows: Iterable[Row], column: str = "gpu_class") -> Hues:
    """Return the colours of the size classes that occur, from small to large."""
    have = {row[column] for row in rows}
    colours = {c: colour(f"class-{i}") for i, c in enumerate(GPU_CLASSES) if c in have}
    return Hues(column, colours, {c: f"{c} GPU" if c in {"1", "<1"} else f"{c} GPUs" for c in colours})


def status_hues(rows: Iterable[Row], column: str) -> Hues:
    """Return the colours of the statuses that occur, in stacking order."""
    have = {row[column] for row in rows}
    return Hues(
        column, {s: colour(f"status-{s}") for s in STATUSES if s in have}, {s: status_word(s) for s in STATUSES}
    )


@dataclass(frozen=True)
class Tip:
    """One line of a mark's tooltip: a column, its label and its number format."""

    column: str
    title: str = ""
    """Label of the line, if it differs from the column name."""
    form: str = ""
    """Format of a number or time. Without a format, the value is shown as text."""
    time: bool = False
    """Whether the value is a time."""

    def channel(self) -> dict[str, Any]:
        """Return the line as a Vega-Lite channel."""
        kind = "temporal" if self.time else "quantitative" if self.form else "nominal"
        return {
            "field": self.column,
            "type": kind,
            **({"title": self.title} if self.title else {}),
            **({"format": self.form} if self.form else {}),
        }


def moment_tip(facts: TraceFacts, column: str = "time") -> Tip:
    """Return the tooltip line that shows a time."""
    if facts.dated:
        return Tip(column, "from", "%Y-%m-%d %H:%M", time=True)
    return Tip(column, "from day" if column == "from" else "day", ".2f")


@dataclass(frozen=True)
class Mark:
    """The mark for each row: a bar, line, area, point, rule, tick, rectangle or text."""

    type: str
    style: Mapping[str, Any] = field(default_factory=dict)
    """Vega-Lite properties of the mark. A colour set here applies to all its rows."""
    x: Axis | None = None
    y: Axis | None = None
    """Axes of the mark, if they differ from the chart's."""
    x2: str = ""
    y2: str = ""
    """Columns with the second end of the mark."""
    on: str = "xy"
    """Axes that the mark uses."""
    rows: Sequence[Row] | None = None
    """Rows of the mark, if they differ from the chart's. The mark then inherits no colours and no tooltip."""
    transform: Sequence[Mapping[str, Any]] = ()
    """Transforms that Vega-Lite applies to the rows before drawing them."""
    tips: Sequence[Tip] | None = None
    """Tooltip of the mark, if it differs from the chart's."""
    channels: Mapping[str, Any] = field(default_factory=dict)
    """Other Vega-Lite channels."""


@dataclass(frozen=True)
class Chart:
    """One chart with its title, legend and note."""

    rows: Sequence[Row]
    """Rows of the chart, one mark per row."""
    x: Axis
    """The horizontal axis."""
    y: Axis
    """The vertical axis."""
    marks: Sequence[Mark | Sequence[Mark]]
    """Marks from back to front. Marks in a nested group have their own vertical scale."""
    height: float = 0.0
    """Height of the plot area [px]. By default, the length of the vertical axis."""
    by: Hues | None = None
    """Column that determines the colour of marks. Without it, each mark uses its own colour."""
    apart: bool = False
    """Whether rows with different colours are stacked vertically within one category."""
    tips: Sequence[Tip] = ()
    """Tooltip of a mark."""
    title: str = ""
    """Heading of the chart, used if a question has several charts."""
    note: str = ""
    """Note that explains the marks and says what was left out."""
    ends: bool = False
    """Whether names are written at the line ends. If so, only screen readers need the legend."""
    wide: bool = False
    """Whether the chart takes the full width even if a question has several charts."""

    @property
    def legend(self) -> Legend:
        """Legend entries: (label, colour). Empty if the vertical axis or the note already explains the colours."""
        return self.by.legend if self.by is not None and self.by.told and self.by.column != self.y.column else ()

    @property
    def key(self) -> Legend:
        """The legend on a page. A single colour needs none, unless it marks a size or a status."""
        lone = len(self.legend) == 1 and not self.legend[0][1].startswith(_MEANINGFUL)
        return () if lone else self.legend

    def to_dict(self, *, checked: bool = True) -> dict[str, Any]:
        """Return the Vega-Lite specification for a page. The config shared by all charts is `theme.chart_config`.

        With `checked`, it is validated against the Vega-Lite schema, which is by far the slowest step.
        """
        if checked:
            from altair import Root

            Root.validate(self._on_page)
        return dict(self._on_page)

    @cached_property
    def _on_page(self) -> dict[str, Any]:
        datasets: dict[str, list[Row]] = {}

        def named(rows: Sequence[Row]) -> dict[str, Any]:
            text = json.dumps(rows, sort_keys=True, default=str)
            name = f"data-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
            datasets[name] = list(rows)
            return {"name": name}

        return {**self.drawn(named), "width": "container", "autosize": _AUTOSIZE, "datasets": datasets}

    def drawn(self, data: Holder = lambda rows: {"values": list(rows)}) -> dict[str, Any]:
        """Return the specification without a width. `data` converts rows to a Vega-Lite data object."""
        rows: dict[str, Any] = data(self.rows)
        layers = [self._layer(mark, data) for mark in self.marks]
        whole: dict[str, Any] = layers[0] if len(layers) == 1 else {"layer": layers}
        own = any(not isinstance(mark, Mark) for mark in self.marks)
        resolved: dict[str, Any] = {"resolve": {"scale": {"y": "independent"}}} if own else {}
        return {"data": rows, **whole, **resolved, "height": self.height or self.y.length}

    def _layer(self, mark: Mark | Sequence[Mark], data: Holder) -> dict[str, Any]:
        if not isinstance(mark, Mark):
            return {"layer": [self._layer(one, data) for one in mark]}
        axes = {"x": mark.x or self.x, "y": mark.y or self.y}
        found: dict[str, Any] = {} if mark.rows is None else {"data": data(mark.rows)}
        found |= {"transform": list(mark.transform)} if mark.transform else {}
        channels: dict[str, Any] = {name: axes[name].channel() for name in mark.on}
        channels |= {name: {"field": column} for name, column in (("x2", mark.x2), ("y2", mark.y2)) if column}
        if self.by is not None and self.by.column and "color" not in mark.style:
            hues = {"field": self.by.column, "type": "nominal", "scale": self.by.scale()}
            channels["color"] = hues
            if self.apart:
                channels["yOffset"] = {**hues, "scale": {"domain": list(self.by.colours)}}
        tips = mark.tips if mark.tips is not None else self.tips if mark.rows is None else ()
        channels |= {"tooltip": [tip.channel() for tip in tips]} if tips else {}
        return {**found, "mark": {"type": mark.type, **mark.style}, "encoding": channels | dict(mark.channels)}


_AUTOSIZE = {"type": "fit-x", "contains": "padding"}


def bar(thickness: float, hue: str = "") -> Mark:
    """Return horizontal bars."""
    return Mark("bar", {"height": thickness, **({"color": colour(hue)} if hue else {})})


def stack(thickness: float) -> Mark:
    """Return stacked horizontal bars. Colours are ordered by the 'order' column and separated by a thin gap."""
    order = {"order": {"field": "order", "type": "quantitative"}}
    return Mark("bar", {"height": thickness, "stroke": colour("paper"), "strokeWidth": 1}, channels=order)


def line(width: float = 2, hue: str = "", **style: Any) -> Mark:
    """Return lines. `style` contains further Vega-Lite properties, such as interpolate."""
    return Mark("line", {"strokeWidth": width, **({"color": colour(hue)} if hue else {}), **style})


def steps(hue: str, *, y: Axis | None = None) -> Mark:
    """Return a step area for the means of intervals."""
    return Mark("area", {"interpolate": "step-after", "opacity": 0.55, "color": colour(hue)}, y=y)


def band(low: Axis, high: str, **style: Any) -> Mark:
    """Return a pale area from one column to another, for the interval around a line."""
    return Mark("area", {"opacity": 0.15, **style}, y=low, y2=high)


def dot(x: Axis | None = None, **style: Any) -> Mark:
    """Return filled points."""
    return Mark("point", {"filled": True, "size": 60, "opacity": 1, **style}, x=x)


def diamond(x: Axis, **style: Any) -> Mark:
    """Return hollow diamonds."""
    look = {"shape": "diamond", "size": 70, "opacity": 1, "strokeWidth": 1.5, "fill": colour("paper")}
    return Mark("point", {**look, **style}, x=x)


def whisker(low: Axis, high: str, width: float = 2, opacity: float = 0.75, **style: Any) -> Mark:
    """Return horizontal lines from one column to another."""
    return Mark("rule", {"strokeWidth": width, "opacity": opacity, **style}, x=low, x2=high)


def reference(
    x: Axis, words: str, *, left: bool, rows: Sequence[Row] | None = None, kept: Sequence[Mapping[str, Any]] = ()
) -> list[Mark]:
    """Return a dashed vertical line at a value, with its label above the chart.

    Parameters
    ----------
    x : Axis
        Axis of the value.
    words : str
        Label of the line. Each part between commas becomes a line of text, to fit a narrow chart.
    left : bool
        Whether to put the label left of the line, inside the chart.
    rows, kept : sequence
        The row with the value, or transforms that select it from the chart's rows.
    """
    hue, lines = colour("series-3"), words.replace(", ", ",\n").split("\n")
    side = {"align": "right", "dx": 4} if left else {"align": "left", "dx": -4}
    up, text = -4 - LINE * (len(lines) - 1), lines if len(lines) > 1 else words
    dashes = {"strokeDash": [4, 3], "opacity": 0.9, "color": hue, "strokeWidth": 1.5}
    label = {**side, "baseline": "bottom", "lineHeight": LINE, "color": hue}
    one: dict[str, Any] = {"x": x, "on": "x", "rows": rows, "transform": kept, "tips": ()}
    return [
        Mark("rule", dashes, **one),
        Mark("text", label, **one, channels={"y": {"value": up}, "text": {"value": text}}),
    ]


LINE = 14
"""Height of one line of a label [px]."""
