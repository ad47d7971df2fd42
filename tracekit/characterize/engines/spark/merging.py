"""Split a statement at the common tables that its header lists as mergeable by day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from tracekit.characterize.engines.spark.crossing import cannot_cross, parsed, relations
from tracekit.characterize.session import list_views
from tracekit.characterize.timeline import timelines_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from tracekit.characterize.query import Query

_WAYS: dict[type[exp.Expr], str] = {
    exp.Count: "sum",
    exp.Sum: "sum",
    exp.Min: "min",
    exp.Max: "max",
    exp.LogicalOr: "bool_or",
    exp.LogicalAnd: "bool_and",
}
"""For each aggregate, the one that merges partial values."""


def merged_name(owner: str, table: str) -> str:
    """Return the SQL name for the merged rows of a query's or view's common table."""
    return f"merged_{owner.replace('/', '_')}_{table}"


def how_merged(query: Query, table: str) -> dict[str, str | None]:
    """Return the aggregate that merges each column of a common table, or None for a column to group by.

    Raises
    ------
    QueryError
        The table does more than group and aggregate, or one of its aggregates cannot be merged.
    """
    select = _common_table(parsed(query.sql, query.path), table, query.path).this
    group = select.args.get("group")
    keys = [key.sql() for key in group.expressions] if group is not None else []
    found: dict[str, str | None] = {}
    shown: set[str] = set()
    for number, column in enumerate(select.expressions, 1):
        inner = column.this if isinstance(column, exp.Alias) else column
        bare = inner.this if isinstance(inner, exp.Filter) else inner
        if type(bare) in _WAYS and not bare.find(exp.Distinct):
            found[column.alias_or_name] = _WAYS[type(bare)]
        elif inner.sql() in keys or str(number) in keys:
            found[column.alias_or_name] = None
            shown |= {inner.sql(), str(number)}
        else:
            raise cannot_cross(f"'{column.sql()}' of '{table}' cannot be merged", query.path)
    hidden = [key for key in keys if key not in shown]
    if hidden:
        raise cannot_cross(f"'{table}' is grouped by '{hidden[0]}', which is not one of its columns", query.path)
    if any(select.args.get(part) for part in ("having", "limit", "distinct", "qualify")):
        raise cannot_cross(f"'{table}' does more than group", query.path)
    return found


def head(query: Query, table: str, merged: Mapping[str, str]) -> str:
    """Return the statement of one common table, in DuckDB's dialect; it reads the tables of `merged` by name."""
    tree = parsed(query.sql, query.path)
    _common_table(tree, table, query.path)
    whole = exp.select("*").from_(exp.to_table(table, quoted=True))
    whole.set("with_", exp.With(expressions=[cte.copy() for cte in _tables(tree)]))
    return with_merged(whole, merged).sql(dialect="duckdb")


def tail(query: Query, merged: Mapping[str, str]) -> exp.Expr:
    """Return the whole statement, which reads the common tables of `merged` by name."""
    return with_merged(parsed(query.sql, query.path), merged)


def with_merged(tree: exp.Expr, merged: Mapping[str, str]) -> exp.Expr:
    """Return the statement, reading its common tables from the merged rows and without unused common tables."""
    for cte in _tables(tree):
        if cte.alias in merged:
            cte.set("this", exp.select("*").from_(exp.to_table(merged[cte.alias], quoted=True)))
    keep = _read(tree)
    for cte in _tables(tree):
        if cte.alias not in keep:
            cte.pop()
    return tree


def read_again(tree: exp.Expr) -> list[tuple[str, exp.Expr]]:
    """Return the common tables that a statement reads in several places, in order, each as a separate statement."""
    found = []
    own = _tables(tree)
    for place, cte in enumerate(own):
        if sum(table.name == cte.alias for table in tree.find_all(exp.Table)) > 1:
            whole = cte.this.copy()
            before = [earlier.copy() for earlier in own[:place]]
            inner = whole.args.get("with_")
            whole.set("with_", exp.With(expressions=[*before, *([] if inner is None else inner.expressions)]))
            found.append((cte.alias, whole))
    return found


def _read(tree: exp.Expr) -> Collection[str]:
    """Return the common tables that the final SELECT reads, directly or through others."""
    bodies = {cte.alias: cte.this for cte in _tables(tree)}
    end = tree.copy()
    end.set("with_", None)
    found: set[str] = set()
    todo = [end]
    while todo:
        for table in todo.pop().find_all(exp.Table):
            if table.name in bodies and table.name not in found:
                found.add(table.name)
                todo.append(bodies[table.name])
    return found


def _tables(tree: exp.Expr) -> list[exp.CTE]:
    clause = tree.args.get("with_")
    return [] if clause is None else list(clause.expressions)


def _common_table(tree: exp.Expr, name: str, where: Path) -> exp.CTE:
    for cte in _tables(tree):
        if cte.alias == name:
            return cte
    raise cannot_cross(f"the common table '{name}' to merge does not exist", where)


def ways_of(query: Query) -> str:
    """Describe how Spark computes a query.

    Examples
    --------
    >>> from tracekit.characterize import find_query
    >>> ways_of(find_query("overview/status"))
    'SQL'
    >>> ways_of(find_query("utilization/gpu_by_size_status"))
    'telemetry by day, merged; the rest on the driver'
    >>> ways_of(find_query("queuing/delay_causes"))
    'timeline by cluster; SQL'
    """
    views = {view.name: view for view in list_views()}
    words = [f"timeline {'by cluster' if timeline.by_cluster else 'on the driver'}" for timeline in timelines_in(query)]
    below, todo = [query], [query]
    while todo:
        one = todo.pop()
        named = [views[name] for name in relations(parsed(one.sql, one.path)) if name in views]
        fresh = [view for view in named if view not in below]
        below += fresh
        todo += fresh
    known = {table: merged_name(query.name, table) for table in query.merge}
    if any(one.merge for one in below):
        words.append("telemetry by day, merged")
    local = bool(known) and relations(tail(query, known)) <= set(known.values())
    return "; ".join([*dict.fromkeys(words), "the rest on the driver" if local else "SQL"])
