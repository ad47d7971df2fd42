"""Write jobs, attempts, placements, nodes and measured use from the tables fact, run, place and usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.derived import most_held

if TYPE_CHECKING:
    import duckdb

    from tracekit.ingest.sink import Sink


def _seconds(later: str, earlier: str) -> str:
    return f"(epoch_us({later}) - epoch_us({earlier})) / 1e6"


def write_job_tables(con: duckdb.DuckDBPyConnection, sink: Sink) -> int:
    """Write the common tables; return the number of jobs with several attempts.

    Parameters
    ----------
    con : DuckDB connection
        With the tables of `tracekit.ingest.job_records`.
    sink : Sink
        Where they go.
    """
    sink.writer.copy(
        "jobs",
        con,
        f"""SELECT * EXCLUDE (last_end), last_end AS end_time, {_seconds("start_time", "submit_time")} AS queue_s,
            {_seconds("last_end", "start_time")} AS run_s
        FROM fact ORDER BY submit_time NULLS LAST, job_id""",
    )
    if _one(con, "SELECT count(*) FROM run"):
        sink.writer.copy(
            "attempts",
            con,
            f"""SELECT r.job_id, r.attempt, r.start_time, r.end_time, {_seconds("r.end_time", "r.start_time")} AS run_s,
                {_seconds("r.start_time", "CASE WHEN r.attempt = 0 THEN f.submit_time ELSE p.end_time END")} AS wait_s,
                r.gpu_count, r.node_count, r.status
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
    """Write where each attempt ran, and the machines that are named there."""
    joined = "place p JOIN fact f USING (job_id)"
    # Machines of two clusters may share their names.
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
    sink.writer.copy(
        "nodes",
        con,
        f"""SELECT p.node_id, p.cluster, h.gpu_count, p.gpu_model
        FROM (SELECT node_id, min(cluster) AS cluster,
                     CASE WHEN min(gpu_model) = max(gpu_model) AND NOT contains(min(gpu_model), '|')
                          THEN min(gpu_model) END AS gpu_model
              FROM placed GROUP BY node_id) p
        LEFT JOIN ({most_held("placed", "start_time", "end_time")}) h USING (node_id) ORDER BY p.node_id""",
    )
