"""Find in a result the number that a published one stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import polars as pl

from tracekit.characterize.published_value import conditions

if TYPE_CHECKING:
    from tracekit.characterize.published_value import PublishedValue

__all__ = ["measure"]


def measure(frame: pl.DataFrame, number: PublishedValue) -> float | None:
    """Return the measured value of a published number, or None when the result does not have it."""
    rows = _where(frame, number.row) if number.column in frame.columns else None
    if rows is None:
        return None
    if number.aggregate == "share":
        whole = _where(frame, number.of)
        return None if whole is None else _ratio(_total(rows, number), _total(whole, number))
    if number.aggregate == "mean" and number.weight:
        known = rows.filter(pl.col(number.column).is_not_null())
        return _ratio(_total(known, number), float(known[number.weight].sum()))
    # No row of that kind is a sum of 0, unless nothing is known of the column at all.
    if number.aggregate == "sum" and frame[number.column].is_not_null().any():
        return _total(rows, number)
    return _one(rows[number.column].cast(pl.Float64), number.aggregate)


def _one(values: pl.Series, aggregate: str) -> float | None:
    """Return one of several values, or their plain mean; None when none is known or one of several is meant."""
    known = values.drop_nulls()
    if not len(known) or aggregate == "sum" or (not aggregate and len(values) > 1):
        return None
    found = {"min": known.min(), "max": known.max(), "mean": known.mean()}.get(aggregate, known[0])
    return float(cast("float", found))


def _total(rows: pl.DataFrame, number: PublishedValue) -> float:
    values = rows[number.column].cast(pl.Float64)
    return float((values * rows[number.weight].cast(pl.Float64) if number.weight else values).sum())


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def _where(frame: pl.DataFrame, text: str) -> pl.DataFrame | None:
    """Return the rows that fulfil every condition; None when the result lacks a column."""
    asked = conditions(text)
    if any(name not in frame.columns for name, _, _ in asked):
        return None
    kept = [_condition(frame[name], op, value) for name, op, value in asked]
    return frame.filter(*kept) if kept else frame


_EQUAL = 1e-9
"""Shares such as 0.05 are compared with this tolerance."""


def _condition(column: pl.Series, op: str, value: str) -> pl.Series:
    if not column.dtype.is_numeric():
        one_of = column.cast(pl.String).is_in(value.split("|"))
        return ~one_of if op == "!=" else one_of
    numbers = column.cast(pl.Float64)
    if op in {"=", "!="}:
        near = [(numbers - float(v)).abs() < _EQUAL for v in value.split("|")]
        equal = near[0]
        for other in near[1:]:
            equal |= other
        return ~equal if op == "!=" else equal
    limit = float(value)
    return {"<=": numbers <= limit, ">=": numbers >= limit, "<": numbers < limit, ">": numbers > limit}[op]
