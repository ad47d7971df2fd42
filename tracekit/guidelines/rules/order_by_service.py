"""Let short jobs go before long ones."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Measure,
    Number,
    Practice,
    Threshold,
    Trial,
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import day_of

_LEAST_WAIT_S = 60

_JOBS = f"""
SELECT queue_s, run_s, gpu_count * run_s AS service, "user", "name", gpu_count, {day_of("submit_time")} AS day
FROM jobs
WHERE gpu_count > 0 AND queue_s IS NOT NULL AND run_s > 0 AND submit_time IS NOT NULL
"""


def _find(evidence: Evidence) -> Finding:
    jobs = evidence.sql(_JOBS)
    if jobs.is_empty():
        raise LackingError("No job with GPUs has both a known wait and a known run time.")
    long = (pl.col("queue_s") > pl.col("run_s")) & (pl.col("queue_s") >= _LEAST_WAIT_S)
    sums = jobs.select("day", one=pl.lit(1), long=long.cast(pl.Int64))
    p10, p90 = (jobs["service"].quantile(q, interpolation="linear") for q in (0.1, 0.9))
    keys = ["user", "name", "gpu_count"]
    named = jobs.drop_nulls(["user", "name"])
    again = len(named) - named.select(keys).n_unique() if len(named) else 0
    return Finding(
        {
            "waited_longer_share": over_days(sums, ratio("long", "one"), n=len(jobs)),
            "spread": Number(p90 / p10 if p90 is not None and p10 else None, len(jobs)),
            "again_share": Number(again / len(jobs), len(jobs)),
        },
        notes=("Service is run time times GPUs. A job is a repeat if its user, name and GPUs appeared before.",),
    )


GUIDELINE = Guideline(
    id="order-by-service",
    title="Let jobs with little GPU time go first (QSSF, LAS)",
    question="Do short jobs wait longer than they run, while job sizes differ widely?",
    measures=(
        Measure(
            "waited_longer_share",
            "share of jobs that waited a minute or more, and longer than they ran",
            "share",
            "jobs with GPUs",
        ),
        Measure("spread", "90th over 10th percentile of service", "ratio", "jobs with GPUs"),
        Measure("again_share", "share of jobs that repeat earlier ones", "share", "jobs with GPUs"),
    ),
    thresholds=(
        Threshold("waited_longer_share", "at least", 0.1, "ours; waits below a minute do not count"),
        Threshold("spread", "at least", 10, "ours: if jobs are similar, their order changes little"),
    ),
    finding=(
        "{waited_longer_share} of jobs waited a minute or more, and longer than they ran. Service (GPU time) "
        "differs by a factor of {spread} (90th over 10th percentile). {again_share} of jobs repeat earlier ones, "
        "so their run time can be predicted."
    ),
    find=_find,
    advice=(
        "Let jobs with little GPU time go first. If jobs repeat, order them by the GPU time predicted from the "
        "user's earlier jobs of that name and size (QSSF); if they do not, order them by the GPU time used so far "
        "(LAS)."
    ),
    cost="QSSF needs a predictor next to the scheduler; LAS needs preemption, and jobs that can be stopped and "
    "resumed.",
    risk="Long jobs wait longer and may starve: raise their priority with age, and explain to users that the order "
    "is no longer by submission.",
    practice=Practice(
        slurm=(
            "Multifactor priority: a job_submit plugin, such as Lua, sets 'nice' by the predicted service. "
            "PriorityFavorSmall with PriorityWeightJobSize orders by nodes and CPUs, not by GPUs. Slurm cannot "
            "order by attained service: fair share counts the usage of accounts and users, not of a job."
        ),
        kubernetes=(
            "Kueue: a few WorkloadPriorityClasses by predicted service, set by the label "
            "'kueue.x-k8s.io/priority-class', and 'withinClusterQueue: LowerPriority' to preempt. Volcano: the "
            "priority plugin and the preempt action, with PriorityClasses that a webhook sets. Neither orders by the "
            "attained service of a job."
        ),
        yarn=(
            "Application priorities set by the launcher, up to 'yarn.cluster.max-application-priority' (Capacity "
            "Scheduler, fifo ordering policy). The fair policies consider what an application uses now; none "
            "orders by attained service."
        ),
    ),
    sources=(
        "Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21): QSSF",
        "Gu et al., Tiresias (NSDI'19): least attained service",
    ),
    tables=("jobs",),
    needs=("queueing", "run_time", "gpu_count"),
    trial=Trial(("qssf", "las")),
)
