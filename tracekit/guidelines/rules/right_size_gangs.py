"""Ask for fewer GPUs if a multi-GPU job leaves them half idle."""

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
from tracekit.guidelines.rules._evidence import IDLE_PCT, LOW_PCT, NOTE, measured_jobs

_SHOWN = 20


def _find(evidence: Evidence) -> Finding:
    gangs, covers = measured_jobs(evidence, more_than=1)
    if gangs.is_empty():
        raise LackingError("No job with several GPUs has a known utilization.")
    low = (pl.col("mean_pct") > IDLE_PCT) & (pl.col("mean_pct") <= LOW_PCT)
    gangs = gangs.with_columns(low=low)
    sums = gangs.select("day", "gpu_hours", low=pl.when("low").then("gpu_hours").otherwise(0.0))
    users = gangs.filter("low").group_by("user").agg(pl.len().alias("jobs"), pl.col("gpu_hours").sum())
    few = int(gangs["low"].sum())
    return Finding(
        {
            "low_share": over_days(sums, ratio("low", "gpu_hours"), n=len(gangs)),
            "low_gangs": Number(float(few), len(gangs)),
            "spare_gpu_hours": Number(float(sums["low"].sum()) / 2, few),
        },
        notes=(NOTE,),
        rows=tuple(users.sort("gpu_hours", "user", descending=[True, False]).head(_SHOWN).iter_rows(named=True)),
        rows_title="Users whose multi-GPU jobs are half idle",
        text="" if few else "No measured multi-GPU job had GPUs that were busy 10 to 50 % of the time.",
        covers=covers,
        covers_of="the GPU-hours of multi-GPU jobs",
    )


GUIDELINE = Guideline(
    id="right-size-gangs",
    title="Right-size multi-GPU jobs",
    question="How many GPU-hours of multi-GPU jobs go to jobs that could use half the GPUs?",
    measures=(
        Measure(
            "low_share", "share of the GPU-hours of multi-GPU jobs at 10 to 50 % utilization", "share", "measured gangs"
        ),
        Measure("low_gangs", "such gangs", "gangs", "measured gangs"),
        Measure("spare_gpu_hours", "GPU-hours that half the GPUs would save", "GPU-hours", "such gangs"),
    ),
    thresholds=(Threshold("low_share", "at least", 0.3, "ours; 50 % counts as low in Gao et al. (ICSE'24)"),),
    finding=(
        "{low_gangs} had GPUs that were busy 10 to 50 % of the time, with {low_share} of the GPU-hours of "
        "multi-GPU jobs; half the GPUs would save up to {spare_gpu_hours}."
    ),
    find=_find,
    advice=(
        "Show users of such jobs their utilization next to what they requested, and let them try half the GPUs. "
        "First check for a slow input pipeline or slow links, because then fewer GPUs do the same work in the "
        "same time."
    ),
    cost="A report to each user, and one short trial run for each kind of job.",
    risk=(
        "Utilization shows that a GPU is busy, not that the work scales: with half the GPUs a job may take "
        "longer, and memory per GPU grows."
    ),
    practice=Practice(
        slurm=(
            "Mail from EpilogSlurmctld with DCGM's mean next to ReqTRES of 'sacct'; if it repeats, 'sacctmgr "
            "modify qos NAME set MaxTRESPerJob=gres/gpu=N' limits each job (GrpTRES limits all together)."
        ),
        kubernetes=(
            "A report by namespace from dcgm-exporter; elastic jobs with 'minAvailable' below the replicas in "
            "Volcano, or partial admission in Kueue (annotation 'kueue.x-k8s.io/job-min-parallelism' of a Job, "
            "'minCount' of the Workload's pod set)."
        ),
        yarn=(
            "A report by queue from the NodeManagers' GPU utilization. "
            "'yarn.resource-types.yarn.io/gpu.maximum-allocation' limits one container and 'maximum-capacity' the "
            "queue; YARN has no limit for the GPUs of one application."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): utilization by size",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial="We cannot estimate the gain: the log does not show how a job's speed changes with its GPUs.",
)
