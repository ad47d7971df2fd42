"""Answers that a report makes itself, not from SQL: what they are called, and their rows as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.characterize.query import Query, QueryColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

__all__ = ["frame_of", "made_query"]


def made_query(
    name: str, title: str, question: str, rule: str, columns: tuple[QueryColumn, ...], paper: str = ""
) -> Query:
    """Return what stands for a query of jobs that has no SQL; `rule` is its definition."""
    return Query(name, title, question, paper, ("jobs",), (), (), columns, "", Path(), rule=rule)


def frame_of(query: Query, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows as a table of the query's columns; what a row lacks is NULL."""
    import polars as pl

    names = [c.name for c in query.columns]
    return pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
