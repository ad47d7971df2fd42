"""Find in a result the number that a published one stands for.

row          conditions on columns of the result, joined by ';', all of which hold: status=failed|timeout (one of
             these words), gpu_class!=0, gpu_count<=4
aggregate    '' the only row; sum, max or mean over the rows; share: the sum over `row` / the sum over `of`
weight       the column that weighs a mean; empty: all rows weigh alike
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import polars as pl

    from tracekit.characterize.published import PublishedValue

__all__ = ["AGGREGATES", "conditions", "measure", "words"]

AGGREGATES = ("", "sum", "min", "max", "mean", "share")
"""How rows become one number."""

_CONDITION = re.compile(r"(?P<name>\w+)(?P<op><=|>=|!=|=|<|>)(?P<value>.*)")


def conditions(text: str) -> list[tuple[str, str, str]]:
    """Return conditions as (column, operator, value).

    Raises
    ------
    ValueError
        A condition is misshapen.

    Examples
    --------
    >>> conditions("gpu_class=>8;gpu_count<=4")
    [('gpu_class', '=', '>8'), ('gpu_count', '<=', '4')]
    """
    found = []
    for part in filter(None, text.split(";")):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"not a condition: {part!r}")
        found.append((match["name"], match["op"], match["value"]))
    return found


def measure(frame: pl.DataFrame, number: PublishedValue) -> float | None:
    """Return the measured value of a published number, or None when the result does not have it.

    Parameters
    ----------
    frame : DataFrame
        The result of `number.query`.
    number : PublishedValue
        What to measure.
    """
    import polars as pl

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
    import polars as pl

    values = rows[number.column].cast(pl.Float64)
    return float((values * rows[number.weight].cast(pl.Float64) if number.weight else values).sum())


def _ratio(part: float, whole: float) -> float | None:
    return float(part) / float(whole) if whole else None


def _where(frame: pl.DataFrame, text: str) -> pl.DataFrame | None:
    """Return the rows that fulfil every condition; None when the result lacks a column."""
    for name, op, value in conditions(text):
        if name not in frame.columns:
            return None
        frame = frame.filter(_condition(frame[name], op, value))
    return frame


_EQUAL = 1e-9
"""Shares such as 0.05 are compared with this tolerance."""


def _condition(column: pl.Series, op: str, value: str) -> pl.Series:
    import polars as pl

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


_NAMES = {
    "gpu_class": "size",
    "gpu_count": "GPUs",
    "node_count": "nodes",
    "instance_count": "instances",
    "vc": "VC",
    "user_share": "share of users",
}
_OPERATORS = {"=": " ", "!=": " not ", "<=": " at most ", ">=": " at least ", "<": " below ", ">": " above "}
_AGGREGATES = {"": "", "sum": "sum of", "min": "smallest", "max": "largest", "mean": "mean", "share": "share of"}
_COLUMNS = {
    "p50": "median",
    "jobs_share": "share of jobs",
    "gpu_hours_share": "share of GPU-hours",
    "gpu_hours": "GPU-hours",
    "gpu_time_share": "share of GPU time",
    "cpu_time_share": "share of CPU time",
    "gpu_count": "number of GPUs",
    "node_count": "number of nodes",
    "instance_count": "number of instances",
    "allocated_share": "share of GPUs allocated",
}
_WHOLES = {
    "gpu_class!=0": "jobs with GPUs",
    "gpu_count>0": "jobs with GPUs",
}
_EVERYTHING = {"gpu_count>=0", "trials>0", "jobs>=1", "instance_count>0"}


def words(row: str, of: str, column: str, aggregate: str, weight: str = "") -> str:
    """Return in words what a published number counts.

    Examples
    --------
    >>> words("status=failed|timeout", "", "jobs_share", "sum")
    'share of jobs: status failed or timeout'
    >>> words("metric=gpu_jobs", "", "value", "")
    'GPU jobs'
    >>> words("gpu_count>0;gpu_count<=4", "gpu_count>0", "jobs", "share")
    'share of jobs: GPUs at most 4, of jobs with GPUs'
    >>> words("gpu_class!=0", "", "max_s", "max")
    'max: jobs with GPUs'
    """
    said = conditions(row)
    metric = next((value for name, _, value in said if name == "metric"), None)
    if metric is not None:
        return _capitals(metric.removesuffix("_s").replace("_", " "))
    plain = column.removesuffix("_s").removesuffix("_pct")
    what = _COLUMNS.get(plain, re.sub(r"^p(\d+)$", r"\1th percentile", plain))
    what = _capitals(what.replace("_", " "))
    if weight and aggregate == "share":
        what += f" times {weight}"
    start = _AGGREGATES[aggregate]
    # 'sum of share of jobs' and 'largest max' say one thing twice.
    if (aggregate == "sum" and column.endswith("_share")) or plain.startswith(aggregate):
        start = ""
    if any(name == "user_share" for name, _, _ in said):
        start = ""
    if start == "share of" and what.startswith("share of"):
        start = ""
    whole = [c for c in conditions(of) if "".join(c) not in _EVERYTHING]
    parts = [_in_words(c) for c in said if "".join(c) not in _EVERYTHING and c not in whole]
    text = ": ".join(filter(None, [f"{start} {what}".strip(), ", ".join(parts)]))
    return f"{text}, of {', '.join(map(_in_words, whole))}" if whole else text


def _capitals(text: str) -> str:
    return re.sub(r"\b(gpu|cpu)", lambda m: m[1].upper(), text).replace("vcs", "VCs")


def _in_words(condition: tuple[str, str, str]) -> str:
    name, op, value = condition
    if "".join(condition) in _WHOLES:
        return _WHOLES["".join(condition)]
    one_of = " or ".join(value.replace("_", " ").split("|"))
    return f"{_NAMES.get(name, name.replace('_', ' '))}{_OPERATORS[op]}{one_of}"
