"""Find contradictory times across records, in the finished tables of every format.

A reader checks the times of each record (`tracekit.ingest.time_faults`). This module checks the order across records,
such as an attempt that starts before the end of the previous one, and covers formats without checks of their own. The
rule is the same: a job's times must be in the order submission, first start, first end, second start and so on. A time
that is out of order becomes NULL, and so do the waits and run times computed from it. An eligible time that is not
between submission and first start also becomes NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.sink import no_rows
from tracekit.ingest.time_faults import CHECKS

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink

_TABLES = ("jobs", "attempts", "placements")

_SUSPECT = {
    "jobs": "start_time < submit_time OR end_time < submit_time OR end_time < start_time OR queue_s < 0 OR run_s < 0 "
    "OR eligible_time < submit_time OR eligible_time > start_time",
    "attempts": "end_time < start_time OR wait_s < 0 OR run_s < 0",
    "placements": "end_time < start_time",
}
"""Contradictions within one row."""

# If an attempt has an unknown end, wait_s cannot show contradictions between adjacent attempts. If a first attempt's
# wait is known, it shows whether the start is before the submission, which avoids a slow join with all jobs.
_SUSPECT_JOBS = """
CREATE TABLE unwaited AS
SELECT job_id, start_time FROM attempts WHERE attempt = 0 AND wait_s IS NULL AND start_time IS NOT NULL;
CREATE TABLE suspect AS
SELECT job_id FROM ({rows}) WHERE job_id IS NOT NULL
UNION
SELECT job_id FROM (
    SELECT job_id, start_time, max(greatest(start_time, end_time)) OVER (
        PARTITION BY job_id ORDER BY attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM attempts SEMI JOIN (SELECT job_id FROM attempts WHERE attempt > 0) USING (job_id))
WHERE start_time < before
UNION
SELECT job_id FROM unwaited u JOIN jobs j USING (job_id) WHERE u.start_time < j.submit_time"""

_LOST = """
CREATE TABLE lost AS
WITH moment AS (
    SELECT job_id, -1 AS place, NULL::BIGINT AS attempt, 'submit_time' AS name, submit_time AS time
    FROM jobs SEMI JOIN suspect USING (job_id)
    UNION ALL
    SELECT job_id, 2 * attempt, attempt, 'start_time', start_time FROM attempts SEMI JOIN suspect USING (job_id)
    UNION ALL
    SELECT job_id, 2 * attempt + 1, attempt, 'end_time', end_time FROM attempts SEMI JOIN suspect USING (job_id)
    UNION ALL
    SELECT job_id, unnest([0, 1]), NULL, unnest(['start_time', 'end_time']), unnest([start_time, end_time])
    FROM jobs SEMI JOIN suspect USING (job_id) ANTI JOIN attempts USING (job_id))
SELECT job_id, attempt, name, time FROM (
    SELECT *, max(time) OVER (
        PARTITION BY job_id ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM moment)
WHERE time < before"""

# A job starts with its first attempt and ends with its last attempt.
_ENDS = """
CREATE TABLE bound AS
SELECT job_id, arg_min_null(a.start_time, a.attempt) AS first_start, arg_max_null(a.end_time, a.attempt) AS last_end,
       arg_min_null(s.time IS NOT NULL, a.attempt) AS start_lost,
       arg_max_null(e.time IS NOT NULL, a.attempt) AS end_lost
FROM attempts a SEMI JOIN suspect USING (job_id)
LEFT JOIN (FROM lost WHERE name = 'start_time') s USING (job_id, attempt)
LEFT JOIN (FROM lost WHERE name = 'end_time') e USING (job_id, attempt)
GROUP BY job_id"""

# A start that was set to NULL is no bound for the eligible time of its job.
_HELD = """
INSERT INTO lost
SELECT job_id, NULL, 'eligible_time', eligible_time FROM jobs SEMI JOIN suspect USING (job_id) LEFT JOIN bound
USING (job_id)
WHERE eligible_time < submit_time
   OR (eligible_time > start_time AND start_time >= coalesce(submit_time, start_time)
       AND NOT (coalesce(start_lost, false) AND start_time = first_start))"""

_JOBS = """
WITH freed AS (
    SELECT j.* REPLACE (
               CASE WHEN NOT (coalesce(start_lost, false) AND j.start_time = first_start) THEN j.start_time END
                   AS start_time,
               CASE WHEN NOT (coalesce(end_lost, false) AND j.end_time = last_end) THEN j.end_time END AS end_time),
           j.start_time AS stated_start, j.end_time AS stated_end
    FROM jobs j LEFT JOIN bound USING (job_id)),
started AS (
    SELECT * REPLACE (CASE WHEN start_time >= submit_time OR submit_time IS NULL THEN start_time END AS start_time)
    FROM freed),
ended AS (
    SELECT * REPLACE (
               CASE WHEN eligible_time >= coalesce(submit_time, eligible_time)
                         AND eligible_time <= coalesce(start_time, eligible_time) THEN eligible_time END
                   AS eligible_time,
               CASE WHEN end_time >= coalesce(greatest(start_time, submit_time), end_time) THEN end_time END
                          AS end_time)
    FROM started)
SELECT * REPLACE (
           CASE WHEN queue_s >= 0 AND start_time IS NOT DISTINCT FROM stated_start THEN queue_s END AS queue_s,
           CASE WHEN run_s >= 0 AND start_time IS NOT DISTINCT FROM stated_start
                     AND end_time IS NOT DISTINCT FROM stated_end THEN run_s END AS run_s)
FROM ended ORDER BY row"""

_ATTEMPTS = """
SELECT a.* REPLACE (
           CASE WHEN s.time IS NULL THEN a.start_time END AS start_time,
           CASE WHEN e.time IS NULL THEN a.end_time END AS end_time,
           CASE WHEN a.run_s >= 0 AND s.time IS NULL AND e.time IS NULL THEN a.run_s END AS run_s,
           CASE WHEN a.wait_s >= 0 AND s.time IS NULL AND p.time IS NULL THEN a.wait_s END AS wait_s)
FROM attempts a
LEFT JOIN (FROM lost WHERE name = 'start_time') s ON s.job_id = a.job_id AND s.attempt = a.attempt
LEFT JOIN (FROM lost WHERE name = 'end_time') e ON e.job_id = a.job_id AND e.attempt = a.attempt
LEFT JOIN (FROM lost WHERE name = 'end_time') p ON p.job_id = a.job_id AND p.attempt = a.attempt - 1
ORDER BY a.row"""

_PLACEMENTS = """
WITH started AS (
    SELECT p.* REPLACE (CASE WHEN (p.start_time >= j.submit_time OR j.submit_time IS NULL)
                                  AND p.start_time IS DISTINCT FROM s.time THEN p.start_time END AS start_time),
           j.submit_time, e.time AS lost_end
    FROM placements p LEFT JOIN jobs j USING (job_id)
    LEFT JOIN (FROM lost WHERE name = 'start_time') s ON s.job_id = p.job_id AND s.attempt = p.attempt
    LEFT JOIN (FROM lost WHERE name = 'end_time') e ON e.job_id = p.job_id AND e.attempt = p.attempt)
SELECT * REPLACE (CASE WHEN end_time >= coalesce(greatest(start_time, submit_time), end_time)
                            AND end_time IS DISTINCT FROM lost_end THEN end_time END AS end_time)
FROM started ORDER BY row"""

_LIST = """
SELECT * EXCLUDE (place) FROM (
    SELECT *, row_number() OVER () AS place FROM ({listed})
    UNION ALL BY NAME
    SELECT job_id, attempt, name AS "column", strftime(time, '%Y-%m-%d %H:%M:%S') AS value,
           CASE name WHEN 'eligible_time' THEN 'is before the submission or after the start of its job'
                     ELSE 'is before an earlier time of its job' END AS reason FROM lost)
ORDER BY place NULLS LAST, job_id, attempt, "column" ASC"""


def order_table_times(sink: Sink) -> None:
    """Set a time to NULL if it is before an earlier time of its job, and count and list these times.

    The tables of `sink` must be complete. They are rewritten only if they contain these times.
    """
    have = [table for table in _TABLES if sink.has(table)]
    if "jobs" not in have:
        return
    sink.progress.stage("checking the order of times")
    with sink.connect() as con:
        for table in _TABLES:
            rows = f"SELECT * RENAME (file_row_number AS row) FROM {sink.rows(table)}"
            nothing = f"SELECT *, 0::BIGINT AS row FROM ({no_rows(table)})"
            con.execute(f"CREATE VIEW {table} AS {rows if table in have else nothing}")
        con.execute(_SUSPECT_JOBS.format(rows=_contradictory_rows(con, have)))
        if not con.execute("SELECT count(*) FROM suspect").fetchall()[0][0]:
            return
        con.execute(_LOST)
        con.execute(_ENDS)
        con.execute(_HELD)
        _count(con, sink)
        queries = {"jobs": _JOBS, "attempts": _ATTEMPTS, "placements": _PLACEMENTS}
        written = {table: queries[table] for table in have}
        if con.execute("SELECT count(*) FROM lost").fetchall()[0][0]:
            listed = f"FROM {sink.rows('doubtful_times')}" if sink.has("doubtful_times") else no_rows("doubtful_times")
            written["doubtful_times"] = _LIST.format(listed=listed)
        # Read everything before any table is replaced.
        fresh = {table: sink.writer.scratch / f"ordered-{table}.parquet" for table in written}
        for table, query in written.items():
            sink.writer.copy(table, con, query, fresh[table])
    for table, path in fresh.items():
        path.replace(sink.path(table))


def _contradictory_rows(con: duckdb.DuckDBPyConnection, tables: list[str]) -> str:
    """Return the query for jobs that have rows with contradictory times.

    Most tables have no contradictory rows, and this check does not need the ids of all jobs.
    """
    found = [
        table for table in tables if con.execute(f"SELECT 1 FROM {table} WHERE {_SUSPECT[table]} LIMIT 1").fetchall()
    ]
    rows = " UNION ALL ".join(f"SELECT job_id FROM {table} WHERE {_SUSPECT[table]}" for table in found)
    return rows or "SELECT NULL::VARCHAR AS job_id WHERE false"


def _count(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    for check, name in (
        ("ends_before_start", "end_time"),
        ("starts_before_queued", "start_time"),
        ("eligible_out_of_order", "eligible_time"),
    ):
        count, examples = con.execute(
            f"""SELECT count(*), min(job_id || coalesce(' attempt ' || attempt, ''), 5)
            FROM lost WHERE name = '{name}'"""
        ).fetchall()[0]
        sink.check(check, count, 0, CHECKS[check], examples)
