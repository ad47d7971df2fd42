"""Rules that rewrite DuckDB's SQL so that Spark gives the same answer, with one function per rule.

sqlglot translates between the dialects but reports no errors. A wrong translation fails in Spark or, worse, gives
different numbers. Each rule changes the syntax tree of one statement and has its own test, which runs both engines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sqlglot import exp

from tracekit.characterize.intervals import GRID
from tracekit.schema import STATUS_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

E = TypeVar("E", bound=exp.Expr)

PRINTF = "tracekit_printf"
"""Name of our formatting function in Spark, because Java rounds 0.25 to 0.3, while C and DuckDB give 0.2."""


def _call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _named(tree: exp.Expr, name: str) -> Iterator[exp.Anonymous]:
    """Yield the calls of a function that sqlglot does not know; `name` is its name in DuckDB."""
    for call in list(tree.find_all(exp.Anonymous)):
        if str(call.this).lower() == name:
            yield call


def _each(tree: exp.Expr, kind: type[E]) -> Iterator[E]:
    # Inner calls come last, so replacing an outer call keeps its inner calls.
    yield from list(tree.find_all(kind))


def percentile(tree: exp.Expr) -> exp.Expr:
    """Write quantile_cont as `percentile`, which is also exact and linear; `percentile_cont` has no such arguments."""
    for node in _each(tree, exp.PercentileCont):
        share = node.expression
        if isinstance(share, exp.Array):
            share = _call("array", *[part.copy() for part in share.expressions])
        node.replace(_call("percentile", node.this.copy(), share.copy()))
    return tree


def percentiles(tree: exp.Expr) -> exp.Expr:
    """Expand the macro percentiles(x), which Spark does not have, to `percentile` at 0, 0.01, ..., 1."""
    for call in _named(tree, "percentiles"):
        grid = [exp.Literal.number(f"{i / (GRID - 1):g}") for i in range(GRID)]
        call.replace(_call("percentile", call.expressions[0].copy(), _call("array", *grid)))
    return tree


def groups_of_statuses(tree: exp.Expr) -> exp.Expr:
    """Expand the macros is_failed(status) and is_unsuccessful(status), which Spark does not have."""
    for name, statuses in STATUS_GROUPS.items():
        for call in _named(tree, f"is_{name}"):
            status = call.expressions[0]
            inside = exp.In(this=status.copy(), expressions=[exp.Literal.string(word) for word in statuses])
            known = exp.NEQ(this=status.copy(), expression=exp.Literal.string("unknown"))
            call.replace(exp.Case(ifs=[exp.If(this=known, true=inside)]))
    return tree


def list_length(tree: exp.Expr) -> exp.Expr:
    """Write len(list) as `array_size`, because sqlglot reads it as a string length, which Spark rejects for arrays."""
    for node in _each(tree, exp.Length):
        node.replace(_call("array_size", node.this))
    return tree


def microseconds(tree: exp.Expr) -> exp.Expr:
    """Write epoch_us(t) as `unix_micros`; times must be TIMESTAMP, which counts from 1970 UTC."""
    for call in _named(tree, "epoch_us"):
        call.replace(_call("unix_micros", *call.expressions))
    return tree


def materialized(tree: exp.Expr) -> exp.Expr:
    """Drop AS MATERIALIZED, unknown to Spark, which may compute a common table twice; queries must allow this."""
    for node in _each(tree, exp.CTE):
        node.set("materialized", None)
    return tree


def division(tree: exp.Expr) -> exp.Expr:
    """Divide as DOUBLE, as DuckDB does, because Spark silently gives a decimal with few places for decimals."""
    for node in _each(tree, exp.Div):
        node.set("this", _double(node.this))
        node.set("expression", _double(node.expression))
    return tree


def _double(node: exp.Expr) -> exp.Expr:
    return exp.cast(node.copy(), exp.DataType.Type.DOUBLE)


def mean_of_decimals(tree: exp.Expr) -> exp.Expr:
    """Write the avg of a decimal as exact sum / count in DOUBLE, because Spark truncates it after a few places."""
    for node in _each(tree, exp.Avg):
        value = node.this
        if not (isinstance(value, exp.Cast) and value.to.is_type(exp.DataType.Type.DECIMAL)):
            continue
        total: exp.Expr = exp.Sum(this=value.copy())
        number: exp.Expr = exp.Count(this=value.copy())
        outer: exp.Expr = node
        # FILTER and OVER enclose the call and apply to both parts.
        for kind in (exp.Filter, exp.Window):
            if isinstance(outer.parent, kind) and outer.parent.this is outer:
                around = outer.parent
                rest = {name: part for name, part in around.args.items() if name != "this"}
                total, number = (_around(kind, part, rest) for part in (total, number))
                outer = around
        outer.replace(
            exp.Paren(this=exp.Div(this=_double(total), expression=exp.Nullif(this=number, expression=_number(0))))
        )
    return tree


def _around(kind: type[exp.Expr], inner: exp.Expr, rest: dict[str, object]) -> exp.Expr:
    return kind(this=inner, **{k: v.copy() if isinstance(v, exp.Expr) else v for k, v in rest.items()})


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def filtered_window(tree: exp.Expr) -> exp.Expr:
    """Replace FILTER before OVER, unknown to Spark, with NULL for excluded rows; sums and counts ignore NULL."""
    for node in _each(tree, exp.Window):
        inner = node.this
        if not isinstance(inner, exp.Filter):
            continue
        aggregate, condition = inner.this.copy(), inner.expression.this.copy()
        value = _number(1) if isinstance(aggregate.this, exp.Star) else aggregate.this
        aggregate.set("this", exp.Case(ifs=[exp.If(this=condition, true=value.copy())]))
        inner.replace(aggregate)
    return tree


def least_by(tree: exp.Expr) -> exp.Expr:
    """Exclude NULL from arg_min and rank it last within a row, because Spark's `min_by` keeps it and ranks it first."""
    for node in _each(tree, exp.ArgMin):
        value, key = node.this, node.expression
        parts = key.expressions if isinstance(key, exp.Tuple) else [key]
        ranked = [p for part in parts for p in (exp.Is(this=part.copy(), expression=exp.Null()), part.copy())]
        wanted: exp.Expr = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        if not isinstance(key, exp.Tuple):
            wanted = exp.and_(wanted, exp.Not(this=exp.Is(this=key.copy(), expression=exp.Null())))
        call: exp.Expr = _call("min_by", value.copy(), _call("struct", *ranked))
        outer: exp.Expr = node
        if isinstance(node.parent, exp.Filter):
            wanted, outer = exp.and_(wanted, node.parent.expression.this.copy()), node.parent
        outer.replace(exp.Filter(this=call, expression=exp.Where(this=wanted)))
    return tree


