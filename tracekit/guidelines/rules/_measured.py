"""Jobs whose GPU utilization is known, for the guidelines about allocated GPUs with little use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.rules._sql import day_of

if TYPE_CHECKING:
    from tracekit.guidelines.evidence import Evidence


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
