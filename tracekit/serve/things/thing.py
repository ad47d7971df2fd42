"""The page of one job, node or user: facts, charts and tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tracekit import schema, text
from tracekit.errors import TracekitError
from tracekit.report.table_view import OPENED, link_to, plain_cell
from tracekit.report.times import local, start_of_day, trace_day
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.sections.interface import TraceFacts

__all__ = [
    "MOST_ROWS",
    "Fact",
    "NoSuchThingError",
    "Shown",
    "Table",
    "Thing",
    "facts_of",
    "rows_of",
    "shown_time",
    "table",
]

MOST_ROWS = 50
"""Maximum number of rows of a table."""

_LABELS = {
    "queue_s": "waited",
    "run_s": "ran",
    "suspended_s": "suspended for",
    "submit_time": "submitted",
    "eligible_time": "eligible since",
    "start_time": "started",
    "end_time": "ended",
    "gpu_count": "GPUs",
    "cpu_count": "CPU cores",
    "node_count": "nodes",
    "attempt_count": "attempts",
    "instance_count": "instances",
}
"""Labels for job or node columns outside a table."""

_MANY = 4
"""Maximum number of values of a list shown in a cell."""


class NoSuchThingError(TracekitError):
    """The Trace has no such job, node or user."""


@dataclass(frozen=True)
class Fact:
    """A labelled number or name."""

    label: str
    text: str
    href: str | None = None


@dataclass(frozen=True)
class Table:
    """A readable table of cells."""

    title: str
    columns: list[dict[str, Any]] = field(default_factory=list)
    rows: list[list[dict[str, Any]]] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True)
class Thing:
    """The page content for a job, a node or a user."""

    kind: str
    name: str | None
    lead: list[str] = field(default_factory=list)
    """Sentences below the heading."""
    facts: list[Fact] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    narrow: str | None = None
    """Address of the report for only this item."""
    words: str = ""
    """The search words."""

    @property
    def heading(self) -> str:
        """Heading of the page."""
        return self.kind if self.name is None else f"{self.kind} {text.shorten(self.name, 80)}"


class Shown:
    """Display rules for the columns of a Trace: their units, and the site's words for its tenants."""

    def __init__(self, facts: TraceFacts) -> None:
        self.facts = facts
        self._units = {
            c.name: "UTC" if c.kind == "datetime" else c.unit or ""
            for name in reversed(schema.COMMON_TABLES)
            for c in schema.common(name).columns
        }

    def unit(self, column: str, given: Mapping[str, str]) -> str:
        """Return the unit of a column, as given or as in the common tables."""
        return given.get(column, self._units.get(column, ""))

    def head(self, column: str, unit: str) -> tuple[str, str]:
        """Return a column's heading and the unit below it."""
        if column == INGESTED:
            return self.facts.tenant.head, ""
        head, below = text.heading(column, unit)
        return head, "" if unit == "UTC" else below

    def cell(self, column: str, value: Any, unit: str) -> dict[str, Any]:
        """Convert a value to a cell, with a link if it names a job, a node or a user."""
        if isinstance(value, list):
            more = f" and {len(value) - _MANY} more" if len(value) > _MANY else ""
            value = ", ".join(str(v) for v in value[:_MANY]) + more
        elif unit == "UTC" and isinstance(value, str):
            value = shown_time(value, self.facts)
        kind = OPENED.get(self.facts.tenant.column if column == INGESTED else column)
        href = link_to(kind, value) if kind is not None else None
        return {**plain_cell(value, unit, column), "href": href}


def shown_time(time: str, facts: TraceFacts) -> str:
    """Write a time as local time in the trace's time zone, or as a day of the trace."""
    if not facts.dated:
        if facts.clocked:
            return f"{start_of_day(time, facts)}, {local(time, facts.timezone):%H:%M:%S}"
        return f"day {trace_day(time, facts):.3f}"
    return local(time, facts.timezone).isoformat(sep=" ", timespec="seconds")


def rows_of(con: duckdb.DuckDBPyConnection, sql: str, **values: object) -> list[Row]:
    """Return the rows of a query as JSON values. `values` are bound to its parameters."""
    found = con.execute(sql, values)
    names = [column[0] for column in found.description]
    return [dict(zip(names, map(text.plain, row), strict=True)) for row in found.fetchall()]


def facts_of(row: Row, shown: Shown, units: Mapping[str, str] | None = None) -> list[Fact]:
    """Return the known values of a row, each with its heading and unit."""
    given = units or {}
    found = []
    for column, value in row.items():
        if value is None:
            continue
        unit = shown.unit(column, given)
        head, below = shown.head(column, unit)
        cell = shown.cell(column, value, unit)
        head = _LABELS.get(column, shown.facts.tenant.spelled if column == INGESTED else head)
        # The label already names what is counted.
        suffix = f" {below}" if below and below != "h:mm:ss" and not column.endswith("_count") else ""
        found.append(Fact(head[:1].upper() + head[1:], f"{cell['text']}{suffix}", cell["href"]))
    return found


def table(
    title: str,
    rows: Sequence[Row],
    shown: Shown,
    *,
    units: Mapping[str, str] | None = None,
    note: str = "",
    empty: str = "",
) -> Table:
    """Convert rows to a table, without columns that have no known value.

    Parameters
    ----------
    title : str
        Heading of the table.
    rows : sequence of Row
        Rows to show. If the query has a limit, the `total` column has the number of rows without the limit.
    shown : Shown
        Display rules for columns.
    units : mapping, optional
        Units of columns that are not in a common table.
    note : str
        A sentence above the table.
    empty : str
        The sentence to show instead of an empty table.
    """
    if not rows:
        return Table(title, note=empty)
    given = units or {}
    names = [name for name in rows[0] if name != "total" and any(row[name] is not None for row in rows)]
    columns, cells = [], []
    for name in names:
        unit = shown.unit(name, given)
        head, below = shown.head(name, unit)
        number = any(isinstance(r[name], int | float) and not isinstance(r[name], bool) for r in rows)
        columns.append({"head": head, "unit": below, "number": number})
        cells.append([shown.cell(name, r[name], unit) for r in rows])
    if (total := rows[0].get("total", 0)) > len(rows):
        note = f"{note} {text.count(len(rows))} of {text.count(total)} rows are listed.".strip()
    return Table(title, columns, [list(line) for line in zip(*cells, strict=True)], note)
