"""Answers in which the tenant has its own name: the column `vc` is called after the one that stands in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    import polars as pl

    from tracekit.answer import Answer, AnswerColumn
    from tracekit.tenant import Tenant

_NUMBER_OF = "vcs"
"""The metric that counts tenants."""


def with_tenant(answer: Answer, tenant: Tenant) -> Answer:
    """Return an answer whose tenants have their own name: the column, and the metric that counts them.

    A tenant that was ingested keeps the name `vc`. Where the answer has the column already, such as the user of a job,
    `vc` would repeat it and is left out.
    """
    if tenant.column == INGESTED:
        return answer
    question = replace(answer.question, columns=name_columns(answer.question.columns, tenant))
    return replace(answer, question=question, frame=_named(answer.frame, tenant))


def _named(frame: pl.DataFrame, tenant: Tenant) -> pl.DataFrame:
    import polars as pl

    if INGESTED in frame.columns:
        known = tenant.column in frame.columns
        frame = frame.drop(INGESTED) if known else frame.rename({INGESTED: tenant.column})
    if {"metric", "unit"}.issubset(frame.columns):
        counts = pl.col("metric") == _NUMBER_OF
        frame = frame.with_columns(
            metric=pl.when(counts).then(pl.lit(tenant.metric)).otherwise("metric"),
            unit=pl.when(counts).then(pl.lit(tenant.many)).otherwise("unit"),
        )
    return frame


def name_columns(columns: tuple[AnswerColumn, ...], tenant: Tenant) -> tuple[AnswerColumn, ...]:
    """Return descriptions of columns with that of the tenant called after it."""
    names = {column.name for column in columns}
    return tuple(
        replace(column, name=tenant.column) if column.name == INGESTED else column
        for column in columns
        if column.name != INGESTED or tenant.column not in names
    )


def name_rows(rows: list[dict[str, Any]], tenant: Tenant) -> list[dict[str, Any]]:
    """Return rows whose tenant is called `vc`, as sentences and charts are made from, of rows in which it is named."""
    if tenant.column == INGESTED or not rows or tenant.column not in rows[0]:
        return rows
    return [{**row, INGESTED: row[tenant.column]} for row in rows]
