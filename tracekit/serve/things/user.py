"""The page of one user: requests, GPU usage, waits and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from tracekit import text
from tracekit.serve.things.thing import MOST_ROWS, Fact, NoSuchThingError, Shown, Thing, rows_of, shown_time, table
from tracekit.serve.things.through_time import held_chart, held_through_time

if TYPE_CHECKING:
    import duckdb

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.trace import Trace

__all__ = ["user"]

_LONGEST = 20
"""Number of jobs with the longest waits that are listed."""

_NUMBERS = """
    SELECT
        count(*) AS jobs,
        count(*) FILTER (gpu_count > 0) AS gpu_jobs,
        count(*) FILTER (status = 'completed') AS completed,
        avg(queue_s) FILTER (gpu_count > 0) AS mean_s,
        quantile_cont(queue_s, 0.5) FILTER (gpu_count > 0) AS median_s,
        quantile_cont(queue_s, 0.9) FILTER (gpu_count > 0) AS p90_s,
        min(submit_time) AS first,
        max(submit_time) AS last
    FROM jobs
    WHERE "user" = $name
"""
_GPU_HOURS = 'SELECT sum(gpu_hours) AS gpu_hours FROM job_gpu_hours WHERE "user" = $name'
_COLUMNS = "job_id, vc, gpu_count, status, submit_time, queue_s, run_s"
_STATUS = """
    SELECT status, count(*) AS jobs
    FROM jobs
    WHERE "user" = $name
    GROUP BY ALL
    ORDER BY jobs DESC, status
"""
_LATEST = f"""
    SELECT {_COLUMNS}, count(*) OVER () AS total
    FROM jobs
    WHERE "user" = $name
    ORDER BY submit_time DESC NULLS LAST, job_id
    LIMIT {MOST_ROWS}
"""
_WAITED = f"""
    SELECT {_COLUMNS}
    FROM jobs
    WHERE "user" = $name AND queue_s > 0
    ORDER BY queue_s DESC, job_id
    LIMIT {_LONGEST}
"""
_HELD = """
    SELECT a.gpu_count AS gpus, a.start_time AS since, a.end_time AS until
    FROM attempts AS a
    WHERE a.gpu_count > 0 AND a.job_id IN (SELECT job_id FROM jobs WHERE "user" = $name)
"""


def user(con: duckdb.DuckDBPyConnection, trace: Trace, facts: TraceFacts, name: str) -> Thing:
    """Return the page content for a user.

    Raises
    ------
    NoSuchThingError
        No job belongs to this user.
    """
    numbers = rows_of(con, _NUMBERS, name=name)[0] if trace.has("jobs") else {"jobs": 0}
    if not numbers["jobs"]:
        raise NoSuchThingError(f"the trace has no user '{text.shorten(name)}'")
    shown = Shown(facts)
    charts = []
    if trace.has("attempts"):
        numbers |= rows_of(con, _GPU_HOURS, name=name)[0]
        ends = con.execute(f"SELECT min(since), max(coalesce(until, since)) FROM ({_HELD})", {"name": name}).fetchall()
        first, last = ends[0]
        if first is not None and last > first:
            held = held_through_time(con, _HELD, first, last, name=name)
            charts = held_chart(held, facts, "GPUs allocated to this user's jobs")
    tables = [
        table("How the jobs ended", rows_of(con, _STATUS, name=name), shown, units={"jobs": "jobs"}),
        table("The latest jobs", rows_of(con, _LATEST, name=name), shown),
        table("The longest waits", rows_of(con, _WAITED, name=name), shown, empty="No job is known to have waited."),
    ]
    narrow = f"/?{urlencode({'where.user': name}, errors='replace')}"
    return Thing("user", name, [], _facts(numbers, facts), charts, tables, narrow)


def _facts(row: Row, facts: TraceFacts) -> list[Fact]:
    found = [Fact("Jobs", text.count(row["jobs"])), Fact("With GPUs", text.count(row["gpu_jobs"]))]
    if row.get("gpu_hours") is not None:
        found.append(Fact("GPU-hours", text.count(row["gpu_hours"])))
    found.append(Fact("Completed", text.percent(row["completed"] / row["jobs"])))
    for label, column in (("Mean wait", "mean_s"), ("Median wait", "median_s"), ("90th percentile of waits", "p90_s")):
        if row[column] is not None:
            found.append(Fact(f"{label}, with GPUs", text.duration(row[column])))
    for label, column in (("First submission", "first"), ("Last submission", "last")):
        if row[column] is not None:
            found.append(Fact(label, shown_time(row[column], facts)))
    return found
