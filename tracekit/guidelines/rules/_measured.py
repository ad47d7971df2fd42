"""Jobs whose GPU utilization is known, for the guidelines about GPUs that are held and hardly used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.guidelines.rules._sql import day_of

if TYPE_CHECKING:
    import polars as pl

    from tracekit.guidelines.evidence import Evidence

__all__ = ["IDLE_PCT", "LOW_PCT", "NOTE", "measured_jobs"]

IDLE_PCT = 10.0
"""Mean utilization up to which a job counts as idle, as in utilization/idle_jobs [percent]."""

LOW_PCT = 50.0
"""Mean utilization up to which a job counts as low, as Gao et al. (ICSE'24) have it [percent]."""

NOTE = (
    "A job's utilization is the mean of its samples, or what job_usage states, as in utilization/idle_jobs; jobs "
    "without either are in no number."
)

_JOBS = f"""
SELECT job_id, gpu_hours, {day_of("coalesce(submit_time, start_time)")} AS day
FROM job_gpu_hours
WHERE gpu_hours > 0 AND coalesce(submit_time, start_time) IS NOT NULL
"""


def measured_jobs(evidence: Evidence) -> pl.DataFrame:
    """Return one row a job: job_id, user, vc, gpu_count, run_s, mean_pct, wasted_gpu_h, gpu_hours and day.

    The rows of utilization/idle_jobs without its limits, so that they are its jobs when the limits are put back. Jobs
    of unknown date are out.

    Raises
    ------
    LackingError
        The Trace has no utilization.
    """
    jobs = evidence.query("utilization/idle_jobs", threshold_pct=1_000_000, min_run_s=0).frame
    hours = evidence.sql(_JOBS, also=("attempts",), keep=True)
    return jobs.join(hours, on="job_id")
