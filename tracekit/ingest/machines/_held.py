"""Which GPUs of a machine each part of an attempt held, by samples of running jobs.

`sacct` says how many GPUs a run held in all and on which nodes, so an even split is a guess. A sample says what the run
held on each node: it fills the GPUs of a placement, or corrects them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.databases import sql_text
from tracekit.ingest.checks import SqlCheck, run_checks

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink

__all__ = ["complete_placements"]

_SHORT = r"""CASE WHEN regexp_matches(split_part(regexp_extract({0}, '[^/]*$'), '.', 1), '[A-Za-z]')
     THEN split_part(regexp_extract({0}, '[^/]*$'), '.', 1) ELSE regexp_extract({0}, '[^/]*$') END"""
"""A machine's name without its cluster and its domain."""

_STEPS = (
    f"""CREATE TABLE sample AS
    SELECT row_number() OVER () AS n, CASE WHEN array_job IS NULL THEN [job] ELSE [job, array_job] END AS names, task,
           {_SHORT.format("host")} AS short, gpu_count, gpu_index, time
    FROM (SELECT DISTINCT * FROM held WHERE time IS NOT NULL)""",
    rf"""CREATE TABLE place AS
    SELECT row, job_id, regexp_extract(job_id, '^(?:.*/)?([^/#]+)(?:#\d+)?$', 1) AS name, task,
           {_SHORT.format("node_id")} AS short, start_time, end_time
    FROM placed WHERE instance IS NULL""",
    """CREATE TABLE sight AS
    SELECT s.n, s.gpu_count, s.gpu_index, s.time, p.row, p.job_id,
           count(DISTINCT p.job_id) OVER (PARTITION BY s.n) AS jobs
    FROM (SELECT *, unnest(names) AS name FROM sample) s
    JOIN place p ON s.name = p.name AND s.short = p.short AND s.task IS NOT DISTINCT FROM p.task
         AND p.start_time <= s.time AND (p.end_time >= s.time OR p.end_time IS NULL)
    QUALIFY row_number() OVER (
        PARTITION BY s.n, p.job_id
        ORDER BY (p.end_time IS NULL OR p.end_time > s.time) DESC, p.start_time DESC, p.row) = 1""",
    """CREATE TABLE seen AS
    SELECT row, arg_max(gpu_count, row(time, n)) AS gpu_count, arg_max_null(gpu_index, row(time, n)) AS gpu_index,
           count(DISTINCT gpu_count) > 1 AS changed
    FROM sight WHERE jobs = 1 GROUP BY row""",
)

_CHECKS = (
    SqlCheck(
        "samples_without_run",
        "samples of held GPUs whose job did not run on that machine then, by the log; they are left out",
        """SELECT DISTINCT names[1] || ' on ' || short FROM sample s ANTI JOIN sight g ON s.n = g.n""",
        "sample",
    ),
    SqlCheck(
        "samples_of_several_jobs",
        "samples of held GPUs that fit jobs of several clusters; they are left out",
        "SELECT DISTINCT job_id FROM sight WHERE jobs > 1",
        "sample",
    ),
    SqlCheck(
        "gpus_split_unevenly",
        "parts of runs that held other GPUs on a machine than an even split gives; what was seen is used",
        "SELECT p.job_id || ' on ' || p.node_id FROM seen s JOIN placed p USING (row) WHERE p.gpu_count <> s.gpu_count",
        "seen",
    ),
    SqlCheck(
        "held_gpus_changed",
        "parts of runs whose samples show several numbers of GPUs; the last is used",
        "SELECT p.job_id || ' on ' || p.node_id FROM seen s JOIN placed p USING (row) WHERE s.changed",
        "seen",
    ),
    SqlCheck(
        "held_gpus_differ",
        "runs seen on all of their machines whose GPUs there add up to another number than the log gives the run",
        """SELECT job_id || ': ' || sum(s.gpu_count) || ' seen, ' || any_value(a.gpu_count) || ' in the log'
        FROM placed p LEFT JOIN seen s USING (row) JOIN ran a USING (job_id, attempt)
        GROUP BY job_id, attempt
        HAVING count(*) = count(s.row) AND abs(sum(s.gpu_count) - any_value(a.gpu_count)) > 1e-6""",
        "(SELECT DISTINCT job_id, attempt FROM placed JOIN seen USING (row))",
    ),
)


def complete_placements(con: duckdb.DuckDBPyConnection, held: Path, sink: Sink) -> None:
    """Give placements the GPUs that samples show.

    Parameters
    ----------
    con : DuckDB connection
        Empty.
    held : Path
        Samples with the columns of HELD.
    """
    table, runs = (sink.folder / f"{name}.parquet" for name in ("placements", "attempts"))
    if not (table.is_file() and runs.is_file()):
        sink.note("samples of held GPUs are left out: the log does not say on which machines jobs ran")
        return
    con.execute(f"CREATE VIEW held AS SELECT * FROM read_parquet({sql_text(held)})")
    rows = f"read_parquet({sql_text(table)}, file_row_number = true)"
    con.execute(f"CREATE VIEW placed AS SELECT *, file_row_number AS row FROM {rows}")
    con.execute(f"CREATE VIEW ran AS SELECT * FROM read_parquet({sql_text(runs)})")
    for step in _STEPS:
        con.execute(step)
    run_checks(con, sink, _CHECKS)
    parts, filled = con.execute(
        "SELECT count(*), count(*) FILTER (WHERE p.gpu_count IS NULL) FROM seen s JOIN placed p USING (row)"
    ).fetchall()[0]
    sink.note(
        f"samples of running jobs show the GPUs of {parts} parts of runs on a machine, "
        f"{filled} of which had an unknown number"
    )
    if parts:
        fresh = sink.writer.scratch / "placements.parquet"
        sink.writer.copy(
            "placements",
            con,
            """SELECT p.* REPLACE (coalesce(s.gpu_count, p.gpu_count) AS gpu_count,
                                   coalesce(p.gpu_index, s.gpu_index) AS gpu_index)
            FROM placed p LEFT JOIN seen s USING (row) ORDER BY row""",
            fresh,
        )
        fresh.replace(table)
