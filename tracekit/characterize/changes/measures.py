"""What is compared: each measure with its one definition and where that comes from.

Every measure is made of columns that `periods` reads from the shared views, summed by day, or of the values of single
jobs. A job belongs to the day of its submission with all that it did later; a telemetry sample to the day of its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LONG_WAIT_S = 600
"""A wait above this is a long one [s]; the limit is ours."""

Kind = Literal["a day", "ratio", "quantile"]


@dataclass(frozen=True)
class PeriodMeasure:
    """One number of a period."""

    name: str
    unit: str
    kind: Kind
    """a day: sum of `top` over the calendar days; ratio: sum of `top` over sum of `bottom`; quantile: of `top`."""
    top: str
    definition: str
    source: str
    """The query or view whose definition it is."""
    bottom: str = ""
    """The divisor of a ratio."""
    counts: str = "jobs"
    """The observations of a sum or a ratio; a quantile counts its values."""
    share: float = 0.5
    """Which quantile [0..1]."""
    needs: tuple[str, ...] = ("arrivals",)
    """Capabilities that both Traces must have."""
    tables: tuple[str, ...] = ()
    """Tables that both must have."""
    by_class: bool = True
    """Whether it is computed for each size class too."""
    by_vc: bool = False
    """Whether it is computed for each virtual cluster too."""
    for_cpu_jobs: bool = True
    """Whether it applies to jobs without GPUs."""
    where_seen: bool = False
    """Whether it is left out where its sum is 0 in both periods."""
    rare: bool = False
    """Whether so few sources state it that no note is made where neither period has it."""


_STATUSES = ("arrivals", "statuses")
_WAITS = ("arrivals", "queueing")

MEASURES = (
    PeriodMeasure(
        "jobs a day",
        "jobs/day",
        "a day",
        "jobs",
        "jobs submitted / calendar days, days without a submission too",
        "overview/arrivals_by_hour",
        by_vc=True,
    ),
    PeriodMeasure(
        "GPU-hours a day",
        "GPU-hours/day",
        "a day",
        "gpu_hours",
        "GPU-hours of the jobs submitted, summed over their attempts whenever these ran, / calendar days",
        "view job_gpu_hours",
        needs=("arrivals", "gpu_count"),
        by_vc=True,
        for_cpu_jobs=False,
    ),
    PeriodMeasure(
        "users active a day",
        "users/day",
        "a day",
        "users",
        "distinct users who submitted a job on the day, averaged over the calendar days",
        "users as in overview/summary, counted by day",
        needs=("arrivals", "users"),
        by_class=False,
    ),
    PeriodMeasure(
        "median run time",
        "s",
        "quantile",
        "run_s",
        "median of run_s over the jobs whose run time is known: last end minus first start",
        "overview/summary, median_run_s",
        needs=("arrivals", "run_time"),
    ),
    PeriodMeasure(
        "median wait",
        "s",
        "quantile",
        "queue_s",
        "median of queue_s over the jobs whose wait is known: first start minus submission",
        "overview/summary, median_queue_s",
        needs=_WAITS,
        by_vc=True,
    ),
    PeriodMeasure(
        "90th percentile of waits",
        "s",
        "quantile",
        "queue_s",
        "90th percentile of the same waits, interpolated between the two nearest jobs",
        "overview/summary, queue_s",
        share=0.9,
        needs=_WAITS,
    ),
    PeriodMeasure(
        "jobs that waited more than 10 min",
        "share",
        "ratio",
        "long_waits",
        "jobs whose queue_s is above 600 s / jobs whose queue_s is known; the limit is ours",
        "overview/summary, queue_s",
        bottom="waits",
        counts="waits",
        needs=_WAITS,
        by_vc=True,
    ),
    PeriodMeasure(
        "jobs completed",
        "share",
        "ratio",
        "completed",
        "jobs with the status completed / all jobs, those that still run or wait too",
        "overview/status, jobs_share",
        bottom="jobs",
        needs=_STATUSES,
    ),
    PeriodMeasure(
        "jobs failed",
        "share",
        "ratio",
        "failed",
        "jobs that ended failed, node_fail or out_of_memory / all jobs; those that timed out are apart",
        "overview/status, jobs_share",
        bottom="jobs",
        needs=_STATUSES,
        by_vc=True,
    ),
    PeriodMeasure(
        "jobs timed out",
        "share",
        "ratio",
        "timeout",
        "jobs with the status timeout / all jobs; left out where neither period has one",
        "overview/status, jobs_share",
        bottom="jobs",
        needs=_STATUSES,
        by_vc=True,
        where_seen=True,
    ),
    PeriodMeasure(
        "jobs cancelled",
        "share",
        "ratio",
        "cancelled",
        "jobs with the status cancelled / all jobs",
        "overview/status, jobs_share",
        bottom="jobs",
        needs=_STATUSES,
    ),
    PeriodMeasure(
        "GPU-hours in jobs that did not complete",
        "share",
        "ratio",
        "gpu_hours_lost",
        "GPU-hours of jobs that failed or timed out as above, were cancelled or preempted / all known GPU-hours",
        "overview/status, gpu_hours_share",
        bottom="gpu_hours",
        needs=(*_STATUSES, "gpu_count"),
        for_cpu_jobs=False,
    ),
    PeriodMeasure(
        "mean GPU utilization",
        "percent",
        "ratio",
        "busy_pct",
        "mean of all GPU samples by their time, whether or not a job held the GPU; offline GPUs are out",
        "utilization/cluster_by_hour, gpu_util_pct",
        bottom="samples",
        counts="samples",
        needs=("utilization",),
        tables=("gpu_utilization",),
        by_class=False,
    ),
    PeriodMeasure(
        "mean GPU utilization that jobs report",
        "percent",
        "ratio",
        "used_pct",
        "mean over the jobs of the mean use of their GPUs as the source reports it",
        "view job_reported_use",
        bottom="measured_jobs",
        counts="measured_jobs",
        tables=("job_usage",),
        for_cpu_jobs=False,
        rare=True,
    ),
)
"""What is compared over all jobs, in the order of reading."""

CLASS_SHARE = PeriodMeasure(
    "share of all jobs",
    "share",
    "ratio",
    "jobs",
    "jobs of the size class / all jobs, those of unknown size too",
    "overview/job_size, jobs_share",
    bottom="all_jobs",
    counts="all_jobs",
    needs=("arrivals", "gpu_count"),
)
"""What is compared for the size classes alone."""


def rule() -> str:
    """Return the definitions of all measures as free text."""
    definitions = [f"{m.name}: {m.definition} ({m.source})." for m in (*MEASURES, CLASS_SHARE)]
    return " ".join(t[:1].upper() + t[1:] for t in definitions)
