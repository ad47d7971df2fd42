"""Turn the table schemas, schemas/*.json, into types, checks and documentation.

`schemas/common/<table>.json` describes the tables of a Trace, and `schemas/sources/<format>/<file>.json` describes the
raw files that a format reads. Both are Frictionless Table Schemas with six additions: `unit` (a number's unit),
`arrayItem.type` (the type of a list's entries), `zones` (zone suffixes of a time column and their hours from UTC),
`since` (the schema version that introduced a column), `dialect` (the layout of the raw text) and `rules` (relations
between the columns of one row).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from tracekit import resources
from tracekit.errors import SchemaError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


SCHEMA_VERSION = "5"
"""Version of the common tables, raised by each change of their columns."""

PARTITIONED_VERSION = "6"
"""Version of a Trace with a partitioned table, with the same columns as in `SCHEMA_VERSION`.

A tracekit that expects one file per table rejects this version.
"""

READABLE_VERSIONS = ("1", "2", "3", "4", SCHEMA_VERSION, PARTITIONED_VERSION)
"""Trace versions that can be read; columns introduced after a Trace's version are NULL in it."""

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""First and last time allowed in a Trace, in the years 1 and 9999 [us since 1970]."""

COMMON_TABLES = (
    "jobs",
    "attempts",
    "placements",
    "nodes",
    "capacity",
    "gpu_utilization",
    "host_utilization",
    "job_usage",
    "node_events",
    "failures",
    "doubtful_times",
    "rejects",
)
"""Tables that a Trace may have, in reading order."""

FAILED = ("failed", "node_fail", "out_of_memory")
"""Statuses of jobs that failed because of an error, a node failure or insufficient memory."""

UNSUCCESSFUL = (*FAILED, "timeout")
"""Statuses of unsuccessful jobs, as in the Helios study: failed jobs, and jobs that reached their time limit, but not
jobs that their user cancelled.
"""

STATUS_GROUPS = {"failed": FAILED, "unsuccessful": UNSUCCESSFUL}
"""Named groups of statuses. Queries use them as `is_failed(status)` and `is_unsuccessful(status)`."""

Kind = Literal["string", "integer", "number", "boolean", "datetime", "date", "array"]

_POLARS: dict[str, pl.DataType] = {
    "string": pl.String(),
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "boolean": pl.Boolean(),
    "datetime": pl.Datetime("us"),
    "date": pl.Date(),
}

_SQL = {
    "string": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "datetime": "TIMESTAMP",
    "date": "DATE",
}


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    description: str
    unit: str | None = None
    """Unit of a number, such as s, GiB, GPUs or percent."""
    required: bool = False
    """Whether NULL is an error."""
    item: str | None = None
    """Type of the list entries, for kind 'array'."""
    format: str | None = None
    """strptime format of a time or date in a raw file."""
    zones: Mapping[str, int] = field(default_factory=dict)
    """Time zone suffixes of a time in a raw file, with their hours from UTC."""
    minimum: float | None = None
    maximum: float | None = None
    enum: tuple[str, ...] = ()
    """Allowed words, or empty if any word is allowed."""
    since: int = 1
    """Schema version that introduced the column. It is missing from tables of earlier versions."""
    key: bool | None = None
    """In a raw file, whether a missing value has a meaning of its own, such as no start or 0."""

    @property
    def decides(self) -> bool:
        """Whether an unreadable cell makes its record unusable. In other columns, the cell becomes unknown."""
        timed = self.kind in ("datetime", "date")
        return self.required or (timed if self.key is None else self.key)

    @property
    def polars(self) -> pl.DataType:
        """Polars type of the column."""
        if self.kind == "array":
            return pl.List(_POLARS.get(self.item or "string", pl.String()))
        return _POLARS[self.kind]

    @property
    def sql(self) -> str:
        """DuckDB type of the column."""
        if self.kind == "array":
            return f"{_SQL[self.item or 'string']}[]"
        return _SQL[self.kind]


@dataclass(frozen=True)
class RowRule:
    """A relation between the columns of one row. It does not apply if any of the columns is NULL."""

    holds: str
    """SQL condition on the columns of the table."""
    broken: str
    """What is wrong if the condition is false, followed by 'in N rows'."""
    unless: str = ""
    """Ingest option NAME=VALUE with which the rule does not apply."""
    only: str = ""
    """Ingest option NAME=VALUE without which the rule does not apply."""


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table and the rules for its rows."""

    name: str
    title: str
    description: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    rules: tuple[RowRule, ...] = ()
    missing: tuple[str, ...] = ("",)
    """Spellings of an unknown value in a raw file."""
    dialect: Mapping[str, Any] = field(default_factory=dict)
    """Layout of a raw file: header, skipInitialSpace, trailingDelimiter and optionalAfter."""

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(c.name for c in self.columns)

    @property
    def polars(self) -> dict[str, pl.DataType]:
        """Polars type by column name, in order."""
        return {c.name: c.polars for c in self.columns}

    def column(self, name: str) -> Column:
        """Return the column called `name`.

        Raises
        ------
        SchemaError
            The column does not exist in the table.
        """
        for candidate in self.columns:
            if candidate.name == name:
                return candidate
        raise SchemaError(f"no column '{name}'", where=self.name, hint=nearest(name, self.names))

    def columns_of(self, version: str) -> tuple[str, ...]:
        """Return the names of the table's columns, in order, in one of the schema versions in `READABLE_VERSIONS`."""
        return tuple(c.name for c in self.columns if c.since <= int(version))

    def conform(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return `frame` with exactly this table's columns, types and order.

        Columns missing from the frame become NULL. A column that is not in the schema is an error: it would be lost
        silently.

        Raises
        ------
        SchemaError
            The frame has a column that is not in the table, or a column whose values cannot be converted.
        """
        for name in frame.columns:
            self.column(name)
        have = set(frame.columns)
        exprs = [
            pl.col(c.name).cast(c.polars) if c.name in have else pl.lit(None, dtype=c.polars).alias(c.name)
            for c in self.columns
        ]
        try:
            return frame.select(exprs)
        except pl.exceptions.PolarsError as error:
            raise SchemaError(f"values cannot be converted: {str(error).splitlines()[0]}", where=self.name) from error


@cache
def common(name: str) -> TableSchema:
    """Return the schema of a common table.

    Raises
    ------
    SchemaError
        No common table has that name.
    """
    if name not in COMMON_TABLES:
        raise SchemaError(f"no table '{name}'", hint=nearest(name, COMMON_TABLES))
    return _load(f"common/{name}.json")


@cache
def source(format_name: str, name: str) -> TableSchema:
    """Return the schema of the raw file `name` of the format `format_name`."""
    return _load(f"sources/{format_name}/{name}.json")


def _load(relative: str) -> TableSchema:
    text = (resources.folder("schemas") / relative).read_text(encoding="utf-8")
    raw = json.loads(text)
    columns = []
    for entry in raw["fields"]:
        rules = entry.get("constraints", {})
        columns.append(
            Column(
                name=entry["name"],
                kind=entry["type"],
                description=entry["description"],
                unit=entry.get("unit"),
                required=rules.get("required", False),
                item=entry.get("arrayItem", {}).get("type"),
                format=entry.get("format"),
                zones=entry.get("zones", {}),
                minimum=rules.get("minimum"),
                maximum=rules.get("maximum"),
                enum=tuple(rules.get("enum", ())),
                since=entry.get("since", 1),
                key=entry.get("key"),
            )
        )
    return TableSchema(
        name=raw["name"],
        title=raw["title"],
        description=raw["description"],
        columns=tuple(columns),
        primary_key=tuple(raw.get("primaryKey", ())),
        rules=tuple(RowRule(**entry) for entry in raw.get("rules", ())),
        missing=tuple(raw["missingValues"]),
        dialect=raw.get("dialect", {}),
    )


def reference() -> str:
    """Render the column reference of all common tables as Markdown, which is the text of docs/columns.md."""
    lines = [
        "# The tables of a Trace",
        "",
        f"Schema version {SCHEMA_VERSION}. Generated from `schemas/common/`; edit those files, then run `just docs`.",
        "Times are in UTC, without a time zone. Unknown values are NULL. A column marked * is never NULL.",
    ]
    for name in COMMON_TABLES:
        table = common(name)
        lines += ["", f"## {name}", "", table.description, ""]
        if table.primary_key:
            lines += [f"Key: {', '.join(f'`{k}`' for k in table.primary_key)}.", ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for c in table.columns:
            star = "*" if c.required else ""
            words = f" One of: {', '.join(c.enum)}." if c.enum else ""
            meaning = f"{c.description}{words}".replace("|", "\\|")
            lines.append(f"| `{c.name}`{star} | {c.sql} | {c.unit or ''} | {meaning}{_range(c)} |")
        if table.rules:
            lines += ["", "In each row, if the columns are known:", ""]
            lines += [f"- `{rule.holds}`{_option(rule)}" for rule in table.rules]
    return "\n".join(lines) + "\n"


def _range(column: Column) -> str:
    low = "" if column.minimum is None else f" At least {column.minimum:g}."
    return low + ("" if column.maximum is None else f" At most {column.maximum:g}.")


def _option(rule: RowRule) -> str:
    if rule.unless:
        return f", unless ingested with {rule.unless}"
    return f", if ingested with {rule.only}" if rule.only else ""