def distinct_list(tree: exp.Expr) -> exp.Expr:
    """Exclude NULL from list_distinct, because Spark's `array_distinct` keeps it."""
    for node in _each(tree, exp.ArrayDistinct):
        node.replace(_call("array_compact", _call("array_distinct", node.this.copy())))
    return tree


def raised_error(tree: exp.Expr) -> exp.Expr:
    """Write error('...') as `raise_error`."""
    for call in _named(tree, "error"):
        call.set("this", "raise_error")
    return tree


def product(tree: exp.Expr) -> exp.Expr:
    """Multiply a list of factors, in window order if any, instead of calling product(), which Spark does not have."""
    for call in _named(tree, "product"):
        listed: exp.Expr = exp.ArrayAgg(this=_double(call.expressions[0]))
        outer: exp.Expr = call
        for kind in (exp.Filter, exp.Window):
            if isinstance(outer.parent, kind) and outer.parent.this is outer:
                around = outer.parent
                listed = _around(kind, listed, {k: v for k, v in around.args.items() if k != "this"})
                outer = around
        step = exp.Lambda(
            this=exp.Mul(this=exp.column("acc"), expression=exp.column("factor")),
            expressions=[exp.to_identifier("acc"), exp.to_identifier("factor")],
        )
        outer.replace(_call("aggregate", listed, _double(_number(1)), step))
    return tree


def most_frequent(tree: exp.Expr) -> exp.Expr:
    """Write mode(x ORDER BY x), the first of equally frequent values, as `mode(x, true)`."""
    for node in _each(tree, exp.Mode):
        order = node.this
        if isinstance(order, exp.Order):
            node.replace(_call("mode", order.this.copy(), exp.true()))
    return tree


