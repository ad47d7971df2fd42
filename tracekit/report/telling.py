"""Detect charts that show nothing: one bar, one point, bars of length 0, or only zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Row

_SEEN = 0.005
"""Minimum visible length of a bar, as a fraction of the longest bar, which is about 500 pixels long."""
_LEAST = 2
"""Minimum number of marks with a nonzero value."""
_SPANNED = frozenset({"x2", "y2"})


class _Drawn(Protocol):
    """A chart with its title, legend and note (see `tracekit.report.charts.Chart`)."""

    def to_dict(self, *, checked: bool = True) -> dict[str, Any]: ...


def tells(panel: _Drawn) -> bool:
    """Return whether a chart shows more than a sentence can say.

    Bars, areas, lines and points need at least two known values other than 0, because a sentence can give a single
    value. A single distribution or interval (marks with two ends) is enough unless it is all 0.
    """
    spec = panel.to_dict(checked=False)
    datasets = spec.get("datasets", {})
    found = [_layer(part, rows) for part, rows in _layers(spec, None, datasets)]
    return not found or any(found)


def all_zero(rows: Sequence[Row]) -> bool:
    """Return whether a table contains numbers and all of them are 0."""
    numbers = [value for row in rows for value in row.values() if _is_number(value)]
    return bool(numbers) and not any(numbers)


def runs(series: Sequence[float | None]) -> bool:
    """Return whether a sparkline is worth showing: at least two numbers are known, and not all of them are 0."""
    known = [value for value in series if value is not None]
    return len(known) >= _LEAST and any(known)


def occurring(rows: Iterable[Row], *columns: str) -> list[Row]:
    """Return the rows with a nonzero number in one of the columns. Other rows have no bar."""
    return [row for row in rows if any(row.get(column) for column in columns)]


def visible_bars(rows: Iterable[Row], column: str) -> list[Row]:
    """Return the rows whose bars are visible next to the longest bar.

    Examples
    --------
    >>> visible_bars([{"h": 1000}, {"h": 6}, {"h": 4}, {"h": None}], "h")
    [{'h': 1000}, {'h': 6}]
    """
    rows = occurring(rows, column)
    longest = max((row[column] for row in rows), default=0)
    return [row for row in rows if row[column] >= _SEEN * longest]


def _layers(
    spec: Mapping[str, Any], rows: Sequence[Row] | None, datasets: Mapping[str, Sequence[Row]]
) -> list[tuple[Mapping[str, Any], Sequence[Row]]]:
    """Return the marks of a chart, each with its rows."""
    named = spec.get("data") or {}
    own = datasets.get(named["name"]) if "name" in named else named.get("values")
    rows = rows if own is None else own
    if "layer" in spec:
        return [one for part in spec["layer"] for one in _layers(part, rows, datasets)]
    return [(spec, rows or [])] if "mark" in spec else []


def _layer(part: Mapping[str, Any], rows: Sequence[Row]) -> bool:
    """Return whether the marks in a layer carry information."""
    steps = part.get("transform", ())
    if any("flatten" in step for step in steps):  # each row is a curve, stored as a list of values
        return any(any(filter(_is_number, value)) for row in rows for value in row.values() if isinstance(value, list))
    encoding = part.get("encoding", {})
    axes = [encoding[name] for name in ("x", "y") if name in encoding]
    # If both axes are numeric, the values are on the vertical axis. Positions on the other axis carry no information.
    columns = [axis["field"] for axis in axes if axis.get("type") == "quantitative" and "field" in axis][-1:]
    columns += [name for step in steps for name in step.get("fold", ())]
    ends = [encoding[name]["field"] for name in _SPANNED if "field" in encoding.get(name, {})]
    if not columns:  # a heat map, whose marks are positioned by category
        return len(rows) >= _LEAST
    seen = [row for row in rows if any(_is_number(row.get(c)) and row[c] for c in (*columns, *ends))]
    return len(seen) >= (1 if ends else _LEAST)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
