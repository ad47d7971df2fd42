"""The page of one job: its facts, attempts, placements, GPU utilization, and the jobs on the same nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import text
from tracekit.characterize import list_views
from tracekit.report.phrases import status_word
from tracekit.serve.things.thing import MOST_ROWS, NoSuchThingError, Shown, Thing, facts_of, rows_of, table
from tracekit.serve.things.through_time import HELD, use_chart, used_through_time

if TYPE_CHECKING:
    import duckdb

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.serve.things.thing import Table
    from tracekit.trace import Trace

__all__ = ["job"]

_OF_JOB = {
    "attempts": "attempt, status, start_time, end_time, wait_s, run_s, gpu_count, node_count",
    "placements": "attempt, task, instance, node_id, gpu_index, gpu_count, start_time, end_time",
    "failures": "attempt, time, category, reason",
    "job_usage": "task, node_id, gpu_util_pct, gpu_memory_gib, cpu_pct, memory_gib",
}
_TITLES = {
    "attempts": "Attempts",
    "placements": "Placements",
    "failures": "Reasons of failures",
    "job_usage": "GPU use in the log",
}
_EMPTY = {
    "attempts": "The trace has no run of this job.",
    "placements": "The trace does not record where this job ran.",
}
_UNITS = {"gpu_util_pct": "percent", "cpu_pct": "percent", "together_s": "s", "nodes": "number", "instance": "text"}

_BESIDE = f"""
    WITH held AS ({HELD}),
    mine AS (SELECT node_id, since, until FROM held WHERE job_id = $name AND since IS NOT NULL),
    beside AS (
        SELECT
            h.job_id,
            count(DISTINCT h.node_id) AS nodes,
            max(epoch(least(h.until, m.until) - greatest(h.since, m.since))) AS together_s
        FROM held AS h
        INNER JOIN mine AS m ON h.node_id = m.node_id
        WHERE
            h.job_id <> $name
            AND (m.until IS NULL OR h.since < m.until)
            AND (h.until IS NULL OR h.until > m.since)
        GROUP BY h.job_id
    )
    SELECT b.job_id, j."user", j.vc, j.gpu_count, j.status, b.nodes, b.together_s, count(*) OVER () AS total
    FROM beside AS b
    LEFT JOIN jobs AS j ON b.job_id = j.job_id
    ORDER BY b.together_s DESC NULLS LAST, b.job_id
    LIMIT {MOST_ROWS}
"""

_TIMES = (
    "SELECT min(start_time) AS since, max(coalesce(end_time, start_time)) AS until FROM attempts WHERE job_id = $name"
)


def job(con: duckdb.DuckDBPyConnection, trace: Trace, facts: TraceFacts, name: str) -> Thing:
    """Return the page content for a job.

    Raises
    ------
    NoSuchThingError
        The Trace has no job with this name.
    """
    known = rows_of(con, "SELECT * FROM jobs WHERE job_id = $name LIMIT 1", name=name) if trace.has("jobs") else []
    if not known:
        raise NoSuchThingError(f"the trace has no job '{text.shorten(name)}'")
    shown, row = Shown(facts), known[0]
    tables = [found for name_of in _OF_JOB if (found := _table(con, trace, shown, name_of, name)) is not None]
    placed = trace.has("placements") and trace.has("attempts")
    if placed:
        beside = rows_of(con, _BESIDE, name=name)
        tables.append(
            table(
                "Jobs on the same nodes at the same time",
                beside,
                shown,
                units=_UNITS,
                note="'Together' is the longest time on one node.",
                empty="The trace shows no other job on its nodes at the same time.",
            )
        )
    use = _use(con, name) if placed and trace.has("gpu_utilization") else []
    own = {column: value for column, value in row.items() if column != "job_id"}
    return Thing("job", name, _lead(row), facts_of(own, shown), use_chart(use, facts, "Use of its GPUs"), tables)


def _lead(row: Row) -> list[str]:
    status = row["status"]
    gpus = row["gpu_count"]
    asked = "" if gpus is None else f" It requested {text.count(gpus)} {'GPU' if gpus == 1 else 'GPUs'}."
    waited = "" if row["queue_s"] is None else f" It waited {text.duration(row['queue_s'])}"
    ran = "" if row["run_s"] is None else f" It ran {text.duration(row['run_s'])}"
    if waited and ran:
        ran = ran.replace(" It ran", " and ran")
    times = f"{waited}{ran}." if waited or ran else ""
    ended = "How it ended is unknown." if status is None else f"Its status is {status_word(status)}."
    return [f"{ended}{asked}{times}"]


def _table(con: duckdb.DuckDBPyConnection, trace: Trace, shown: Shown, of: str, name: str) -> Table | None:
    """Return a table's rows about a job, or None if the Trace has no such table or no rows for the job."""
    if not trace.has(of):
        return None
    columns = f"{_OF_JOB[of]}, count(*) OVER () AS total"
    rows = rows_of(
        con, f"SELECT {columns} FROM {of} WHERE job_id = $name ORDER BY {_OF_JOB[of]} LIMIT {MOST_ROWS}", name=name
    )
    if not rows and of not in _EMPTY:
        return None
    return table(_TITLES[of], rows, shown, units=_UNITS, empty=_EMPTY.get(of, ""))


def _use(con: duckdb.DuckDBPyConnection, name: str) -> list[Row]:
    """Return the samples of a job's GPUs by interval, matched as in the attempt_samples view."""
    since, until = con.execute(_TIMES, {"name": name}).fetchall()[0]
    if since is None:
        return []
    view = next(view.sql for view in list_views() if view.name == "attempt_samples")
    # Apply the view's rule only to the rows of this job. The view itself would join the rows of all jobs.
    samples = f"""
        WITH attempts AS (SELECT * FROM main.attempts WHERE job_id = $name),
        placements AS (SELECT * FROM main.placements WHERE job_id = $name),
        gpu_utilization AS (
            SELECT * FROM main.gpu_utilization
            WHERE
                "time" >= $since - INTERVAL 1 MINUTE AND "time" <= $until
                AND (job_id = $name OR node_id IN (SELECT node_id FROM main.placements WHERE job_id = $name))
        )
        SELECT * FROM ({view})
    """
    return used_through_time(con, samples, since, until, name=name, until=until)
