"""The jobs of a log as waits: from when each waited, until when, and how that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.notes import Note
from tracekit.text import counted

if TYPE_CHECKING:
    import duckdb

LIMITS_S = (3600, 14400, 86400)
"""Time limits up to which jobs are alike: backfilling favours short ones [s]."""


def limit_class(seconds: str) -> str:
    """Return SQL that gives the class of a time limit: 0 the shortest; NULL where there is none."""
    cases = " ".join(f"WHEN {seconds} <= {limit} THEN {i}" for i, limit in enumerate(LIMITS_S))
    return f"CASE {cases} WHEN {seconds} IS NOT NULL THEN {len(LIMITS_S)} END"


def log_end_us(con: duckdb.DuckDBPyConnection) -> int | None:
    """Return the latest time of any job, up to which the log knows what happened [us]; None without times."""
    sql = "SELECT greatest(epoch_us(max(submit_time)), epoch_us(max(start_time)), epoch_us(max(end_time))) FROM jobs"
    end: int | None = con.execute(sql).fetchall()[0][0]
    return end


def waiting_jobs(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[Note]]:
    """Return one row a job whose wait is known, or known to be at least so long, in the order of its beginning.

    Returns
    -------
    polars.DataFrame
        job_id, gpu_class, class_order; what it asked for: cluster, place (partition, or VC where there is none),
        gpu_model, qos, gpu_count, limit_class, account; since and until [us]: the wait, which ended with a start where
        `started`, and else by leaving the queue, or with the log.
    list of Note
        What was left out.
    """
    end = log_end_us(con)
    columns = (
        f"job_id, gpu_class, class_order, cluster, coalesce(partition, vc) AS place, gpu_model, qos, gpu_count,"
        f" {limit_class('time_limit_s')} AS limit_class, account"
    )
    # A job that was submitted at the log's last moment has waited for no time yet.
    frame = pl.DataFrame(
        con.sql(
            f"""SELECT {columns}, epoch_us(coalesce(eligible_time, submit_time)) AS since,
                   epoch_us(coalesce(start_time, end_time)) AS left_at, start_time IS NOT NULL AS started,
                   status = 'pending' AS waiting
            FROM job_classes ORDER BY since, job_id"""
        )
    )
    known = pl.col("since").is_not_null() & (pl.col("left_at").is_not_null() | pl.col("waiting").fill_null(False))
    kept = frame.filter(known)
    until = pl.when(pl.col("left_at").is_null()).then(pl.max_horizontal(pl.lit(end), "since")).otherwise("left_at")
    lost = frame.height - kept.height
    notes = [Note("beginning unknown", facts=(counted(lost, "jobs"),))] if lost else []
    kept = kept.with_columns(until.alias("until")).drop("left_at", "waiting")
    return kept.with_columns(pl.max_horizontal("since", "until").alias("until")), notes
