"""Bar charts: shares of several measures by category, and amounts by name, such as GPU-hours by user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.characterize.intervals import FEW
from tracekit.report.axes import names, number, share
from tracekit.report.charts import Chart, Hues, Tip, bar
from tracekit.report.telling import occurring, visible_bars
from tracekit.report.theme import colour
from tracekit.text import labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row

_PALE = 0.35
"""Opacity of bars with few observations."""
MOST = 12
"""Maximum number of names shown."""
_SHORT, _THOUSANDS = 10_000, "format(datum.value, '~s')"
"""Amount from which an axis shows 20k instead of 20,000, and the format for this."""


def bars(
    rows: list[Row],
    *,
    measures: dict[str, str],
    axis_title: str,
    key: str = "gpu_class",
    values: Sequence[str] | None = None,
    title: str | None = "GPUs of the job",
    count: str | None = None,
    note: str = "",
) -> Chart:
    """Return horizontal bars for shares [0..1], one per measure and category.

    Parameters
    ----------
    measures : dict
        Columns and their labels. Columns without known shares are left out, and the note mentions columns of zeros.
    key : str
        Column with the category.
    values : sequence of str, optional
        The categories from top to bottom. By default, the categories of the rows in row order.
    title : str, optional
        Title of the category axis.
    count : str, optional
        Column with the number of observations per row, such as 'jobs'. Bars of rows with fewer than `FEW`
        observations are pale with a solid outline, as the note explains.
    note : str
        End of the chart's note.
    """
    values = [row[key] for row in rows] if values is None else values
    numbered = {words: i for i, words in enumerate(measures.values(), 1)}
    measures = {c: words for c, words in measures.items() if any(row.get(c) is not None for row in rows)}
    none = {c for c in measures if not occurring(rows, c)}
    none = none if len(none) < len(measures) else set()
    drawn = {column: words for column, words in measures.items() if column not in none}
    # A measure keeps its colour even if the other measures are not shown.
    hues = {words: colour(f"series-{numbered[words]}") for words in drawn.values()}
    long = [
        {"key": row[key], "measure": words, "share": row[column], **_few(row, count)}
        for row in rows
        for column, words in measures.items()
        if occurring([row], column) and row[key] in values
    ]
    by, several, notes, channels = Hues("measure", hues), len(drawn) > 1, [], {}
    if none:
        zero = " and ".join(w for c, w in measures.items() if c in none)
        notes.append(f"Shown: {' and '.join(hues)}. Always 0: {zero}.")
    if count is not None and any("few" in r for r in long):
        notes.append(f"Pale bars: fewer than {FEW} {count.replace('_', ' ')}.")
        channels = {
            "stroke": {"field": "measure", "type": "nominal", "scale": by.scale()},
            "fillOpacity": {"condition": {"test": "datum.few", "value": _PALE}, "value": 1},
            "strokeWidth": {"condition": {"test": "datum.few", "value": 1}, "value": 0},
        }
    return Chart(
        long,
        x=share("share", axis_title),
        y=names("key", values, title, step=34 if several else 26),
        marks=[replace(bar(9 if several else 14), channels=channels)],
        by=by,
        apart=True,
        tips=[Tip("key", title or key), Tip("measure", "of"), Tip("share", "share", ".1%")],
        note=" ".join(filter(None, [*notes, note])),
    )


def _few(row: Row, count: str | None) -> dict[str, bool]:
    """Return the marker for a row with few observations."""
    number_of = None if count is None else row.get(count)
    return {"few": True} if isinstance(number_of, int | float) and number_of < FEW else {}


def named(rows: Sequence[Row], key: str, nobody: str) -> list[Row]:
    """Give the first rows a short unique 'label' each, which is `nobody` if the name is NULL."""
    shown = list(rows[:MOST])
    words = labels([r[key] for r in shown if r[key] is not None])
    return [{**r, "label": nobody if r[key] is None else words[r[key]]} for r in shown]


def amounts(
    rows: list[Row],
    *,
    value: str,
    axis_title: str,
    tips: Sequence[Tip],
    hue: str = "series-1",
    total: int = 0,
    what: str = "",
) -> Chart:
    """Return one bar per visible row of `named`, in row order. A note says which of the `total` rows are shown."""
    rows = visible_bars(rows, value)
    # Show large amounts in thousands and millions. A plain format would show 0k, so this is an expression.
    words = "format(datum.value, ',')" if max((r[value] for r in rows), default=0) < _SHORT else _THOUSANDS
    axis = number(value, axis_title)
    return Chart(
        rows,
        x=replace(axis, labels={**axis.labels, "labelExpr": words}),
        y=names("label", [r["label"] for r in rows], step=24),
        marks=[bar(14, hue)],
        tips=[Tip("label", "name"), *tips],
        note=f"Shown: the {len(rows)} {what}." if total > len(rows) else "",
    )
