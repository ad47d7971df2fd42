"""Rules for the rows of a Trace, as SQL that finds the rows that break them.

The rules of one column and of one row come from `schemas/common/`; those between rows and tables are here. A rule does
not apply to a row where one of its values is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.schema import Column, TableSchema

__all__ = ["Relation", "TableRule", "label_of", "relations_between", "rules_of"]

LARGEST_SLIP_S = 0.001
"""Largest difference between a duration and its times, from rounding to microseconds and of floats [s]."""


@dataclass(frozen=True)
class TableRule:
    """One rule for the rows of a table."""

    broken: str
    """The problem, before 'in N rows'."""
    found: str
    """SQL condition, true in a row that breaks the rule."""


@dataclass(frozen=True)
class Relation:
    """Rows of a table, joined with the rows that they must agree with."""

    table: str
    """The table whose rows break the rules."""
    needs: tuple[str, ...]
    """Other tables that it reads."""
    sql: str
    """The text after FROM; the table itself is called t."""
    rules: tuple[TableRule, ...]


def rules_of(table: str, options: Mapping[str, str]) -> tuple[TableRule, ...]:
    """Return the rules of single columns and rows of a table of a Trace that was ingested with `options`."""
    spec = schema.common(table)
    of_columns = [rule for column in spec.columns for rule in _column_rules(column)]
    of_rows = [
        TableRule(rule.broken, f"NOT ({rule.holds})")
        for rule in spec.rules
        if not (rule.unless and _ingested(options, rule.unless)) and (not rule.only or _ingested(options, rule.only))
    ]
    return (*of_columns, *of_rows)


def _ingested(options: Mapping[str, str], option: str) -> bool:
    name, _, value = option.partition("=")
    return options.get(name) == value


def _column_rules(column: Column) -> list[TableRule]:
    name = f'"{column.name}"'
    rules = []
    if column.required:
        rules.append(TableRule(f"no {column.name}", f"{name} IS NULL"))
    if column.enum:
        words = ", ".join(f"'{word}'" for word in column.enum)
        rules.append(TableRule(f"{column.name} outside its words", f"{name} NOT IN ({words})"))
    if column.kind == "number":
        # DuckDB holds NaN to be larger than every number.
        rules.append(TableRule(f"{column.name} is not finite", f"NOT isfinite({name})"))
    if column.minimum is not None:
        rules.append(TableRule(f"{column.name} below {column.minimum:g}", f"{name} < {column.minimum:g}"))
    if column.maximum is not None:
        above = f"isfinite({name}) AND {name} > {column.maximum:g}"
        rules.append(TableRule(f"{column.name} above {column.maximum:g}", above))
    if column.kind == "datetime":
        outside = f"NOT isfinite({name}) OR {name} < '0001-01-01'::TIMESTAMP OR {name} >= '10000-01-01'::TIMESTAMP"
        rules.append(TableRule(f"{column.name} outside the years 1 to 9999", outside))
    return rules


def label_of(spec: TableSchema, alias: str = "t") -> str:
    """Return an SQL expression that names a row by its key, or else by its required columns."""
    names = spec.primary_key or tuple(c.name for c in spec.columns if c.required)
    parts = [f"'{name} ' || coalesce({alias}.\"{name}\"::VARCHAR, 'NULL')" for name in names]
    return " || ', ' || ".join(parts)


def _differs(duration: str, later: str, earlier: str) -> str:
    return f"abs({duration} - (epoch_us({later}) - epoch_us({earlier})) / 1e6) > {LARGEST_SLIP_S}"


def relations_between(options: Mapping[str, str]) -> tuple[Relation, ...]:
    """Return the rules between rows and tables of a Trace that was ingested with `options`."""
    # With queue_from=eligible the first wait does not count from the submission.
    first_wait = (
        "t.wait_s > (epoch_us(t.start_time) - epoch_us(j.submit_time)) / 1e6 + 0.001"
        if _ingested(options, "queue_from=eligible")
        else _differs("t.wait_s", "t.start_time", "j.submit_time")
    )
    owners = tuple(
        Relation(
            child,
            ("jobs",),
            f"{child} t ANTI JOIN jobs j ON t.job_id = j.job_id",
            (TableRule("job_id unknown to jobs", "t.job_id IS NOT NULL"),),
        )
        for child in ("attempts", "placements", "job_usage", "failures")
    )
    return (
        *owners,
        Relation(
            "attempts",
            ("jobs",),
            "attempts t JOIN jobs j ON t.job_id = j.job_id",
            (
                TableRule("start_time before the job's submit_time", "t.start_time < j.submit_time"),
                TableRule(
                    "wait_s is not start_time minus the job's submit_time",
                    f"t.attempt = 0 AND {first_wait}",
                ),
            ),
        ),
        Relation(
            "attempts",
            (),
            "(SELECT * FROM attempts WHERE attempt > 0) t JOIN attempts p "
            "ON t.job_id = p.job_id AND t.attempt = p.attempt + 1",
            (
                TableRule("start_time before the previous attempt's end_time", "t.start_time < p.end_time"),
                TableRule(
                    "wait_s is not start_time minus the previous attempt's end_time",
                    _differs("t.wait_s", "t.start_time", "p.end_time"),
                ),
            ),
        ),
        Relation(
            "jobs",
            ("attempts",),
            """jobs t LEFT JOIN (
                SELECT job_id, count(*) AS attempts, arg_min_null(start_time, attempt) AS first_start,
                       arg_max_null(end_time, attempt) AS last_end
                FROM attempts GROUP BY job_id) a ON t.job_id = a.job_id""",
            (
                TableRule("attempt_count is not the number of attempts", "t.attempt_count <> coalesce(a.attempts, 0)"),
                TableRule("start_time is not the first attempt's", "t.start_time <> a.first_start"),
                TableRule("end_time is not the last attempt's", "t.end_time <> a.last_end"),
            ),
        ),
    )
