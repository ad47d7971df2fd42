"""Build jobs from logs with several records per job, such as queued, started, ended and run again.

A reader turns each record into a row of RECORD. Rows with a start belong to the run that began at that time. If a run
has several rows, each column's latest value is used. Rows without a start describe only the job. `combine_records`
combines the rows into the tables below, and `write_job_tables` writes them as common tables:

    fact    one row per job, with the columns of `jobs` and `last_end`
    run     one row per run: job_id, attempt, start_time, end_time, status, gpu_count, node_count
    place   one row per node of a run: job_id, attempt, task, instance, node_id, gpu_index, gpu_count, start_time,
            end_time
    usage   one row per run with measured use: job_id, task, instance, cpu_s, memory_gib
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.databases import sql_text
from tracekit.ingest.derived import machines_in, seconds_between
from tracekit.ingest.time_faults import TimeColumns, clipped_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import duckdb

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.time_faults import RecordTimes

Row = dict[str, Any]

FACTS = {
    **dict.fromkeys(("cluster", "vc", "user", "name", "group", "gpu_model"), pl.String()),
    **dict.fromkeys(("account", "partition", "qos", "wait_reason"), pl.String()),
    **dict.fromkeys(("gpu_count", "cpu_count", "memory_gib", "time_limit_s", "suspended_s"), pl.Float64()),
    **dict.fromkeys(("node_count", "instance_count", "priority"), pl.Int64()),
    "preemptible": pl.Boolean(),
}
"""Columns of `jobs` that a record may contain, in addition to times and statuses."""

_TIMES = ("submit", "eligible", "start", "end")
_PLACES = {
    "node": pl.List(pl.String()),
    "gpu_count": pl.List(pl.Float64()),
    "gpu_index": pl.List(pl.List(pl.Int64())),
}
"""Parallel lists with one entry per node of a run: `place_node` and so on."""

RECORD = {
    "line": pl.Int64(),
    "ord": pl.Int64(),
    "job_id": pl.String(),
    "told": pl.Float64(),
    **{f"{name}_s": pl.Float64() for name in _TIMES},
    "status": pl.String(),
    "source_status": pl.String(),
    "run_status": pl.String(),
    **FACTS,
    **{f"place_{name}": kind for name, kind in _PLACES.items()},
    "cpu_s": pl.Float64(),
    "memory_used_gib": pl.Float64(),
    "closes": pl.Boolean(),
    "deleted": pl.Boolean(),
}
"""Columns of a row. Times are in s since 1970, UTC. `told` [s] orders the rows. `closes` means that the last run that
began before `end_s` (or the job, if it has no run) ended at `end_s`. `deleted` means that somebody requested the end of
the job at `end_s`.
"""

TIMES = TimeColumns({f"{name}_time": f"{name}_time" for name in ("submit", "start", "end")})
"""Times that must be in ascending order."""

_ALL = TimeColumns({f"{name}_time": f"{name}_time" for name in _TIMES})


def record_frame(rows: Iterable[Row], times: RecordTimes, wall: tuple[str, str] | None = None) -> pl.DataFrame:
    """Return rows as a frame to stage, with impossible times set to NULL. Keys missing from a row are unknown.

    Parameters
    ----------
    rows : iterable of Row
        The records of one file.
    times : RecordTimes
        The time checks of that file.
    wall : (str, str), optional
        The zone and the rule for the repeated hour, if the times are wall-clock times.
    """
    frame = pl.DataFrame(list(rows), schema=RECORD)
    frame = frame.with_columns(clipped_seconds(pl.col(f"{name}_s")).alias(f"{name}_time") for name in _TIMES)
    frame = times.dated(frame, _ALL)
    if wall is not None:
        frame = times.from_wall_clock(frame, _ALL, *wall)
    frame = times.ordered(frame, TIMES)
    frame = times.eligible(frame, TIMES, "eligible_time", frame["start_time"])
    return frame.drop(*(f"{name}_s" for name in _TIMES), "began", "finished", "line")


def _latest(names: Iterable[str], order: str = "o") -> str:
    return ", ".join(f'arg_max("{name}", {order}) AS "{name}"' for name in names)


_OF_A_RUN = ("end_time", "run_status", "gpu_count", "gpu_model", "node_count", *(f"place_{name}" for name in _PLACES))

_RUNS = f"""
CREATE TABLE begun AS
SELECT job_id, start_time, {_latest(_OF_A_RUN)}, {_latest(("cpu_s", "memory_used_gib"))}
FROM record WHERE start_time IS NOT NULL GROUP BY job_id, start_time"""

_CLOSED = """
CREATE TABLE run AS
WITH closing AS (
    SELECT r.job_id, b.start_time, min(r.end_time) AS end_time, arg_min(r.run_status, r.end_time) AS run_status
    FROM (SELECT * FROM record WHERE closes AND start_time IS NULL AND end_time IS NOT NULL) r
    ASOF JOIN begun b ON r.job_id = b.job_id AND r.end_time >= b.start_time
    GROUP BY r.job_id, b.start_time)
