"""Decide for jobs in both an earlier and a newer export which of the two records is used.

The functions work on a DuckDB connection with the views old_<table>, new_<table> and both_<table> of the tables in
JOB_TABLES; `row` is a row's position in its file, `side` is 0 for old and 1 for new. A rule for jobs (`replace_jobs` or
a format's own rule) creates these tables

    identity        side, job_id, final_id: the jobs that are on both sides, and the job_id that they get
    outcome         final_id, old, new, newer: which sides have it, and whether the newer record is used
                    reopened: whether a job that had ended runs or waits again
    merged_<table>  the rows of these jobs in the common columns, with `seq`, their order within the table

and leaves jobs that are on only one side alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

JOB_TABLES = ("jobs", "attempts", "placements", "job_usage", "failures")
"""The common tables whose rows belong to a job."""

# State of a record: 0 waiting, 1 running, 2 ended. A job that is waiting again after its runs ended counts as ended.
_LEVEL = """CASE WHEN NOT open OR (m.start_time IS NOT NULL AND count(r.attempt) > 0
                                   AND count(r.attempt) = count(r.end_time)) THEN 2
                 WHEN m.start_time IS NOT NULL THEN 1 ELSE 0 END"""


def pair_jobs(con: duckdb.DuckDBPyConnection, base: str = "job_id") -> None:
    """Create the tables member, run and snapshot: jobs whose `base` (an SQL expression over jobs) is on both sides."""
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
    """Use the newer record of each job as a whole, together with all rows that belong to it.

    The older record is used only if the newer one shows an earlier state of the job (waiting, running, ended) and has
    no later start or submission.
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
