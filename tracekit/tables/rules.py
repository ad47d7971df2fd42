"""What has to hold in the rows of a Trace, as SQL that finds the rows in which it does not.

The rules of one column and of one row come from `schemas/common/`; those between rows and tables stand here. A rule
says nothing of a row where one of its values is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit import schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.schema import Column, TableSchema

__all__ = ["Relation", "Rule", "label_of", "relations_between", "rules_of"]

LARGEST_SLIP_S = 0.001
"""A duration may differ from its times by their rounding to microseconds, and by that of a float [s]."""


@dataclass(frozen=True)
class Rule:
    """One rule."""

    broken: str
    """What is wrong, before 'in N rows'."""
    found: str
    """SQL condition, true in a row that breaks the rule."""


@dataclass(frozen=True)
class Relation:
    """Rows of a table, joined with what they have to agree with."""

    table: str
    """Whose rows are at fault."""
    needs: tuple[str, ...]
    """Tables that it reads beside it."""
    sql: str
    """What stands after FROM; the table itself is called t."""
    rules: tuple[Rule, ...]


def rules_of(table: str, options: Mapping[str, str]) -> tuple[Rule, ...]:
    """Return the rules of single columns and rows of a table of a Trace that was ingested with `options`."""
    spec = schema.common(table)
    of_columns = [rule for column in spec.columns for rule in _column_rules(column)]
    of_rows = [
        Rule(rule.broken, f"NOT ({rule.holds})")
        for rule in spec.rules
        if not (rule.unless and _ingested(options, rule.unless)) and (not rule.only or _ingested(options, rule.only))
    ]
    return (*of_columns, *of_rows)


def _ingested(options: Mapping[str, str], option: str) -> bool:
    name, _, value = option.partition("=")
    return options.get(name) == value


def _column_rules(column: Column) -> list[Rule]:
    name = f'"{column.name}"'
    rules = []
    if column.required:
        rules.append(Rule(f"no {column.name}", f"{name} IS NULL"))
    if column.enum:
        words = ", ".join(f"'{word}'" for word in column.enum)
        rules.append(Rule(f"{column.name} outside its words", f"{name} NOT IN ({words})"))
    if column.kind == "number":
        # DuckDB holds NaN to be larger than every number.
        rules.append(Rule(f"{column.name} is not finite", f"NOT isfinite({name})"))
    if column.minimum is not None:
        rules.append(Rule(f"{column.name} below {column.minimum:g}", f"{name} < {column.minimum:g}"))
    if column.maximum is not None:
        above = f"isfinite({name}) AND {name} > {column.maximum:g}"
        rules.append(Rule(f"{column.name} above {column.maximum:g}", above))
    if column.kind == "datetime":
        outside = f"NOT isfinite({name}) OR {name} < '0001-01-01'::TIMESTAMP OR {name} >= '10000-01-01'::TIMESTAMP"
        rules.append(Rule(f"{column.name} outside the years 1 to 9999", outside))
    return rules


def label_of(spec: TableSchema, alias: str = "t") -> str:
    """Return an SQL expression that names a row: its key, or what it cannot be without."""
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
            (Rule("job_id unknown to jobs", "t.job_id IS NOT NULL"),),
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
                Rule("start_time before the job's submit_time", "t.start_time < j.submit_time"),
                Rule(
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
                Rule("start_time before the previous attempt's end_time", "t.start_time < p.end_time"),
                Rule(
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
                Rule("attempt_count is not the number of attempts", "t.attempt_count <> coalesce(a.attempts, 0)"),
                Rule("start_time is not the first attempt's", "t.start_time <> a.first_start"),
                Rule("end_time is not the last attempt's", "t.end_time <> a.last_end"),
            ),
        ),
    )
