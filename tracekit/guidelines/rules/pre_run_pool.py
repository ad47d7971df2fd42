"""Run the first minutes of a gang on a small pool."""

from __future__ import annotations

import numpy as np
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

_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(failed_or_retried, FALSE) AS failed, {day_of("start_time")} AS day
FROM attempt_outcomes
WHERE gpu_count > 1 AND run_s > 0 AND start_time IS NOT NULL AND attempt = 0
"""

_EARLY_S = 600
_TIMES_S = (60, 120, 300, 600)
_SIZES = (2, 4, 8, 16)


def _find(evidence: Evidence) -> Finding:
    attempts = evidence.sql(_ATTEMPTS)
    if attempts.is_empty():
        raise LackingError("No job with several GPUs has a known run time.")
    early = pl.col("failed") & (pl.col("run_s") <= _EARLY_S)
    counts = attempts.select("day", one=pl.lit(1), early=early.cast(pl.Int64))
    seconds, size = _best(attempts)
    tried = attempts.select("day", saved=_saved(seconds, size), held=pl.col("gpu_count") * pl.col("run_s") / 3600)
    text = ""
    if not counts["early"].sum():
        text = "No multi-GPU job fails within ten minutes of its first start."
    elif tried["saved"].sum() <= 0:
        text = (
            "{early_share} of multi-GPU jobs fail within ten minutes of their first start; running some minutes "
            "on one GPU first would cost as much as it saves."
        )
    return Finding(
        {
            "early_share": over_days(counts, ratio("early", "one"), n=len(attempts)),
            "saved_share": over_days(tried, ratio("saved", "held"), n=len(attempts)),
            "saved_gpu_hours": Number(float(tried["saved"].sum()), len(attempts)),
            "pool_s": Number(float(seconds), len(attempts)),
            "least_gpus": Number(float(size), len(attempts)),
        },
        notes=(
            (
                "First attempts of jobs with more than one GPU; an attempt of unknown end that was tried again "
                "counts as failed. A run on the pool takes one GPU, and jobs that do not fail there repeat that "
                "time."
            ),
            (
                "The time on the pool and the smallest job are those of 1 to 10 minutes and 2 to 16 GPUs that "
                "save most, so the saving is slightly optimistic."
            ),
        ),
        text=text,
    )


def _saved(seconds: int, size: int) -> pl.Expr:
    """Return the GPU-hours saved by an attempt: its other GPUs when it fails on the pool, less the pool's when not."""
    fails = pl.col("failed") & (pl.col("run_s") <= seconds)
    pool = pl.min_horizontal("run_s", pl.lit(float(seconds)))
    gain = pl.when(fails).then((pl.col("gpu_count") - 1) * pl.col("run_s")).otherwise(-pool)
    return pl.when(pl.col("gpu_count") >= size).then(gain).otherwise(0.0) / 3600


def _best(attempts: pl.DataFrame) -> tuple[int, int]:
    """Return the time on the pool [s] and the least gang [GPUs] that save most."""
    pairs = [(seconds, size) for seconds in _TIMES_S for size in _SIZES]
    totals = attempts.select(_saved(s, g).sum().alias(f"{s}/{g}") for s, g in pairs).row(0)
    return pairs[int(np.argmax(totals))]


GUIDELINE = Guideline(
    id="pre-run-pool",
    title="Run the first minutes on a small pool",
    question="How many multi-GPU jobs fail within ten minutes, and what would a first run on one GPU save?",
    measures=(
        Measure(
            "early_share",
            "share of multi-GPU jobs whose first attempt fails within ten minutes",
            "share",
            "first attempts",
        ),
        Measure(
            "saved_share",
            "net GPU-hours saved, as a share of those of first attempts of multi-GPU jobs",
            "share",
            "first attempts",
        ),
        Measure("saved_gpu_hours", "the same in GPU-hours", "GPU-hours", "first attempts"),
        Measure("pool_s", "time on the pool that saves most", "s", "first attempts"),
        Measure("least_gpus", "smallest job that goes through the pool", "GPUs", "first attempts"),
    ),
    thresholds=(
        Threshold("early_share", "at least", 0.05, "ours; the direction is that of Philly's third guideline (ATC'19)"),
        Threshold("saved_share", "at least", 0.01, "ours: below, the pool costs nearly as much as it saves"),
    ),
    finding=(
        "{early_share} of multi-GPU jobs fail within ten minutes of their first start; {pool_s} on one GPU first, "
        "for jobs of {least_gpus} or more, would save {saved_gpu_hours} net ({saved_share})."
    ),
    find=_find,
    advice=(
        "Start every job of that size on one GPU of a small pool for that time, with the same image, data and "
        "first iterations. Give it its GPUs only if it gets through. Errors in syntax, imports, paths and the "
        "first iteration then cost one GPU and no long wait."
    ),
    cost="A few dedicated GPUs, and the extra time for each job that does not fail; the launcher must accept one "
    "worker.",
    risk="Faults that appear only with many workers pass the pool; a pool that is too small becomes a queue itself.",
    practice=Practice(
        slurm=(
            "A partition with a short MaxTime and its own QOS; the real job with '--dependency=afterok:ID' and "
            "'--kill-on-invalid-dep=yes'. The first run must end by itself, with exit code 0, before the limit."
        ),
        kubernetes=(
            "A Kueue ClusterQueue with a quota of a few GPUs and its LocalQueue; a workflow, such as Argo, "
            "submits the real job separately after the first run. A single JobSet with 'dependsOn' does not work: "
            "Kueue admits it as a whole, so the quota of the real job is taken from the start. In Volcano a "
            "JobFlow, whose 'dependsOn' puts the real job after the first run, each in its own queue."
        ),
        yarn=(
            "A queue with a small 'maximum-capacity' and 'maximum-application-lifetime'; YARN has no order "
            "between applications, so the launcher submits the real job on success."
        ),
    ),
    sources=("Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 3, Table 7",),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    no_trial=(
        "A replay gives each job its recorded run time, so it cannot show the gain; the saving is computed "
        "attempt by attempt."
    ),
)
