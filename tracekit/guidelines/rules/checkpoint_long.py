"""Let very long jobs save their state, or cap them."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import day_of
from tracekit.text import counted

_LONG_S = 86400
_SAVE_EVERY_S = 3600

_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(interrupted_or_retried, FALSE) AS failed, status = 'timeout' AS late,
       {day_of("end_time")} AS day
FROM attempt_interruptions
WHERE gpu_count > 0 AND run_s > 0 AND end_time IS NOT NULL
ORDER BY job_id, attempt
"""


def _find(evidence: Evidence) -> Finding:
    held = pl.col("gpu_count") * pl.col("run_s") / 3600
    long = pl.col("run_s") >= _LONG_S
    # As in failures/lost_work with a checkpoint every hour: the rest is lost.
    kept = pl.col("gpu_count") * (pl.col("run_s") - pl.col("run_s") % _SAVE_EVERY_S) / 3600
    attempts = evidence.sql(_ATTEMPTS, also=("placements", "node_events")).select(
        "day",
        "late",
        held=held,
        long=pl.when(long).then(held).otherwise(0.0),
        lost=pl.when(long & pl.col("failed")).then(held).otherwise(0.0),
        saved=pl.when(long & pl.col("failed")).then(kept).otherwise(0.0),
    )
    failures = attempts.filter(pl.col("lost") > 0).height
    none = "No attempt was cut short after a day or more; attempts of that length took {long_share} of the GPU-hours."
    return Finding(
        {
            "lost_share": over_days(attempts, ratio("lost", "held"), n=len(attempts)),
            "long_failures": Number(float(failures), attempts.filter(pl.col("long") > 0).height),
            "lost_gpu_hours": Number(float(attempts["lost"].sum()), failures),
            "saved_gpu_hours": Number(float(attempts["saved"].sum()), failures),
            "long_share": over_days(attempts, ratio("long", "held"), n=len(attempts)),
        },
        notes=(
            *(
                [f"{counted(late, 'attempts')} of those that were cut short hit their time limit (timeout)"]
                if (late := attempts.filter((pl.col("lost") > 0) & pl.col("late")).height)
                else []
            ),
            (
                "Attempts are cut short as in failures/lost_work with rule=retried: those that failed, were "
                "preempted or lost a node, or ended in an unknown way and were tried again. Checkpoints are not "
                "known, so what jobs already save today is not subtracted."
            ),
        ),
        text="" if failures else none,
    )


GUIDELINE = Guideline(
    id="checkpoint-long",
    title="Checkpoint very long jobs, or cap them",
    question="How many GPU-hours are lost when attempts are cut short after a day or more?",
    measures=(
        Measure("lost_share", "share of GPU-hours in attempts cut short after a day or more", "share", "attempts"),
        Measure("long_failures", "attempts cut short after a day or more", "attempts", "attempts of a day or more"),
        Measure("lost_gpu_hours", "GPU-hours of these attempts", "GPU-hours", "such attempts"),
        Measure(
            "saved_gpu_hours",
            "of these, GPU-hours that a checkpoint every hour would keep",
            "GPU-hours",
            "such attempts",
        ),
        Measure("long_share", "share of GPU-hours in all attempts of a day or more", "share", "attempts"),
    ),
    thresholds=(
        Threshold("lost_share", "at least", 0.05, "ours"),
        Threshold("long_failures", "at least", 10, "ours: a few may be one user's accident"),
    ),
    finding=(
        "{long_failures} cut short after a day or more took {lost_gpu_hours}, {lost_share} of all allocated; if "
        "nothing was saved, a checkpoint every hour would have kept {saved_gpu_hours}."
    ),
    find=_find,
    advice=(
        "Give jobs a time limit of a day. Let only jobs that save their state and can restart from it exceed it. "
        "Send a signal before the limit, and put the job back into the queue."
    ),
    cost="Storage and bandwidth for checkpoints, and work on programs that cannot save their state.",
    risk="A job that cannot start from its checkpoint loses everything at the limit; saving too often slows all jobs.",
    practice=Practice(
        slurm=(
            "MaxTime of the partition or MaxWall of the QOS; '--signal=B:USR1@300' warns the batch script, which "
            "saves and calls 'scontrol requeue' (the job needs '--requeue', or JobRequeue=1 for all). Slurm does "
            "not requeue a job that just hits its limit."
        ),
        kubernetes=(
            "'activeDeadlineSeconds' of the pod ends the pod, and its Job starts another within 'backoffLimit'; "
            "on the Job it fails the Job for good. After the seconds in the label "
            "'kueue.x-k8s.io/max-exec-time-seconds' Kueue deactivates the workload until it is activated again. "
            "In Volcano a policy with RestartJob on PodFailed or PodEvicted starts the job again. Save while the "
            "job runs: SIGTERM leaves at most 'terminationGracePeriodSeconds'."
        ),
        yarn=(
            "'maximum-application-lifetime' of the queue, in seconds, kills the application and does not start it "
            "again. The application must save while it runs, and the launcher submits it again from its "
            "checkpoint."
        ),
    ),
    sources=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): late failures, Table 7",
        (
            "Hu et al., Characterization of Large Language Model Development in the Datacenter (NSDI'24): checkpoints "
            "against lost work"
        ),
    ),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    no_trial=(
        "A replay takes the recorded work as given, so it cannot show the gain; the saving is computed attempt by "
        "attempt."
    ),
)
