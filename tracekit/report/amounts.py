"""Horizontal bars of amounts by name: GPU-hours by user, failures by reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import altair as alt

from tracekit.report.charts import Panel, category, data, height
from tracekit.report.telling import visible_bars
from tracekit.report.theme import colour
from tracekit.text import labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.answer import Row

__all__ = ["MOST", "amounts", "named"]

MOST = 12
"""Most names drawn."""
_SHORT = 10_000
"""Amounts from which on an axis writes 20k for 20,000."""


def named(rows: Sequence[Row], key: str, nobody: str) -> list[Row]:
    """Return the first rows, each with a short 'label' that no other has; `nobody` stands for a name that is NULL."""
    shown = list(rows[:MOST])
    words = labels([r[key] for r in shown if r[key] is not None])
    return [{**r, "label": nobody if r[key] is None else words[r[key]]} for r in shown]


def amounts(
    rows: list[Row],
    *,
    value: str,
    axis_title: str,
    tooltip: Sequence[alt.Tooltip],
    bar: str = "series-1",
    total: int = 0,
    what: str = "",
) -> Panel:
    """Return bars, one a row of `named` that can be seen, in the order of the rows; a note tells which of `total`."""
    rows = visible_bars(rows, value)
    names = [r["label"] for r in rows]
    drawn = (
        alt.Chart(data(rows))
        .mark_bar(height=14, color=colour(bar))
        .encode(
            y=category("label", names, None),
            x=alt.X(
                f"{value}:Q",
                axis=_axis(axis_title, [r[value] for r in rows if r[value] is not None]),
                scale=alt.Scale(domainMin=0, nice=True),
            ),
            tooltip=[alt.Tooltip("label:N", title="name"), *tooltip],
        )
        .properties(height=height(len(names), 24))
    )
    return Panel(drawn, note=f"Drawn: the {len(rows)} {what}." if total > len(rows) else "")


def _axis(title: str, values: Sequence[float]) -> alt.Axis:
    """Return an axis whose numbers stand in full, or in thousands and millions where they are large."""
    # Large ones as an expression, since a format of its own would write 0k.
    words = "format(datum.value, ',')" if max(values, default=0) < _SHORT else "format(datum.value, '~s')"
    return alt.Axis(title=title, tickCount=5, labelOverlap="greedy", labelExpr=words)
