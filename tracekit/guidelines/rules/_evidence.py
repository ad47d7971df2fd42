"""What several guidelines ask of a Trace: waits with causes, jobs of known utilization, attempts that were stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import Evidence, LackingError

if TYPE_CHECKING:
    from tracekit.answer import Answer


def day_of(column: str) -> str:
    """Return the SQL of the day of a time, as a number of days after 1970."""
    return f"date_diff('day', DATE '1970-01-01', CAST({column} AS DATE))"


_WAITS = f"""
SELECT
    CAST(wait_us AS DOUBLE) / 1e6 AS wait_s,
    CAST(fair_share_us AS DOUBLE) / 1e6 AS fair_share_s,
    CAST(fragmentation_us AS DOUBLE) / 1e6 AS fragmentation_s,
    CAST(other_us AS DOUBLE) / 1e6 AS other_s,
    {day_of("j.submit_time")} AS day
FROM wait_causes AS w
INNER JOIN jobs AS j ON w.job_id = j.job_id
WHERE w.wait_us > 0 AND w.gpu_count > 0 AND j.submit_time IS NOT NULL
"""


def waits(evidence: Evidence) -> Answer:
    """Return one row a wait of more than 0 s: its length, the part of each cause [s], and the day of submission.

    The causes are those of queuing/delay_causes; fragmentation_s is NULL if no nodes are known.

    Raises
    ------
    LackingError
        No wait exists.
    """
    answer = evidence.answer(_WAITS)
    if answer.frame.is_empty():
        raise LackingError("No job with GPUs has a recorded wait.")
    return answer


IDLE_PCT = 10.0
"""Mean utilization up to which a job counts as idle, as in utilization/idle_jobs [percent]."""

LOW_PCT = 50.0
"""Mean utilization up to which a job counts as low, as Gao et al. (ICSE'24) have it [percent]."""

NOTE = (
    "A job's utilization is the mean of its samples, or the value in job_usage, as in utilization/idle_jobs; jobs "
    "without either are not counted."
)

_JOBS = f"""
SELECT job_id, gpu_hours, gpu_count AS gpus, {day_of("coalesce(submit_time, start_time)")} AS day
FROM job_gpu_hours
WHERE gpu_hours > 0 AND coalesce(submit_time, start_time) IS NOT NULL
"""


def measured_jobs(evidence: Evidence, more_than: float = 0) -> tuple[pl.DataFrame, float | None]:
    """Return one row a job: job_id, user, vc, gpu_count, run_s, mean_pct, wasted_gpu_h, gpu_hours and day.

    The rows of utilization/idle_jobs without its limits; with the limits they are its jobs. Jobs of unknown date are
    excluded, and jobs with at most `more_than` GPUs. The second value is the share of these jobs in the GPU-hours of
    all such jobs [1], None when none is known.

    Raises
    ------
    LackingError
        The Trace has no utilization.
    """
    jobs = evidence.query("utilization/idle_jobs", threshold_pct=1_000_000, min_run_s=0).frame
    hours = evidence.answer(_JOBS, also=("attempts",)).frame.filter(pl.col("gpus") > more_than).drop("gpus")
    measured, held = jobs.join(hours, on="job_id"), float(hours["gpu_hours"].sum())
    return measured, float(measured["gpu_hours"].sum()) / held if held else None


NEEDED_STOPS = 5
"""Fewest attempts that outages must have stopped; our choice, the same as for the effect."""

_ATTEMPTS = f"""
SELECT
    i.job_id,
    i.attempt,
    j.status AS job_status,
    i.node_count AS nodes,
    i.gpu_count AS gpus,
    i.run_s,
    CAST(i.gpu_s AS DOUBLE) AS gpu_s,
    coalesce(i.interrupted AND i.node_cause IS NOT NULL, FALSE) AS by_event,
    coalesce(i.interrupted AND (i.node_cause IS NOT NULL OR i.status = 'node_fail'), FALSE) AS stopped,
    lead(i.attempt) OVER one AS next_attempt,
    lead(i.wait_s) OVER one AS next_wait_s,
    {day_of("i.end_time")} AS day
FROM attempt_interruptions AS i
INNER JOIN jobs AS j ON i.job_id = j.job_id
WHERE i.gpu_count > 0 AND i.run_s > 0 AND i.end_time IS NOT NULL
WINDOW one AS (PARTITION BY i.job_id ORDER BY i.attempt)
ORDER BY i.job_id, i.attempt
"""


def attempts_with_stops(evidence: Evidence) -> pl.DataFrame:
    """Return one row an attempt with GPUs that ended: whether an outage stopped it, and how long the next one waited.

    job_id, attempt, job_status, nodes, gpus, run_s [s], gpu_s [GPU * s], by_event (one of its nodes failed by the table
    node_events, as in the view attempt_interruptions), stopped (that, or its status is node_fail, as in failures/ettr),
    next_attempt and next_wait_s [s] of the same job, NULL if none followed or its wait is unknown, and day.

    Raises
    ------
    LackingError
        The Trace lacks attempts.
    """
    return evidence.sql(_ATTEMPTS, also=("placements", "node_events"))