def formatted(tree: exp.Expr) -> exp.Expr:
    """Format numbers in Python as printf does (0.25 as '0.2'), because Spark uses Java's formats, which give '0.3'."""
    for call in _named(tree, "printf"):
        words, *numbers = call.expressions
        call.replace(_call(PRINTF, words.copy(), _call("array", *[_double(number) for number in numbers])))
    return tree


def series(tree: exp.Expr) -> exp.Expr:
    """Make generate_series empty if its end is before its start, where Spark's `sequence` fails or counts down."""
    for node in _each(tree, exp.GenerateSeries):
        start, end = node.args["start"], node.args["end"]
        steps = [node.args["step"].copy()] if node.args.get("step") is not None else []
        found = _call("sequence", start.copy(), end.copy(), *steps)
        inside = exp.LTE(this=start.copy(), expression=end.copy())
        node.replace(exp.Case(ifs=[exp.If(this=inside, true=found)]))
    return tree


def wide_division(tree: exp.Expr) -> exp.Expr:
    """Divide HUGEINT as decimals and drop the remainder, because Spark's DIV would wrap around at 64 bits."""
    for node in _each(tree, exp.IntDiv):
        if any(kind.is_type(exp.DataType.Type.INT128) for kind in node.find_all(exp.DataType)):
            wide = exp.DataType.build("DECIMAL(38, 0)", dialect="duckdb")
            number, by = (exp.cast(part.copy(), wide) for part in (node.this, node.expression))
            whole = exp.Paren(this=exp.Sub(this=number, expression=exp.Mod(this=number.copy(), expression=by.copy())))
            node.replace(exp.cast(exp.Div(this=whole, expression=by), wide))
    return tree


def wide_integers(tree: exp.Expr) -> exp.Expr:
    """Write HUGEINT as DECIMAL(38, 0), because Spark's widest integer has 64 bits."""
    for node in _each(tree, exp.DataType):
        if node.is_type(exp.DataType.Type.INT128):
            node.replace(exp.DataType.build("DECIMAL(38, 0)", dialect="duckdb"))
    return tree


_WHOLE = 2**52
"""Value from which every DOUBLE is an integer (53 binary places)."""


def decimal_of_double(tree: exp.Expr) -> exp.Expr:
    """Round a DOUBLE to the places of a decimal column as DuckDB does: multiply by 10^places, round half away from 0.

    Spark instead rounds the shortest decimal representation, so 26.1328995 may get a different last digit.
    """
    for node in _each(tree, exp.Cast):
        sizes = [int(size.name) for size in node.to.expressions] if node.to.is_type(exp.DataType.Type.DECIMAL) else []
        if not isinstance(node.this, exp.Column) or len(sizes) < 2 or not sizes[1]:
            continue
        digits, places = sizes
        scaled = exp.Mul(this=_double(node.this), expression=_double(_number(10**places)))
        size = exp.Abs(this=exp.Paren(this=scaled.copy()))
        half_up = exp.Mul(
            this=exp.Sign(this=scaled.copy()),
            expression=exp.Floor(this=exp.Add(this=size.copy(), expression=_double(exp.Literal.number("0.5")))),
        )
        rounded = exp.Case(
            ifs=[exp.If(this=exp.LT(this=size, expression=_double(_number(_WHOLE))), true=half_up)], default=scaled
        )
        whole = exp.DataType.build(f"DECIMAL({digits - places - 1}, 0)", dialect="spark")
        unit = exp.DataType.build(f"DECIMAL({places}, {places})", dialect="spark")
        exact = exp.Mul(
            this=exp.cast(rounded, whole), expression=exp.cast(exp.Literal.string(f"0.{'0' * (places - 1)}1"), unit)
        )
        # Only Spark knows the type of a column; this check is resolved before the query runs.
        is_double = exp.EQ(this=_call("typeof", node.this.copy()), expression=exp.Literal.string("double"))
        node.replace(exp.Case(ifs=[exp.If(this=is_double, true=exact)], default=node.copy()))
    return tree


RULES: tuple[Callable[[exp.Expr], exp.Expr], ...] = (
    percentile,
    percentiles,
    groups_of_statuses,
    list_length,
    microseconds,
    materialized,
    mean_of_decimals,
    division,
    filtered_window,
    least_by,
    distinct_list,
    raised_error,
    product,
    most_frequent,
    formatted,
    series,
    wide_division,
    wide_integers,
    decimal_of_double,
)
"""All rules, in the order in which they are applied."""
