"""Decide which record counts if a job is in both an earlier and a newer export.

The functions work on a DuckDB connection with the views old_<table>, new_<table> and both_<table> of the tables in
JOB_TABLES. `row` is a row's position in its file, and `side` is 0 for old and 1 for new. A rule for jobs
(`replace_jobs`, `merge_runs`, `merge_records` or a format's own rule) creates these tables

    identity        side, job_id, final_id: the jobs that are on both sides, and their new job_id
    outcome         final_id, old, new, newer: which sides have it, and whether the newer record is used
                    reopened: whether a job that had ended runs or waits again
    merged_<table>  the rows of these jobs in the common columns, with `seq`, their order within the table

and leaves jobs that are on only one side unchanged.

`sacct` lists only the runs inside its time window, so a daily export has only the newest runs of a requeued job. The
files of other schedulers contain one day's records. `merge_runs` therefore combines the runs of both exports by the
same rules as when several exports are read at once. If both have the same run, the record with an end counts, or the
newer one if both or neither have an end. If an earlier job with the same id ended more than REUSED_AFTER before, the id
belongs to another job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit import schema

if TYPE_CHECKING:
    import duckdb

JOB_TABLES = ("jobs", "attempts", "placements", "job_usage", "failures")
"""The common tables whose rows belong to a job."""

# State of a record: 0 waiting, 1 running, 2 ended. A job that waits again after its runs ended counts as ended.
_LEVEL = """CASE WHEN NOT open OR (m.start_time IS NOT NULL AND count(r.attempt) > 0
                                   AND count(r.attempt) = count(r.end_time)) THEN 2
                 WHEN m.start_time IS NOT NULL THEN 1 ELSE 0 END"""


def pair_jobs(con: duckdb.DuckDBPyConnection, base: str = "job_id") -> None:
    """Create the tables member, run and snapshot for jobs whose `base`, an SQL expression, is on both sides."""
    con.execute(
        f"""CREATE TABLE again AS
        SELECT base FROM (SELECT DISTINCT {base} AS base FROM new_jobs)
        SEMI JOIN (SELECT {base} AS base FROM old_jobs) USING (base)"""
    )
    con.execute(
        f"""CREATE TABLE member AS
        SELECT *, end_time IS NULL AND coalesce(status IN ('running', 'pending', 'unknown'), true) AS open
        FROM (SELECT {base} AS base, * FROM both_jobs) SEMI JOIN again USING (base)"""
    )
    con.execute(
        """CREATE TABLE run AS
        SELECT m.base, a.* FROM both_attempts a JOIN (SELECT side, job_id, base FROM member) m USING (side, job_id)"""
    )
    con.execute(
        f"""CREATE TABLE snapshot AS
        SELECT m.side, m.job_id, m.base, m.row, m.open,
               coalesce(max(r.start_time), m.start_time, m.submit_time) AS moment,
               coalesce(arg_max(r.end_time IS NOT NULL, r.start_time), false) AS last_ended,
               {_LEVEL} AS level
        FROM member m LEFT JOIN run r USING (side, job_id)
        GROUP BY m.side, m.job_id, m.base, m.row, m.open, m.start_time, m.submit_time"""
    )


def replace_jobs(con: duckdb.DuckDBPyConnection) -> None:
    """Use each job's newer record as a whole, with all its rows.

    The older record counts only if the newer one shows an earlier state of the job (waiting, running, ended) and no
    later start or submission.
    """
    pair_jobs(con)
    con.execute(
        """CREATE TABLE outcome AS
        SELECT o.job_id AS final_id, true AS old, true AS new,
               n.level >= o.level OR coalesce(n.moment > o.moment, false) AS newer,
               newer AND n.open AND NOT o.open AS reopened
        FROM snapshot o JOIN snapshot n ON o.job_id = n.job_id AND o.side = 0 AND n.side = 1"""
    )
    con.execute("CREATE TABLE identity AS SELECT side, job_id, job_id AS final_id FROM member")
    for table in JOB_TABLES:
        con.execute(
            f"""CREATE TABLE merged_{table} AS
            SELECT t.*, t.row AS seq FROM both_{table} t
            JOIN outcome o ON t.job_id = o.final_id AND t.side = o.newer::INTEGER"""
        )


# Combine the runs of both exports.

REUSED_AFTER = "1 day"
"""A Slurm job is a new job if every earlier job with its id ended more than this before its submission.

