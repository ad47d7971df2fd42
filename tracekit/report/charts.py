"""Parts that all charts share: panels, axes, and lines that show a distribution.

A chart is drawn from the rows of report.json. Colours are CSS variables (see `theme`), legends are lists in the
page (they wrap on a phone and can be read aloud), widths follow the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import altair as alt

from tracekit.report.axes import end_on_ticks, time_axis, time_ends, time_scale
from tracekit.report.phrases import FEW, status_word
from tracekit.report.telling import occurring
from tracekit.report.theme import colour
from tracekit.text import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.answer import Row

__all__ = [
    "DISTRIBUTION",
    "GPU_CLASSES",
    "STATUSES",
    "Panel",
    "axis_values",
    "bars",
    "category",
    "class_colours",
    "class_legend",
    "data",
    "height",
    "number_tooltips",
    "palette",
    "percent_axis",
    "position",
    "ranges",
    "reference",
    "status_colours",
    "status_legend",
    "time_axis",
    "time_scale",
    "time_tooltips",
]

DISTRIBUTION = "Dot: median. Diamond: mean. Thick line: middle half. Thin line: 10th to 90th percentile."
"""How a distribution is drawn unless a note says otherwise; a page has a key that draws it."""

GPU_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")
"""Size classes of jobs, small to large."""

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
"""Job statuses in the order in which charts stack them."""


@dataclass(frozen=True)
class Panel:
    """One chart and what stands around it."""

    chart: alt.Chart | alt.LayerChart
    legend: tuple[tuple[str, str], ...] = ()
    """What each colour means: (words, colour)."""
    title: str = ""
    """Heading, when a question has several charts."""
    note: str = ""
    """What the marks stand for, and what was left out."""
    ends: bool = False
    """Whether names stand at the ends of the lines, so that the legend is read aloud alone."""
    wide: bool = False
    """Whether it takes the whole width where it is one of several."""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The legend that a page shows: none for a single colour, unless that stands for a size or a status."""
        lone = len(self.legend) == 1 and not self.legend[0][1].startswith(_MEANINGFUL)
        return () if lone else self.legend

    def to_dict(self, *, checked: bool = True) -> dict[str, Any]:
        """Return the Vega-Lite specification; the config that all charts share is `theme.chart_config`.

        `checked` validates it against the schema of Vega-Lite, which takes longer than everything else.
        """
        return dict(self._unchecked) if not checked else self._spec(checked=True)

    @cached_property
    def _unchecked(self) -> dict[str, Any]:
        return self._spec(checked=False)

    def _spec(self, *, checked: bool) -> dict[str, Any]:
        with alt.data_transformers.enable(consolidate_datasets=True):
            # Altair copies a chart to set a property of it.
            spec = {**self.chart.to_dict(validate=checked), "width": "container", "autosize": _AUTOSIZE}
        end_on_ticks({k: v for k, v in spec.items() if k != "datasets"})
        spec["datasets"] = {name: list(rows) for name, rows in spec.get("datasets", {}).items()}
        return spec


_MEANINGFUL = ("var(--class-", "var(--status-")
"""Colours of sizes and statuses, which need a legend even where there is only one."""

_AUTOSIZE: dict[str, Any] = {"type": "fit-x", "contains": "padding"}


def data(rows: Iterable[Row]) -> alt.InlineData:
    """Return rows as inlined chart data."""
    # A tuple, since Altair copies a list, and every row in it, at each step that makes a chart.
    return alt.InlineData(values=tuple(rows))


def height(number: int, step: float) -> float:
    """Return the height [px] of a chart with `number` categories of `step` pixels."""
    return max(number, 1) * step


def class_colours(classes: Iterable[str]) -> dict[str, str]:
    """Return the colour of each size class that occurs, small to large."""
    have = set(classes)
    return {c: colour(f"class-{i}") for i, c in enumerate(GPU_CLASSES) if c in have}


def status_colours(statuses: Iterable[str]) -> dict[str, str]:
    """Return the colour of each status that occurs, in stacking order."""
    have = set(statuses)
    return {s: colour(f"status-{s}") for s in STATUSES if s in have}


