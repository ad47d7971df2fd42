"""Bind the parameters of a query to values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tracekit.characterize.header import number_or_text
from tracekit.characterize.query import RESERVED_PARAMS
from tracekit.errors import QueryError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.answer import Param, Value
    from tracekit.characterize.query import Query
    from tracekit.characterize.timeline import TimelineTable
    from tracekit.trace import Trace

__all__ = ["bind_params"]


def bind_params(
    query: Query, given: Mapping[str, object], in_sql: set[str], trace: Trace, timelines: Iterable[TimelineTable] = ()
) -> dict[str, Value]:
    """Return the value of each parameter used by the SQL (`in_sql`) or by a timeline named in it.

    A number may be given as text. The reserved parameters `timezone` and `time_base` are those of the Trace. A
    parameter that both a timeline and the query declare has the query's default.

    Raises
    ------
    QueryError
        A parameter is unknown, has a value of another type, or has none.
    """
    of_timelines = {param.name: param for timeline in timelines for param in timeline.params}
    declared = of_timelines | {param.name: param for param in query.params}
    used = in_sql | set(of_timelines)
    # A file without a header declares nothing: what its SQL uses is what it takes.
    known = set(declared) if query.described else (used | set(declared)) - set(RESERVED_PARAMS)
    for name in given:
        if name not in known:
            raise QueryError(f"the query '{query.name}' has no parameter '{name}'", hint=nearest(name, known))
    values: dict[str, Value] = {"timezone": trace.timezone, "time_base": trace.manifest.time_base}
    values |= {param.name: param.default for param in declared.values()}
    for name, value in given.items():
        values[name] = _typed(declared[name], value) if name in declared else _untyped(name, value)
    for name in sorted(used):
        if name not in values:
            hint = f"give it a value, or declare it with '-- param {name}: DEFAULT | meaning'"
            raise QueryError(f"the parameter '{name}' has no value", where=query.path, hint=hint)
    return {name: values[name] for name in sorted(used)}


def _typed(param: Param, value: object) -> Value:
    """Return `value` as the type of the parameter's default."""
    if param.choices:
        if not isinstance(value, str) or value not in param.choices:
            raise QueryError(
                f"the parameter '{param.name}' cannot be {value!r}", hint=nearest(str(value), param.choices)
            )
        return value
    if isinstance(param.default, str):
        if not isinstance(value, str):
            raise QueryError(f"the parameter '{param.name}' is text, not {value!r}", hint=f"default: {param.default!r}")
        return value
    number = _untyped(param.name, value)
    if isinstance(number, str):
        raise QueryError(f"the parameter '{param.name}' is a number, not {value!r}", hint=f"default: {param.default}")
    return number


def _untyped(name: str, value: object) -> Value:
    """Return `value` as a finite number where it is or spells one, else as text."""
    if isinstance(value, str):
        return number_or_text(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise QueryError(f"the parameter '{name}' cannot be {value!r}", hint="give a finite number or a text")
