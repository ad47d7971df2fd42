"""Ask for fewer GPUs where a gang leaves them half idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import Finding, Guideline, LackingError, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._measured import IDLE_PCT, LOW_PCT, NOTE, measured_jobs

if TYPE_CHECKING:
    from tracekit.guidelines.evidence import Evidence

__all__ = ["GUIDELINE"]

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
        rows_title="Users whose gangs are half idle",
        text="" if few else "No measured gang had GPUs that were busy 10 to 50 % of the time.",
        covers=covers,
        covers_of="the GPU-hours of gangs",
    )


GUIDELINE = Guideline(
    id="right-size-gangs",
    title="Right-size gangs",
    question="How many of the GPU-hours of jobs with several GPUs go to gangs that could do with half?",
    measures=(
        Measure("low_share", "share of the gangs' GPU-hours at 10 to 50 % utilization", "share", "measured gangs"),
        Measure("low_gangs", "such gangs", "gangs", "measured gangs"),
        Measure("spare_gpu_hours", "GPU-hours that half the GPUs would spare", "GPU-hours", "such gangs"),
    ),
    thresholds=(Threshold("low_share", "at least", 0.3, "ours; that 50 % is low: Gao et al. (ICSE'24)"),),
    finding=(
        "{low_gangs} had GPUs that were busy 10 to 50 % of the time, with {low_share} of the GPU-hours of gangs; half "
        "the GPUs would spare up to {spare_gpu_hours}."
    ),
    find=_find,
    advice=(
        "Tell users of such gangs their utilization beside what they asked for, and let them try half the GPUs; first "
        "look for a slow input pipeline or slow links, since then fewer GPUs do the same work in the same time."
    ),
    cost="A report to each user, and one short trial run for each kind of job.",
    risk=(
        "Utilization says that a GPU is busy, not that the work scales: at half the GPUs a job may take longer, and "
        "memory per GPU grows."
    ),
    practice=Practice(
        slurm=(
            "Mail from EpilogSlurmctld with DCGM's mean beside ReqTRES of 'sacct'; where it repeats, 'sacctmgr modify "
            "qos NAME set MaxTRESPerJob=gres/gpu=N' limits each job (GrpTRES limits all together)."
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
    no_trial="Cannot tell: how a job's speed changes with its GPUs is not in the log.",
)
