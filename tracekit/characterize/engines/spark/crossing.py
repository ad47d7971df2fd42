"""Translate DuckDB's SQL to Spark's with sqlglot, and correct sqlglot's errors with rules."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tracekit.errors import QueryError

if TYPE_CHECKING:
    from pathlib import Path

    from sqlglot import exp


def parsed(sql: str, where: Path) -> exp.Expr:
    """Return the syntax tree of one statement in DuckDB's dialect.

    Raises
    ------
    QueryError
        sqlglot cannot parse the statement.
    """
    return _tree(sql, where).copy()


@lru_cache(maxsize=512)
def _tree(sql: str, where: Path) -> exp.Expr:
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(sql, dialect="duckdb")
    except SqlglotError as error:
        raise cannot_cross(str(error), where) from error


def cannot_cross(reason: str, where: Path | None) -> QueryError:
    """Return the error for a query that Spark cannot answer as DuckDB does."""
    words = " ".join(reason.split())[:300].rstrip(".")
    return QueryError(f"Spark cannot run this query: {words}", where=where, hint="--engine duckdb runs it")


def spark_sql(sql: str, where: Path) -> str:
    """Return a statement in Spark's dialect.

    Raises
    ------
    QueryError
        sqlglot cannot parse the statement, or cannot express it in Spark's dialect.
    """
    return to_spark(parsed(sql, where), where)


def to_spark(tree: exp.Expr, where: Path, *, large: bool = False) -> str:
    """Return a tree's statement in Spark's dialect, changing the tree; if `large`, percentiles use value counts.

    Raises
    ------
    QueryError
        sqlglot cannot express the statement in Spark's dialect.
    """
    from sqlglot.errors import ErrorLevel, SqlglotError

    from tracekit.characterize.engines.spark.percentiles import by_counts
    from tracekit.characterize.engines.spark.rules import RULES

    try:
        if large:
            tree = by_counts(tree)
        for rule in RULES:
            tree = rule(tree)
        return tree.sql(dialect="spark", identify=True, unsupported_level=ErrorLevel.RAISE, comments=False)
    except SqlglotError as error:
        raise cannot_cross(str(error), where) from error


def relations(tree: exp.Expr) -> set[str]:
    """Return the names of the tables and views that a statement reads, except its own common tables."""
    from sqlglot import exp

    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    return {table.name for table in tree.find_all(exp.Table)} - own
