"""Compute exact percentiles over more rows than fit in memory.

Spark's `percentile` keeps every distinct value of a group in the memory of one task. Instead, we count the rows by
value on all machines, spilling to disk if needed, add up the counts in the order of the values, and take the two values
around the rank. The percentile is exact, and memory does not grow with the number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tracekit.characterize.intervals import GRID

if TYPE_CHECKING:
    from collections.abc import Sequence


def by_counts(tree: exp.Expr) -> exp.Expr:
    """Return a statement in DuckDB's dialect whose percentiles are computed from value counts.

    A SELECT with grouping sets keeps its percentiles unchanged.
    """
    for number, select in enumerate(list(tree.find_all(exp.Select))):
        calls = [call for call in (*select.find_all(exp.PercentileCont), *_grids(select)) if _belongs(call, select)]
        group = select.args.get("group")
        sets = group is not None and any(group.args.get(kind) for kind in ("grouping_sets", "rollup", "cube", "all"))
        if calls and select.args.get("from_") is not None and not sets:
            _rewrite(select, calls, f"p{number}")
    return tree


def _grids(select: exp.Select) -> list[exp.Expr]:
    return [call for call in select.find_all(exp.Anonymous) if str(call.this).lower() == "percentiles"]


def _belongs(call: exp.Expr, select: exp.Select) -> bool:
    """Return whether a call is an aggregate of this SELECT, outside OVER."""
    return call.find_ancestor(exp.Select) is select and not isinstance(_outer(call).parent, exp.Window)


def _outer(call: exp.Expr) -> exp.Expr:
    """Return a call including the FILTER around it."""
    return call.parent if isinstance(call.parent, exp.Filter) and call.parent.this is call else call


def _rewrite(select: exp.Select, calls: Sequence[exp.Expr], prefix: str) -> None:
    keys = _keys(select)
    whole = select.copy()
    sources: dict[str, tuple[exp.Expr, exp.Expr | None, list[str]]] = {}
    places = []
    for call in calls:
        value, shares = _asked(call)
        outer = _outer(call)
        condition = outer.expression.this if isinstance(outer, exp.Filter) else None
        _, _, wanted = sources.setdefault(
            f"{value.sql()} {condition and condition.sql()}", (value.copy(), condition and condition.copy(), [])
        )
        name = f"{prefix}_{list(sources).index(f'{value.sql()} {condition and condition.sql()}')}"
        wanted += [share for share in shares if share not in wanted]
        places.append((call, outer, name, shares, wanted))
    for call, outer, name, shares, wanted in places:
        found = [_any(f"{name}_q{wanted.index(share)}") for share in shares]
        is_list = isinstance(call, exp.Anonymous) or isinstance(call.expression, exp.Array)
        outer.replace(_list(found) if is_list else found[0])
    for number, (value, condition, wanted) in enumerate(sources.values()):
        name = f"{prefix}_{number}"
        picked = _picked(whole, keys, value, condition, wanted, name)
        on = [
            exp.NullSafeEQ(this=exp.column(f"{name}_k{k}"), expression=exp.Paren(this=key.copy()))
            for k, key in enumerate(keys)
        ]
        select.join(picked, on=exp.and_(*on) if on else exp.true(), join_type="left", join_alias=name, copy=False)


def _asked(call: exp.Expr) -> tuple[exp.Expr, list[str]]:
    """Return the expression whose percentiles a call computes, and the requested shares."""
    if isinstance(call, exp.Anonymous):
        return call.expressions[0], [f"{i / (GRID - 1):g}" for i in range(GRID)]
    shares = call.expression.expressions if isinstance(call.expression, exp.Array) else [call.expression]
    return call.this, [share.sql() for share in shares]


def _any(name: str) -> exp.Expr:
    return exp.AnyValue(this=exp.column(name))


def _list(values: Sequence[exp.Expr]) -> exp.Expr:
    """Return a list of the values, or NULL if there are none."""
    known = exp.Not(this=exp.Is(this=values[0].copy(), expression=exp.Null()))
    return exp.Case(ifs=[exp.If(this=known, true=exp.Array(expressions=list(values)))])


def _keys(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions that a SELECT groups by; a number is replaced by its column."""
    group = select.args.get("group")
    found = []
    for key in group.expressions if group is not None else []:
        place = int(key.this) - 1 if isinstance(key, exp.Literal) and not key.is_string else None
        found.append(key.copy() if place is None else select.expressions[place].unalias().copy())
    return found


def _picked(
    whole: exp.Select,
    keys: Sequence[exp.Expr],
    value: exp.Expr,
    condition: exp.Expr | None,
    shares: Sequence[str],
    name: str,
) -> exp.Subquery:
    """Return the percentiles of an expression for each group, computed from the count of each value."""
    own = [f"{name}_k{k}" for k in range(len(keys))]
    counted = exp.Select()
    for part in ("from_", "joins", "where", "laterals"):
        if whole.args.get(part):
            kept = whole.args[part]
            counted.set(part, [p.copy() for p in kept] if isinstance(kept, list) else kept.copy())
    number = exp.cast(value.copy(), exp.DataType.Type.DOUBLE)
    counted = counted.select(
        *[exp.alias_(key.copy(), alias) for key, alias in zip(keys, own, strict=True)],
        exp.alias_(number, "v"),
        exp.alias_(exp.Count(this=exp.Star()), "n"),
    )
    counted = counted.where(exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null())))
    if condition is not None:
        counted = counted.where(exp.Paren(this=condition.copy()))
    counted = counted.group_by(*[str(place + 1) for place in range(len(keys) + 1)])
    parts = [exp.column(alias) for alias in own]
    ranked = exp.select(
        *own,
        "v",
        exp.alias_(
            exp.Window(
                this=_sum("n"), partition_by=parts, order=exp.Order(expressions=[exp.Ordered(this=exp.column("v"))])
            ),
            "upto",
        ),
        exp.alias_(exp.Window(this=_sum("n"), partition_by=[p.copy() for p in parts]), "total"),
    ).from_(counted.subquery("counted"))
    found = []
    for place, share in enumerate(shares):
        rank = f"CAST({share} AS DOUBLE) * CAST(total - 1 AS DOUBLE)"
        below, above = (f"min(v) FILTER (WHERE upto > {way}({rank}))" for way in ("floor", "ceil"))
        weight = f"max({rank} - floor({rank}))"
        found.append(
            exp.alias_(
                exp.maybe_parse(f"{below} + ({above} - {below}) * {weight}", dialect="duckdb"), f"{name}_q{place}"
            )
        )
    picked = exp.select(*own, *found).from_(ranked.subquery("ranked"))
    return (picked.group_by(*own) if own else picked).subquery(name)


def _sum(name: str) -> exp.Sum:
    return exp.Sum(this=exp.column(name))