A requeue is submitted within a few minutes of the end of the previous run. Ids wrap around after 67 million jobs.
"""
SUFFIX = "CASE WHEN generation > 0 THEN '#' || (generation + 1) ELSE '' END"
"""SQL for the id suffix of a job whose number was used before."""


def generations(rows: str, key: str, order: str, begun: str, done: str) -> str:
    """Return SQL that adds `generation` to rows: how many other jobs had this job number before.

    Parameters
    ----------
    rows, key, order : str
        A relation, the columns with a job's number, and the order of the rows with the same number.
    begun, done : str
        The submission of a row's job, and its end, which is 'infinity' if the job has not ended.
    """
    return f"""
    SELECT *, count(*) FILTER (WHERE isfinite(over_since) AND {begun} > over_since + INTERVAL '{REUSED_AFTER}') OVER (
        PARTITION BY {key} ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS generation
    FROM (
        SELECT *, max({done}) OVER (
            PARTITION BY {key} ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS over_since
        FROM {rows})"""


_LATER = "moment DESC NULLS LAST, last_ended DESC, level DESC, side DESC"
"""Order of one job's records, with the latest state first."""

# Records with the same submission or the same start are the same job. The later record shows the job's end.
_LIFE = f"""
CREATE TABLE life AS
WITH span AS (
    SELECT m.side, m.job_id, m.base, coalesce(m.submit_time, m.start_time) AS submit,
           CASE WHEN count(r.attempt) > count(r.end_time) OR (m.open AND count(r.attempt) = 0) THEN 'infinity'
                ELSE coalesce(greatest(max(r.end_time), m.end_time), 'infinity') END::TIMESTAMP AS done
    FROM member m LEFT JOIN run r USING (side, job_id)
    GROUP BY m.side, m.job_id, m.base, m.submit_time, m.start_time, m.end_time, m.open),
link AS (
    SELECT o.job_id AS old_id, n.job_id AS new_id FROM member o JOIN member n
    ON o.base = n.base AND o.side = 0 AND n.side = 1 AND o.submit_time = n.submit_time
    UNION
    SELECT o.job_id, n.job_id FROM run o JOIN run n
    ON o.base = n.base AND o.side = 0 AND n.side = 1 AND o.start_time = n.start_time),
pair AS (
    SELECT old_id, new_id, 0 AS side, old_id AS job_id FROM link
    UNION ALL SELECT old_id, new_id, 1, new_id FROM link),
settled AS (
    SELECT p.old_id, p.new_id, s.done FROM pair p JOIN snapshot t USING (side, job_id) JOIN span s USING (side, job_id)
    QUALIFY row_number() OVER (PARTITION BY p.old_id, p.new_id ORDER BY {_LATER}) = 1)
SELECT s.side, s.job_id, s.base, s.submit, coalesce(max(l.done), s.done) AS done
FROM span s LEFT JOIN (pair JOIN settled l USING (old_id, new_id)) ON s.side = pair.side AND s.job_id = pair.job_id
GROUP BY s.side, s.job_id, s.base, s.submit, s.done"""

_HOME = f"""
CREATE TABLE identity AS
SELECT side, job_id, base || {SUFFIX} AS final_id
FROM ({generations("life", "base", "submit NULLS LAST, done, side, job_id", "submit", "done")})"""

_LATEST = f"""
CREATE TABLE latest AS
SELECT final_id, side, job_id, open FROM snapshot JOIN identity USING (side, job_id)
QUALIFY row_number() OVER (PARTITION BY final_id ORDER BY {_LATER}, row DESC) = 1"""

_OUTCOME = """
CREATE TABLE outcome AS
SELECT h.final_id, bool_or(h.side = 0) AS old, bool_or(h.side = 1) AS new, any_value(l.side) = 1 AS newer,
       coalesce(newer AND any_value(l.open) AND NOT bool_or(t.open) FILTER (WHERE h.side = 0), false) AS reopened
FROM identity h JOIN snapshot t USING (side, job_id) JOIN latest l ON h.final_id = l.final_id GROUP BY h.final_id"""

_KEPT = """
CREATE TABLE kept AS
SELECT *, row_number() OVER (PARTITION BY final_id ORDER BY start_time NULLS LAST, side, attempt) - 1 AS number
FROM (
    SELECT h.final_id, r.* FROM run r JOIN identity h USING (side, job_id)
    QUALIFY row_number() OVER (
        PARTITION BY h.final_id, r.start_time, CASE WHEN r.start_time IS NULL THEN r.attempt END
        ORDER BY (r.end_time IS NULL), r.side DESC, r.job_id DESC) = 1)"""

# A job's request comes from its first run, its status from its latest record, and its eligible time from the record of
# its first submission. Its suspended time is known if one record has all its runs or none was suspended.
_JOBS = """
CREATE TABLE merged_jobs AS
WITH whole AS (
    SELECT h.final_id, min(m.submit_time) AS submit, min({origin}) AS origin
    FROM identity h JOIN member m USING (side, job_id) GROUP BY h.final_id),
held AS (
    SELECT h.final_id, m.eligible_time FROM identity h JOIN member m USING (side, job_id)
    JOIN snapshot USING (side, job_id)
    QUALIFY row_number() OVER (PARTITION BY h.final_id ORDER BY m.submit_time NULLS LAST, {later}) = 1),
runs AS (
    SELECT final_id, count(*) AS attempts, arg_max_null(end_time, number) AS last_end,
           count(DISTINCT (side, job_id)) AS records FROM kept GROUP BY final_id),
paused AS (
    SELECT h.final_id, max(m.suspended_s) = 0 AND count(*) = count(m.suspended_s) AS never
    FROM identity h JOIN member m USING (side, job_id) GROUP BY h.final_id),
source AS (
    SELECT l.final_id, coalesce(k.side, l.side) AS side, coalesce(k.job_id, l.job_id) AS job_id,
           k.start_time AS first_start
    FROM latest l LEFT JOIN kept k ON k.final_id = l.final_id AND k.number = 0),
stated AS (
    SELECT s.final_id, s.side, s.job_id, s.first_start, w.submit, w.origin, h.eligible_time,
           coalesce(r.attempts, 0) AS attempts, m.status, m.source_status, p.never, coalesce(r.records, 1) AS records,
           CASE WHEN m.status IN ('running', 'pending') THEN NULL
                WHEN r.attempts > 0 THEN r.last_end ELSE m.end_time END AS ended
    FROM source s JOIN whole w USING (final_id) JOIN held h USING (final_id) JOIN paused p USING (final_id)
    JOIN latest l USING (final_id)
    JOIN member m ON m.side = l.side AND m.job_id = l.job_id LEFT JOIN runs r USING (final_id))
SELECT f.* REPLACE (
           s.final_id AS job_id, s.status AS status, s.source_status AS source_status, s.submit AS submit_time,
           s.first_start AS start_time, s.ended AS end_time, s.eligible_time AS eligible_time,
           s.attempts AS attempt_count,
           CASE WHEN s.never THEN 0 WHEN s.records = 1 THEN f.suspended_s END AS suspended_s,
           (epoch_us(s.first_start) - epoch_us(s.origin)) / 1e6 AS queue_s,
           (epoch_us(s.ended) - epoch_us(s.first_start)) / 1e6 AS run_s),
       s.origin AS origin, row_number() OVER (ORDER BY s.submit NULLS LAST, s.final_id) AS seq
FROM stated s JOIN member f ON f.side = s.side AND f.job_id = s.job_id"""

_ORIGIN = {
    "submit": "m.submit_time",
    "eligible": "m.start_time - to_microseconds(round(m.queue_s * 1e6)::BIGINT)",
}
"""SQL for the time at which a record's wait began, for each value of the queue_from option."""

_ATTEMPTS = """
CREATE TABLE merged_attempts AS
SELECT k.* REPLACE (
           k.final_id AS job_id, k.number AS attempt,
           (epoch_us(k.start_time) - epoch_us(CASE WHEN k.number = 0 THEN j.origin ELSE p.end_time END)) / 1e6
               AS wait_s),
       row_number() OVER (ORDER BY k.final_id, k.number) AS seq
FROM kept k JOIN merged_jobs j ON j.job_id = k.final_id
LEFT JOIN kept p ON p.final_id = k.final_id AND p.number = k.number - 1"""

_OF_A_RUN = """
CREATE TABLE merged_{table} AS
SELECT t.* REPLACE (k.final_id AS job_id, k.number AS attempt),
       row_number() OVER (ORDER BY k.final_id, k.number, t.row) AS seq
FROM both_{table} t JOIN kept k ON t.side = k.side AND t.job_id = k.job_id AND t.attempt = k.attempt"""

# Measured use does not name its run, so we use the latest record's rows. From the other record, we drop the newest rows
# of the same step, one for each run that is in both records.
_USAGE = """
CREATE TABLE merged_job_usage AS
WITH shared AS (
    SELECT h.final_id, l.side AS front, coalesce(any_value(r.runs), 0) AS runs, coalesce(any_value(r.behind), 0)
               AS behind
    FROM identity h JOIN latest l ON h.final_id = l.final_id
    LEFT JOIN (
        SELECT final_id, count(*) FILTER (WHERE sides = 2) AS runs,
               count(*) FILTER (WHERE sides = 2 OR lone <> front) AS behind
        FROM (
            SELECT h.final_id, l.side AS front, count(DISTINCT r.side) AS sides, min(r.side) AS lone
            FROM run r JOIN identity h USING (side, job_id) JOIN latest l ON l.final_id = h.final_id
            GROUP BY h.final_id, l.side, r.start_time)
        GROUP BY final_id) r ON r.final_id = h.final_id
    GROUP BY h.final_id, l.side),
used AS (
    SELECT h.final_id, s.front, s.runs, s.behind, u.*,
           count(*) FILTER (WHERE u.side = s.front) OVER step AS own_rows,
           row_number() OVER (
               PARTITION BY h.final_id, u.task, u.instance, u.side ORDER BY u.job_id DESC, u.row DESC) AS newest
    FROM both_job_usage u JOIN identity h USING (side, job_id) JOIN shared s ON s.final_id = h.final_id
    WINDOW step AS (PARTITION BY h.final_id, u.task, u.instance))
SELECT * EXCLUDE (final_id, front, runs, behind, own_rows, newest) REPLACE (final_id AS job_id),
       row_number() OVER (ORDER BY final_id, task NULLS FIRST, side = front, row) AS seq
FROM used WHERE side = front OR own_rows = 0 OR (runs < behind AND newest > least(own_rows, runs))"""


# A waiting array's task has no separate number before it starts, and Traces of earlier versions have one row for all
# tasks. If the newer export lists the array, tasks that it does not list as waiting have their own numbers there. The
# same is true of federated jobs, whose numbers begin at 2^26, once another cluster has started them.
_SUPERSEDED = r"""
INSERT INTO identity
SELECT 0, o.job_id, o.job_id FROM old_jobs o ANTI JOIN identity i ON i.side = 0 AND i.job_id = o.job_id
WHERE o.status = 'pending' AND o.start_time IS NULL AND (
    ((regexp_matches(o.job_id, '_[0-9]+(#[0-9]+)?$') OR o.instance_count > 1) AND EXISTS (
        SELECT 1 FROM new_jobs n WHERE n.cluster = o.cluster AND n."group" = o."group"
        AND n.submit_time >= o.submit_time))
    OR (try_cast(regexp_extract(o.job_id, '/([0-9]+)$', 1) AS BIGINT) >= 67108864 AND EXISTS (
        SELECT 1 FROM new_jobs n WHERE n.cluster <> o.cluster AND n.start_time IS NOT NULL
        AND regexp_extract(n.job_id, '/([0-9]+)$', 1) = regexp_extract(o.job_id, '/([0-9]+)$', 1))))"""


def merge_runs(con: duckdb.DuckDBPyConnection, queue_from: str = "submit") -> None:
    """Combine the runs of jobs in both exports. The module docstring lists the resulting tables.

    `queue_from` is the time from which a wait is counted, 'submit' or 'eligible'.
    """
    pair_jobs(con, "regexp_replace(job_id, '#[0-9]+$', '')")
    jobs = _JOBS.format(origin=_ORIGIN[queue_from], later=_LATER)
    of_runs = (_OF_A_RUN.format(table=table) for table in ("placements", "failures"))
    for statement in (_LIFE, _HOME, _LATEST, _OUTCOME, _KEPT, jobs, _ATTEMPTS, *of_runs, _USAGE, _SUPERSEDED):
        con.execute(statement)


# Columns that show how far a job has progressed, which are never filled from the other export.
_OWN = ("job_id", "status", "source_status", "start_time", "end_time", "queue_s", "run_s", "attempt_count")


def merge_records(con: duckdb.DuckDBPyConnection) -> None:
    """Combine the jobs in both exports like `merge_runs`, for formats whose later records may be incomplete.

    Torque's D record has only the job's name, so values missing in the newer export are filled in from the Trace.
    """
    filled = ", ".join(
        f'coalesce(n."{c.name}", o."{c.name}") AS "{c.name}"'
        for c in schema.common("jobs").columns
        if c.name not in _OWN
    )
    con.execute(
        f"""CREATE OR REPLACE VIEW both_jobs AS
        SELECT * FROM old_jobs
        UNION ALL BY NAME SELECT n.* REPLACE ({filled}) FROM new_jobs n LEFT JOIN old_jobs o ON n.job_id = o.job_id"""
    )
    merge_runs(con)