SELECT b.* REPLACE (
           coalesce(b.end_time, c.end_time) AS end_time,
           CASE WHEN b.end_time IS NULL AND c.job_id IS NOT NULL THEN c.run_status ELSE b.run_status END AS run_status),
       row_number() OVER (PARTITION BY job_id ORDER BY start_time) - 1 AS attempt,
       lead(start_time) OVER (PARTITION BY job_id ORDER BY start_time) IS NULL AS latest
FROM begun b LEFT JOIN closing c USING (job_id, start_time)"""

_FACTS = f"""
CREATE TABLE fact AS
WITH told AS (
    SELECT job_id, min(submit_time) AS submit_time, min(eligible_time) AS eligible_time,
           {_latest(("status", "source_status", *FACTS))},
           max(end_time) FILTER (WHERE deleted) AS deleted_time, max(end_time) FILTER (WHERE closes) AS closed_time
    FROM record GROUP BY job_id),
ran AS (
    SELECT job_id, count(*) AS attempt_count, min(start_time) AS start_time, max(start_time) AS last_start,
           arg_max(end_time, start_time) FILTER (WHERE latest) AS run_end,
           arg_min(gpu_count, start_time) AS first_gpus, arg_min(node_count, start_time) AS first_nodes
    FROM run GROUP BY job_id),
ended AS (
    SELECT t.* EXCLUDE (gpu_count, node_count, status), r.* EXCLUDE (job_id, first_gpus, first_nodes, attempt_count),
           coalesce(r.attempt_count, 0) AS attempt_count, coalesce(r.first_gpus, t.gpu_count) AS gpu_count,
           coalesce(r.first_nodes, t.node_count) AS node_count,
           CASE WHEN deleted_time IS NULL OR t.status = 'completed' THEN t.status
                WHEN r.job_id IS NULL OR (deleted_time >= last_start AND run_end IS NOT NULL) THEN 'cancelled'
                ELSE t.status END AS status
    FROM told t LEFT JOIN ran r USING (job_id))
SELECT *, CASE WHEN status IN ('running', 'pending') THEN NULL
               WHEN attempt_count > 0 THEN run_end ELSE coalesce(deleted_time, closed_time) END AS last_end
FROM ended"""

# If a run's end was never recorded and another run began, we do not know when it released its nodes.
_PLACED = """
CREATE TABLE place AS
SELECT job_id, attempt, NULL::VARCHAR AS task, NULL::VARCHAR AS instance, unnest(place_node) AS node_id,
       unnest(place_gpu_index) AS gpu_index, unnest(place_gpu_count) AS gpu_count, start_time, end_time