def palette(colours: dict[str, str]) -> alt.Scale:
    """Return a colour scale with a fixed colour for each value."""
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def class_legend(colours: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the legend of size classes."""
    return tuple((f"{c} GPU" if c in {"1", "<1"} else f"{c} GPUs", v) for c, v in colours.items())


def status_legend(colours: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the legend of statuses."""
    return tuple((status_word(s), v) for s, v in colours.items())


def axis_values(rows: Iterable[Row], names: Sequence[str]) -> list[float]:
    """Return the numbers in the named columns."""
    return [row[n] for row in rows for n in names if isinstance(row.get(n), int | float)]


def position(value: float, values: Sequence[float]) -> float:
    """Return where a duration stands on the axis of `values` [0..1]."""
    low, top = time_ends(values)
    whole = math.log1p(top) - math.log1p(low)
    return (math.log1p(value) - math.log1p(low)) / whole if whole else 0.0


def reference(base: alt.Chart, x: alt.X, words: str, *, left: bool) -> list[alt.Chart]:
    """Return a dashed line from top to bottom at a value, and its label above the chart.

    Parameters
    ----------
    base : alt.Chart
        With one row of data left.
    words : str
        What the line is; each part between commas is a line of the label, which a narrow chart has room for.
    left : bool
        Whether the label stands left of the line, so that it does not leave the chart.
    """
    rule = base.mark_rule(strokeDash=[4, 3], opacity=0.9, color=colour("series-3"), strokeWidth=1.5)
    side: dict[str, Any] = {"align": "right", "dx": 4} if left else {"align": "left", "dx": -4}
    lines = words.replace(", ", ",\n").split("\n")
    up = -4 - _LINE * (len(lines) - 1)
    text = base.mark_text(**side, baseline="bottom", lineHeight=_LINE, color=colour("series-3"))
    return [rule.encode(x=x), text.encode(x=x, y=alt.value(up), text=alt.value(lines if len(lines) > 1 else words))]


_LINE = 14
"""Height of a line of a label [px]."""


_WORDS = {"p50": "median", "mean": "mean"}


def time_tooltips(key: str, title: str, number: str, columns: Sequence[str]) -> list[alt.Tooltip]:
    """Return hover text: the category, how many, and each duration in words."""
    return [
        alt.Tooltip(f"{key}:N", title=title),
        alt.Tooltip(f"{number}:Q", format=","),
        *(alt.Tooltip(f"{c}_words:N", title=_word(c)) for c in columns),
    ]


def number_tooltips(keys: dict[str, str], number: str, columns: Sequence[str]) -> list[alt.Tooltip]:
    """Return hover text: the categories, how many, and each percentage."""
    return [
        *(alt.Tooltip(f"{k}:N", title=t) for k, t in keys.items()),
        alt.Tooltip(f"{number}:Q", format=","),
        *(alt.Tooltip(f"{c}:Q", title=_word(c) + " (%)", format=".1f") for c in columns),
    ]


def _word(column: str) -> str:
    name = column.rpartition("_")[0]
    return _WORDS.get(name, f"{name[1:]}th percentile")


def percent_axis(title: str) -> alt.Axis:
    """Return an axis for shares [0..1] printed per cent; the title gets the unit."""
    words = "format(datum.value * 100, '.4~g')"
    return alt.Axis(title=f"{title} (%)", labelExpr=words, tickCount=5, labelOverlap="greedy")


def category(field: str, values: Sequence[str], title: str | None, **more: Any) -> alt.Y:
    """Return a vertical axis of categories in the order given."""
    # A list as `sort` would become an expression that holds names from the log; a domain does not.
    scale = alt.Scale(domain=list(values), paddingInner=0.25, paddingOuter=0.12)
    return alt.Y(f"{field}:N", sort=None, scale=scale, axis=alt.Axis(title=title, grid=False), **more)


def ranges(
    rows: list[Row],
    *,
    y: alt.Y,
    wide: tuple[str, str],
    narrow: tuple[str, str] | None = None,
    title: str,
    by: str = "",
    colours: dict[str, str] | None = None,
    apart: bool = False,
    tooltip: Sequence[alt.Tooltip] = (),
    sizes: tuple[float, float] = (2, 9),
    mean: str | None = None,
    within: Sequence[float] = (),
) -> alt.LayerChart:
    """Return distributions as lines: a thin one, a thick one inside it, and a dot for the median.

    Parameters
    ----------
    rows : list of dict
        One distribution a row.
    y : alt.Y
        Where a row stands.
    wide, narrow : tuple of str
        Columns of the ends of the thin and the thick line, of durations (p90_s) or percentages (p90_pct).
    title : str
        Of the horizontal axis, a logarithmic one for durations.
    by, colours : str, dict
        Column that `colours` gives a colour to; one colour for all by default.
    apart : bool
        Whether rows of different colours stand below each other in one place.
    mean : str, optional
        Column of the mean, drawn as a hollow diamond.
    within : sequence of float
        What has to lie on the axis besides, so that charts beside each other have the same.
    """
    unit = wide[0].rpartition("_")[2]
    values = [*axis_values(rows, wide if mean is None else (*wide, mean)), *within]
    scale, axis = time_scale(values), time_axis(title, values)
    if unit == "pct":
        scale, axis = alt.Scale(domain=[0, 100], clamp=True), alt.Axis(title=title, values=[0, 25, 50, 75, 100])
    rows = [{**r, **{f"{c}_words": duration(r[c]) for c in r if c.endswith("_s") and r[c] is not None}} for r in rows]
    hue = alt.Color(f"{by}:N", scale=palette(colours)) if colours else alt.value(colour("series-1"))
    base = alt.Chart(data(rows)).encode(y=y, tooltip=list(tooltip), color=hue)
    if apart and colours:
        base = base.encode(yOffset=alt.YOffset(f"{by}:N", scale=alt.Scale(domain=list(colours))))

    def line(ends: tuple[str, str], width: float, opacity: float) -> alt.Chart:
        drawn: alt.Chart = base.mark_rule(strokeWidth=width, opacity=opacity).encode(
            x=alt.X(f"{ends[0]}:Q", scale=scale, axis=axis), x2=alt.X2(f"{ends[1]}:Q")
        )
        return drawn

    layers = [line(wide, sizes[0], 0.75)]
    if narrow is not None:
        layers.append(line(narrow, sizes[1], 0.6))
    point = base.mark_point(filled=True, size=60, opacity=1, stroke=colour("paper"), strokeWidth=1.5)
    layers.append(point.encode(x=alt.X(f"p50_{unit}:Q", scale=scale, axis=axis)))
    if mean is not None:
        hollow = base.mark_point(shape="diamond", size=70, opacity=1, strokeWidth=1.5, fill=colour("paper"))
        layers.append(hollow.encode(x=alt.X(f"{mean}:Q", scale=scale, axis=axis)))
    return cast("alt.LayerChart", alt.layer(*layers))


def bars(
    rows: list[Row],
    *,
    measures: dict[str, str],
    axis_title: str,
    key: str = "gpu_class",
    values: Sequence[str] | None = None,
    title: str | None = "GPUs of the job",
    count: str | None = None,
) -> Panel:
    """Return horizontal bars, one a measure and category, for shares [0..1].

    Parameters
    ----------
    measures : dict
        Column to the words that name it.
    key : str
        Column of the category.
    values : sequence of str, optional
        The categories, top to bottom; by default those of the rows, in their order.
    count : str, optional
        Column that counts what a row rests on, named as a reader would call it, such as 'jobs'. Bars of rows with
        fewer than `FEW` are pale, with a full outline, and the panel's note says so.
    """
    values = [row[key] for row in rows] if values is None else values
    hues = {words: colour(f"series-{i}") for i, words in enumerate(measures.values(), 1)}
    empty = [
        words for c, words in measures.items() if not occurring(rows, c) and any(r.get(c) is not None for r in rows)
    ]
    if 0 < len(empty) < len(measures):
        measures = {column: words for column, words in measures.items() if words not in empty}
    names = {words: hues[words] for words in measures.values()}
    long = [
        {"key": row[key], "measure": words, "share": row[column], **_few(row, count)}
        for row in rows
        for column, words in measures.items()
        if occurring([row], column) and row[key] in values
    ]
    chart = (
        alt.Chart(data(long))
        .mark_bar(height=9 if len(measures) > 1 else 14)
        .encode(
            y=category("key", values, title),
            yOffset=alt.YOffset("measure:N", scale=alt.Scale(domain=list(names))),
            x=alt.X("share:Q", axis=percent_axis(axis_title), scale=alt.Scale(domainMin=0, nice=True)),
            color=alt.Color("measure:N", scale=palette(names)),
            tooltip=[
                alt.Tooltip("key:N", title=title or key),
                alt.Tooltip("measure:N", title="of"),
                alt.Tooltip("share:Q", format=".1%", title="share"),
            ],
        )
        .properties(height=max(height(len(values), 34 if len(measures) > 1 else 26), _TITLED if title else 0))
    )
    note = f"Drawn: {' and '.join(names)}; none: {' and '.join(empty)}." if 0 < len(empty) < len(hues) else ""
    if count is not None and any("few" in r for r in long):
        chart = chart.encode(
            stroke=alt.Stroke("measure:N", scale=palette(names)),
            fillOpacity=alt.FillOpacity(condition={"test": "datum.few", "value": _PALE}, value=1),
            strokeWidth=alt.StrokeWidth(condition={"test": "datum.few", "value": 1}, value=0),
        )
        note = f"{note} " * bool(note) + f"Paler: fewer than {FEW} {count.replace('_', ' ')}."
    return Panel(chart, tuple(names.items()) if len(names) > 1 else (), note=note)


_PALE = 0.35
_TITLED = 96
"""Least height of a chart whose vertical axis has a title [px]; a lower one would cut the title."""


def _few(row: Row, count: str | None) -> dict[str, bool]:
    """Return the mark of a row that rests on few observations."""
    number = None if count is None else row.get(count)
    return {"few": True} if isinstance(number, int | float) and number < FEW else {}
