"""Stop retrying jobs that fail in the same way."""

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
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import day_of

_MEMORY = "'gpu_out_of_memory', 'cpu_out_of_memory'"
"""Reasons other than user errors that come back if nothing is changed."""

_TRIALS = f"""
SELECT DISTINCT
    f.job_id,
    f.attempt,
    f.reason,
    a.gpu_hours,
    coalesce(f.category = 'user' OR f.reason IN ({_MEMORY}), FALSE)
        AND f.reason NOT IN ('job_timeout', 'job_cancelled') AS stays,
    {day_of("coalesce(a.start_time, f.time)")} AS day
FROM failures AS f
INNER JOIN attempt_gpu_time AS a ON f.job_id = a.job_id AND f.attempt = a.attempt
WHERE f.reason IS NOT NULL AND coalesce(a.start_time, f.time) IS NOT NULL
"""


def _find(evidence: Evidence) -> Finding:
    trials = evidence.sql(_TRIALS)
    if trials.is_empty():
        raise LackingError("No failure has a known reason and date.")
    later = pl.col("attempt") > pl.col("attempt").min().over("job_id", "reason")
    trials = trials.with_columns(repeat=pl.col("stays") & later)
    whole = {name: pl.col(name).cast(pl.Int64) for name in ("stays", "repeat")}
    sums = trials.select("day", one=pl.lit(1), **whole, pair=whole["stays"] - whole["repeat"])
    repeats = trials.filter("repeat")
    pairs = int(sums["pair"].sum())
    by_reason = (
        trials.filter("stays")
        .group_by("reason")
        .agg(
            pl.len().alias("trials"),
            pl.col("job_id").n_unique().alias("jobs"),
            pl.col("repeat").sum().alias("retries_saved"),
            pl.col("gpu_hours").filter("repeat").sum().alias("gpu_hours_saved"),
        )
        .sort("gpu_hours_saved", "reason", descending=[True, False])
    )
    return Finding(
        {
            "repeat_share": over_days(sums, ratio("repeat", "one"), n=len(trials)),
            "factor": over_days(sums, ratio("stays", "pair"), n=pairs),
            "repeats": Number(float(len(repeats)), len(trials)),
            "repeat_gpu_hours": Number(float(repeats["gpu_hours"].sum()), len(repeats)),
        },
        notes=("Deterministic reasons are user errors and running out of memory, as the log classifier names them.",),
        rows=tuple(by_reason.iter_rows(named=True)),
        rows_title="Retries saved by reason",
        text="" if len(repeats) else "No job was tried again after it failed for a lasting reason.",
    )


GUIDELINE = Guideline(
    id="stop-retries",
    title="Stop retrying deterministic failures",
    question="How often is a job tried again although it fails for the same reason each time?",
    measures=(
        Measure("repeat_share", "share of failed trials that repeat a deterministic reason", "share", "failed trials"),
        Measure("factor", "trials of a job with one deterministic reason", "ratio", "jobs with such a reason"),
        Measure("repeats", "trials after the first with the same reason", "trials", "failed trials"),
        Measure("repeat_gpu_hours", "GPU-hours of these trials", "GPU-hours", "repeated trials"),
    ),
    thresholds=(
        Threshold("repeat_share", "at least", 0.1, "ours"),
        Threshold("factor", "at least", 2, "ours, after Philly's repetition factors (ATC'19, Table 7)"),
    ),
    finding=(
        "A job that fails for a lasting reason is tried {factor} times; {repeats} after the first took "
        "{repeat_gpu_hours}, {repeat_share} of all failed trials."
    ),
    find=_find,
    advice=(
        "Classify failures as they happen, and do not retry jobs that fail for these reasons: bad input, syntax, "
        "imports, permissions, memory. Keep retrying after faults of nodes, network and storage, on other nodes."
    ),
    cost="A classifier that runs on each job's log at its end, and rules that are kept up to date.",
    risk="A wrong rule stops a job that would have succeeded; let users ask for the retry.",
    practice=Practice(
        slurm=(
            "By itself Slurm requeues jobs after a node failure or preemption (JobRequeue, '--requeue') and for "
            "the exit codes in RequeueExit: keep only codes of temporary faults there, and put codes that "
            "somebody should check first in RequeueExitHold. '--no-requeue' also prevents the restart after a "
            "node failure. Users and scripts resubmit the other repeats: let an epilog classify the failure and "
            "inform them."
        ),
        kubernetes=(
            "Job 'podFailurePolicy' (with 'restartPolicy: Never'): FailJob on the exit codes of such reasons, Ignore "
            "on the condition DisruptionTarget, and a low 'backoffLimit'; in Volcano 'policies' with 'exitCode' and "
            "the action AbortJob or TerminateJob, and a low 'maxRetry'."
        ),
        yarn=(
            "'yarn.resourcemanager.am.max-attempts', or the application's own value, ignores exit codes: set it "
            "to 1 if the launcher decides. The retry policy of containers uses them: "
            "RETRY_ON_SPECIFIC_ERROR_CODES with the codes of temporary faults."
        ),
    ),
    sources=("Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 3, Table 7",),
    tables=("failures", "jobs", "attempts"),
    needs=("failures",),
    no_trial="A replay runs a job's attempts as one, so it cannot show the gain; the GPU-hours of the repeats are "
    "saved.",
)
