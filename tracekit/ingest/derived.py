"""Rows that a source does not state but that follow from what it states."""

from __future__ import annotations

import polars as pl

__all__ = ["single_attempts"]


def single_attempts(started: pl.DataFrame) -> pl.DataFrame:
    """Return one attempt for each job, for sources that do not record attempts.

    Parameters
    ----------
    started : polars.DataFrame
        Rows of jobs that got resources: job_id, start_time, end_time, run_s, queue_s, gpu_count, status, and
        node_count where it is known.

    Returns
    -------
    polars.DataFrame
        Rows of attempts, in the same order; the attempt's wait is the job's queueing.
    """
    nodes = ["node_count"] if "node_count" in started.columns else []
    return started.select(
        "job_id",
        pl.lit(0, dtype=pl.Int64).alias("attempt"),
        "start_time",
        "end_time",
        "run_s",
        pl.col("queue_s").alias("wait_s"),
        "gpu_count",
        *nodes,
        "status",
    )
