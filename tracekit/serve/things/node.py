"""The page of one node: its hardware, outages, jobs and GPU utilization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import text
from tracekit.serve.things.thing import MOST_ROWS, Fact, NoSuchThingError, Shown, Thing, facts_of, rows_of, table
from tracekit.serve.things.through_time import HELD, held_chart, held_through_time, use_chart, used_through_time

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb

    from tracekit.report.sections.interface import TraceFacts
    from tracekit.serve.things.thing import Table
    from tracekit.trace import Trace

__all__ = ["node"]

_EVENTS = f"""
    SELECT start_time, end_time, state, cause, source_cause, count(*) OVER () AS total
    FROM node_events
    WHERE node_id = $name
    ORDER BY start_time DESC, end_time DESC, state
    LIMIT {MOST_ROWS}
"""
_OUT = """
    SELECT count(*) AS outages, sum((until - since) / 3.6e9) AS hours
    FROM node_outages
    WHERE node_id = $name
"""
_HELD_HERE = f"SELECT * FROM ({HELD}) WHERE node_id = $name"
_JOBS = f"""
    WITH here AS (
        SELECT job_id, attempt, sum(gpus) AS gpus, min(since) AS start_time, max(until) AS end_time
        FROM ({_HELD_HERE})
        GROUP BY job_id, attempt
    )
    SELECT h.job_id, j."user", j.vc, h.gpus, j.status, h.start_time, h.end_time, count(*) OVER () AS total
    FROM here AS h
    LEFT JOIN jobs AS j ON h.job_id = j.job_id
    ORDER BY h.start_time DESC NULLS LAST, h.job_id, h.attempt
    LIMIT {MOST_ROWS}
"""
_ENDS = f"SELECT min(since), max(coalesce(until, since)) FROM ({_HELD_HERE})"
_SAMPLED = 'SELECT min("time"), max("time") FROM gpu_utilization WHERE node_id = $name'
_SAMPLES = "SELECT * FROM gpu_utilization WHERE node_id = $name AND utilization_pct IS NOT NULL"


def node(con: duckdb.DuckDBPyConnection, trace: Trace, facts: TraceFacts, name: str) -> Thing:
    """Return the page content for a node.

    Raises
    ------
    NoSuchThingError
        The Trace has no node with this name.
    """
    shown = Shown(facts)
    known = rows_of(con, "SELECT * FROM nodes WHERE node_id = $name LIMIT 1", name=name) if trace.has("nodes") else []
    placed = trace.has("placements") and trace.has("attempts")
    jobs = rows_of(con, _JOBS, name=name) if placed else []
    events = rows_of(con, _EVENTS, name=name) if trace.has("node_events") else []
    if not known and not jobs and not events:
        raise NoSuchThingError(f"the trace has no node '{text.shorten(name)}'")
    row = known[0] if known else {}
    own = facts_of({column: value for column, value in row.items() if column not in {"node_id", "source"}}, shown)
    tables: list[Table] = []
    if trace.has("node_events"):
        own += _outages(con, name)
        tables.append(table("Outages and other events", events, shown, empty="No events are recorded."))
    if placed:
        title = "Jobs that ran on this node, the latest first"
        tables.append(table(title, jobs, shown, units={"gpus": "GPUs"}, empty="No jobs are recorded."))
    charts = []
    if placed and (ends := _times(con, _ENDS, name)) is not None:
        rows = held_through_time(con, _HELD_HERE, *ends, name=name)
        charts += held_chart(rows, facts, "Its allocated GPUs", owned=row.get("gpu_count"))
    if trace.has("gpu_utilization") and (ends := _times(con, _SAMPLED, name)) is not None:
        charts += use_chart(used_through_time(con, _SAMPLES, *ends, name=name), facts, "Use of its GPUs")
    return Thing("node", name, [], own, charts, tables)


def _times(con: duckdb.DuckDBPyConnection, sql: str, name: str) -> tuple[datetime, datetime] | None:
    """Return a query's first and last time, or None if there are none or they are equal."""
    first, last = con.execute(sql, {"name": name}).fetchall()[0]
    return (first, last) if first is not None and last > first else None


def _outages(con: duckdb.DuckDBPyConnection, name: str) -> list[Fact]:
    row = rows_of(con, _OUT, name=name)[0]
    hours = [] if row["hours"] is None else [Fact("Hours out of service", text.count(row["hours"]))]
    return [Fact("Times out of service", text.count(row["outages"])), *hours]