FROM run WHERE place_node IS NOT NULL AND (end_time IS NOT NULL OR latest)"""


def combine_records(con: duckdb.DuckDBPyConnection, staged: Path, sink: Sink, only: str = "true") -> None:
    """Build the fact, run, place and usage tables from the staged rows that satisfy the SQL condition `only`."""
    con.execute(
        f"CREATE VIEW record AS SELECT *, row(coalesce(told, 0), ord) AS o FROM read_parquet({sql_text(staged)}) "
        f"WHERE {only}"
    )
    for statement in (_RUNS, _CLOSED, _FACTS, _PLACED):
        con.execute(statement)
    con.execute(
        """CREATE TABLE final_status AS SELECT r.job_id, r.attempt,
            CASE WHEN r.latest AND r.end_time IS NOT NULL AND f.status = 'cancelled' THEN 'cancelled'
                 ELSE r.run_status END AS status
        FROM run r JOIN fact f USING (job_id)"""
    )
    con.execute("ALTER TABLE run ADD COLUMN status VARCHAR")
    con.execute(
        "UPDATE run SET status = s.status FROM final_status s WHERE run.job_id = s.job_id AND run.attempt = s.attempt"
    )
    con.execute(
        """CREATE TABLE usage AS SELECT job_id, NULL::VARCHAR AS task, NULL::VARCHAR AS instance, cpu_s,
            memory_used_gib AS memory_gib
        FROM run WHERE cpu_s IS NOT NULL OR memory_used_gib IS NOT NULL"""
    )
    open_runs, runs = con.execute(
        "SELECT count(*) FILTER (WHERE end_time IS NULL AND NOT latest), count(*) FROM run"
    ).fetchall()[0]
    sink.check(
        "runs_without_end",
        int(open_runs),
        int(runs),
        "runs without a recorded end, followed by another run of the same job; their end and nodes are unknown",
        [row[0] for row in con.execute(
            "SELECT job_id FROM run WHERE end_time IS NULL AND NOT latest ORDER BY job_id LIMIT 5"
        ).fetchall()],
    )  # fmt: skip


def write_job_tables(con: duckdb.DuckDBPyConnection, sink: Sink) -> int:
    """Write the common tables, and return the number of jobs with several attempts.

    Parameters
    ----------
    con : DuckDB connection
        Contains the fact, run, place and usage tables.
    sink : Sink
        Receives the tables.
    """
    sink.writer.copy(
        "jobs",
        con,
        f"""SELECT * EXCLUDE (last_end), last_end AS end_time,
            {seconds_between("submit_time", "start_time")} AS queue_s,
            {seconds_between("start_time", "last_end")} AS run_s
        FROM fact ORDER BY submit_time NULLS LAST, job_id""",
    )
    since = "CASE WHEN r.attempt = 0 THEN f.submit_time ELSE p.end_time END"
    if _one(con, "SELECT count(*) FROM run"):
        sink.writer.copy(
            "attempts",
            con,
            f"""SELECT r.job_id, r.attempt, r.start_time, r.end_time,
                {seconds_between("r.start_time", "r.end_time")} AS run_s,
                {seconds_between(since, "r.start_time")} AS wait_s, r.gpu_count, r.node_count, r.status
            FROM run r JOIN fact f USING (job_id)
            LEFT JOIN run p ON p.job_id = r.job_id AND p.attempt = r.attempt - 1
            ORDER BY f.submit_time NULLS LAST, r.job_id, r.attempt""",
        )
    if _one(con, "SELECT count(*) FROM place"):
        _write_places(con, sink)
    if _one(con, "SELECT count(*) FROM usage"):
        sink.writer.copy(
            "job_usage",
            con,
            """SELECT u.* FROM usage u JOIN fact f USING (job_id)
            ORDER BY f.submit_time NULLS LAST, u.job_id, u.task NULLS FIRST, u.instance NULLS FIRST""",
        )
    return _one(con, "SELECT count(*) FROM fact WHERE attempt_count > 1")


def _one(con: duckdb.DuckDBPyConnection, query: str) -> int:
    return int(con.execute(query).fetchall()[0][0])


def _write_places(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Write the placements of each attempt, and the machines named in them."""
    joined = "place p JOIN fact f USING (job_id)"
    # Machines of different clusters may have the same name.
    several = _one(con, f"SELECT count(DISTINCT f.cluster) FROM {joined}") > 1
    name = "coalesce(f.cluster || '/', '') || p.node_id" if several else "p.node_id"
    con.execute(
        f"""CREATE TABLE placed AS
        SELECT p.* REPLACE ({name} AS node_id), f.cluster, f.gpu_model, f.submit_time FROM {joined}"""
    )
    sink.writer.copy(
        "placements",
        con,
        """SELECT * EXCLUDE (cluster, gpu_model, submit_time) FROM placed
        ORDER BY submit_time NULLS LAST, job_id, attempt, task NULLS FIRST, instance NULLS FIRST, node_id""",
    )
    sink.writer.copy("nodes", con, machines_in("placed", "start_time", "end_time"))
