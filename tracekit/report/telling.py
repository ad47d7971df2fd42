"""What carries no information, and is not drawn: one bar, one point, bars of no length, nothing but zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tracekit.answer import Row

_SEEN = 0.005
"""Part of the longest bar, of some 500 pixels, from which on another is more than a hair."""
_LEAST = 2
"""Fewest marks that differ from nothing."""
_SPANNED = frozenset({"x2", "y2"})


class _Drawn(Protocol):
    """A chart and what stands around it, see `tracekit.report.charts.Panel`."""

    def to_dict(self, *, checked: bool = True) -> dict[str, Any]: ...


def tells(panel: _Drawn) -> bool:
    """Return whether a chart tells something that a sentence could not as well.

    Bars, areas, lines and points tell something where two of their values at least are neither 0 nor unknown: one value
    is a number, and a number is said in words. A distribution or an interval, whose marks have two ends, tells
    something by itself, unless all of it is 0.
    """
    spec = panel.to_dict(checked=False)
    datasets = spec.get("datasets", {})
    found = [_layer(part, rows) for part, rows in _layers(spec, None, datasets)]
    return not found or any(found)


def all_zero(rows: Sequence[Row]) -> bool:
    """Return whether a table holds no number but 0, and some number."""
    numbers = [value for row in rows for value in row.values() if _is_number(value)]
    return bool(numbers) and not any(numbers)


def runs(series: Sequence[float | None]) -> bool:
    """Return whether a small line tells something: two numbers at least are known, and not all are 0."""
    known = [value for value in series if value is not None]
    return len(known) >= _LEAST and any(known)


def occurring(rows: Iterable[Row], *columns: str) -> list[Row]:
    """Return the rows with a number other than 0 in one of the columns; what did not occur has no bar."""
    return [row for row in rows if any(row.get(column) for column in columns)]


def visible_bars(rows: Iterable[Row], column: str) -> list[Row]:
    """Return the rows whose bar can be seen beside the longest.

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
    """Return each mark of a chart with its rows."""
    named = spec.get("data") or {}
    own = datasets.get(named["name"]) if "name" in named else named.get("values")
    rows = rows if own is None else own
    if "layer" in spec:
        return [one for part in spec["layer"] for one in _layers(part, rows, datasets)]
    return [(spec, rows or [])] if "mark" in spec else []


def _layer(part: Mapping[str, Any], rows: Sequence[Row]) -> bool:
    """Return whether the marks of one layer tell something."""
    steps = part.get("transform", ())
    if any("flatten" in step for step in steps):  # each row is a curve, as a list of values
        return any(any(filter(_is_number, value)) for row in rows for value in row.values() if isinstance(value, list))
    encoding = part.get("encoding", {})
    axes = [encoding[name] for name in ("x", "y") if name in encoding]
    # Of two axes of numbers the vertical one has the values: what they stand at tells nothing by itself.
    columns = [axis["field"] for axis in axes if axis.get("type") == "quantitative" and "field" in axis][-1:]
    columns += [name for step in steps for name in step.get("fold", ())]
    ends = [encoding[name]["field"] for name in _SPANNED if "field" in encoding.get(name, {})]
    if not columns:  # a map, whose marks stand at categories
        return len(rows) >= _LEAST
    seen = [row for row in rows if any(_is_number(row.get(c)) and row[c] for c in (*columns, *ends))]
    return len(seen) >= (1 if ends else _LEAST)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
