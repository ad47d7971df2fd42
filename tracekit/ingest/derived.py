"""Columns and queries that several formats derive from their source data."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import polars as pl

if TYPE_CHECKING:
    from tracekit.ingest.sink import Sink

Spans = TypeVar("Spans", pl.Expr, pl.Series)


def single_attempts(started: pl.DataFrame) -> pl.DataFrame:
    """Derive one attempt per job, for sources that do not record attempts.

    Parameters
    ----------
    started : polars.DataFrame
        Rows of jobs that started: job_id, start_time, end_time, run_s, queue_s, gpu_count, status, and node_count if
        known.

    Returns
    -------
    polars.DataFrame
        Rows of attempts in the same order. An attempt's wait is its job's queue time.
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


def write_jobs(jobs: pl.DataFrame, sink: Sink) -> None:
    """Write jobs, and one attempt per job that got resources (`attempt_count`)."""
    sink.write("jobs", jobs)
    sink.write("attempts", single_attempts(jobs.filter(pl.col("attempt_count") > 0)))


def in_seconds(duration: Spans) -> Spans:
    """Return durations in seconds [s], exact to the microsecond."""
    return duration.dt.total_microseconds() / 1e6


def disagrees(stated: Spans, ours: Spans, unit: Spans | float = 1.0) -> Spans:
    """Return whether a recorded duration is off by a unit or more from the times in its record.

    Smaller differences are due to rounding.

    Parameters
    ----------
    stated, ours : polars.Expr or polars.Series
        The recorded and the computed duration [s] or GPU time [GPU*s]. If either is NULL, the result is NULL.
    unit : polars.Expr, polars.Series or float
        The unit of the recorded duration, 1 s by default and 60 s for minutes.
    """
    return (stated - ours).abs() >= unit


def most_held(placements: str, start: str, end: str) -> str:
    """Return a query for the most GPUs in use at once per machine, for sources without machine lists.

    Parameters
    ----------
    placements : str
        A relation with node_id, gpu_count [GPUs], and the two time columns below.
    start, end : str
        SQL names of the time columns. A row of unknown end is taken to continue. A row without a start, or with an end
        equal to its start, does not count.

    Returns
    -------
    str
        SQL that returns node_id and gpu_count, rounded up to whole GPUs.
    """
    return f"""WITH event AS (
        SELECT node_id, {start} AS time, gpu_count AS gpus FROM {placements}
        WHERE gpu_count > 0 AND {start} IS NOT NULL AND ({end} > {start} OR {end} IS NULL)
        UNION ALL
        SELECT node_id, {end}, -gpu_count FROM {placements} WHERE gpu_count > 0 AND {end} > {start}),
    step AS (SELECT node_id, time, sum(gpus) AS gpus FROM event GROUP BY node_id, time),
    running AS (SELECT node_id, sum(gpus) OVER (PARTITION BY node_id ORDER BY time) AS gpus FROM step)
    SELECT node_id, ceil(max(gpus) - 1e-6)::BIGINT AS gpu_count FROM running GROUP BY node_id"""


def machines_in(placements: str, start: str, end: str) -> str:
    """Return SQL for the rows of the nodes table, derived from placements, for sources without machine lists.

    `placements` is a relation with node_id, cluster, gpu_count [GPUs], gpu_model, and times in `start` and `end`.
    """
    return f"""SELECT p.node_id, p.cluster, h.gpu_count, p.gpu_model
    FROM (SELECT node_id, min(cluster) AS cluster,
                 CASE WHEN min(gpu_model) = max(gpu_model) AND NOT contains(min(gpu_model), '|')
                      THEN min(gpu_model) END AS gpu_model
          FROM {placements} GROUP BY node_id) p
    LEFT JOIN ({most_held(placements, start, end)}) h USING (node_id) ORDER BY p.node_id"""


def seconds_between(earlier: str, later: str) -> str:
    """Return SQL for the time from one SQL timestamp to another [s]."""
    return f"(epoch_us({later}) - epoch_us({earlier})) / 1e6"


def shown_gpus(placements: str) -> str:
    """Return a query for each machine's minimum GPU count: the most in use at once, or the highest index plus one.

    Parameters
    ----------
    placements : str
        A relation with the columns of the placements table.
    """
    return f"""SELECT node_id, greatest(h.gpu_count, i.gpu_count) AS gpu_count
    FROM ({most_held(placements, "start_time", "end_time")}) h FULL JOIN (
        SELECT node_id, max(list_max(gpu_index)) + 1 AS gpu_count FROM {placements} WHERE len(gpu_index) > 0
        GROUP BY node_id) i USING (node_id)"""
