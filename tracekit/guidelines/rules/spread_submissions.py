"""Move submissions out of the busy hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, LackingError, Measure, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import day_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.array_types import Floats


_BUSY_HOURS = 8

_JOBS = f"""
WITH local_times AS (
    SELECT submit_time AT TIME ZONE 'UTC' AT TIME ZONE $timezone AS submitted, queue_s
    FROM jobs
    WHERE gpu_count > 0 AND submit_time IS NOT NULL AND queue_s IS NOT NULL
)

SELECT extract(HOUR FROM submitted) AS hour, {day_of("submitted")} AS day, queue_s
FROM local_times
"""


def _find(evidence: Evidence) -> Finding:
    jobs = evidence.sql(_JOBS)
    if jobs.is_empty():
        raise LackingError("No job with GPUs has a known wait.")
    counts = jobs.group_by("hour").len().sort("len", "hour", descending=[True, False])
    hours = counts["hour"].head(_BUSY_HOURS).to_list()
    busy = pl.col("hour").is_in(hours)
    sums = jobs.select(
        "day",
        jobs=pl.lit(1),
        busy=busy.cast(pl.Int64),
        busy_wait=pl.when(busy).then("queue_s").otherwise(0.0),
        calm_wait=pl.when(busy).then(0.0).otherwise("queue_s"),
    )

    def times(s: Mapping[str, Floats]) -> Floats:
        return (s["calm_wait"] / (s["jobs"] - s["busy"])) / (s["busy_wait"] / s["busy"])

    return Finding(
        {
            "busy_share": over_days(sums, ratio("busy", "jobs"), n=len(jobs)),
            "calm_ratio": over_days(sums, times, n=len(jobs)),
            "busy_wait_s": over_days(sums, ratio("busy_wait", "busy"), n=int(sums["busy"].sum())),
        },
        notes=(
            (
                f"The 8 busiest hours are {', '.join(f'{hour} h' for hour in sorted(hours))} "
                f"({evidence.trace.timezone}); they were chosen from the same jobs, so even arrivals give slightly "
                "more than a third."
            ),
        ),
    )


GUIDELINE = Guideline(
    id="spread-submissions",
    title="Spread submissions over the day",
    question="Do jobs arrive in a few hours of the day, and wait longer then?",
    measures=(
        Measure("busy_share", "share of jobs submitted in the 8 busiest hours of the day", "share", "jobs with GPUs"),
        Measure("calm_ratio", "mean wait of the other hours over theirs", "ratio", "jobs with GPUs"),
        Measure("busy_wait_s", "their mean wait", "s", "jobs of the busy hours"),
    ),
    thresholds=(
        Threshold("busy_share", "at least", 0.5, "ours; even arrivals give a third"),
        Threshold("calm_ratio", "at most", 0.5, "ours"),
        Threshold("busy_wait_s", "at least", 60, "ours: shorter waits are the period of the scheduler"),
    ),
    finding=(
        "The 8 busiest hours get {busy_share} of the jobs. These jobs wait {busy_wait_s} on average, and jobs of "
        "the other hours wait {calm_ratio} times as long."
    ),
    find=_find,
    advice=(
        "Show users when the cluster is calm, make jobs in calm hours cheaper or give them a higher priority, and "
        "hold jobs that need no answer today until the evening."
    ),
    cost="A price or priority that depends on the hour; users must say which jobs can wait.",
    risk="The peak moves to the hour at which the price falls; spread that hour by team.",
    practice=Practice(
        slurm=(
            "'--begin' for jobs that can wait; a partition that a cron job opens at night ('scontrol update "
            "partitionname=P state=up', 'state=down' in the morning: users can still submit, and running jobs end "
            "normally), with a QOS of a lower UsageFactor. No factor changes by the hour automatically."
        ),
        kubernetes=(
            "Kueue: a ClusterQueue with 'stopPolicy: Hold', which a CronJob sets to None at night; running "
            "workloads end normally. Volcano: a CronJob changes the 'weight' of a queue (proportion plugin) or "
            "its 'deserved' (capacity plugin). CronJobs for recurring work. Neither has prices by the hour."
        ),
        yarn=(
            "A script changes the capacity of a queue at night ('yarn rmadmin -refreshQueues'), or the "
            "ReservationSystem accepts a job for a later time; a workflow tool such as Airflow for recurring work."
        ),
    ),
    sources=("Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21): Fig 2",),
    tables=("jobs",),
    needs=("arrivals", "hour_of_day", "queueing", "gpu_count"),
    no_trial="A replay takes submissions as they were, so it cannot show the gain.",
)
