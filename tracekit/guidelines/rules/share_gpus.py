"""Let jobs that use little of a GPU share one."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import IDLE_PCT, LOW_PCT, NOTE, measured_jobs


def _find(evidence: Evidence) -> Finding:
    low = (pl.col("gpu_count") <= 1) & (pl.col("mean_pct") > IDLE_PCT) & (pl.col("mean_pct") <= LOW_PCT)
    measured, covers = measured_jobs(evidence)
    jobs = measured.with_columns(low=low)
    sums = jobs.select("day", "gpu_hours", low=pl.when("low").then("gpu_hours").otherwise(0.0))
    held, few = float(sums["low"].sum()), int(jobs["low"].sum())
    return Finding(
        {
            "low_share": over_days(sums, ratio("low", "gpu_hours"), n=len(jobs)),
            "low_jobs": Number(float(few), len(jobs)),
            "freed_gpu_hours": Number(held / 2, few),
        },
        notes=(NOTE, "GPU memory is not considered: two jobs can share a GPU only if both fit in its memory."),
        text="" if few else "No measured job of at most one GPU kept it busy 10 to 50 % of the time.",
        covers=covers,
    )


GUIDELINE = Guideline(
    id="share-gpus",
    title="Share GPUs among jobs that use little of them",
    question="How many GPU-hours go to jobs of at most one GPU that are busy half of the time or less?",
    measures=(
        Measure(
            "low_share",
            "share of the measured GPU-hours in jobs of at most one GPU at 10 to 50 % utilization",
            "share",
            "measured jobs",
        ),
        Measure("low_jobs", "such jobs", "jobs", "measured jobs"),
        Measure("freed_gpu_hours", "GPU-hours that pairing all of them would free", "GPU-hours", "such jobs"),
    ),
    thresholds=(Threshold("low_share", "at least", 0.2, "ours; 50 % counts as low in Gao et al. (ICSE'24)"),),
    finding=(
        "{low_jobs} of at most one GPU kept it busy 10 to 50 % of the time, with {low_share} of the measured "
        "GPU-hours; pairing such jobs would free up to {freed_gpu_hours}."
    ),
    find=_find,
    advice=(
        "Let two such jobs share a GPU. Pair only jobs whose memory fits together and whose utilizations sum to "
        "100 % or less, start with jobs of one user or team, and separate them when one slows down."
    ),
    cost="Sharing must be set up on the nodes (MPS, time slicing or MIG), and jobs must declare their GPU memory.",
    risk="Jobs disturb each other, a fault of one can end both under MPS, and one may fill the memory of the other.",
    practice=Practice(
        slurm=(
            "GRES 'shard' with '--gres=shard:1' for small jobs, which counts jobs but does not isolate them, or "
            "'mps' with a prolog that starts its server; both need select/cons_tres. MIG slices, made beforehand, "
            "as types of GRES gpu (AutoDetect=nvml)."
        ),
        kubernetes=(
            "Time slicing or MPS in the NVIDIA device plugin, or MIG profiles, on separate nodes with a Kueue "
            "ResourceFlavor; in Volcano the deviceshare plugin ('deviceshare.VGPUEnable') and the vGPU device "
            "plugin, with 'volcano.sh/vgpu-number' and 'volcano.sh/vgpu-memory'."
        ),
        yarn=(
            "YARN does not share GPUs: a GPU belongs to one container. Run pairs inside one container; MIG slices "
            "need your own device plugin (pluggable device framework)."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Weng et al., MLaaS in the Wild (NSDI'22): GPU sharing in PAI",
        "Luo et al., arXiv 2407.13088: shortest first with sharing where the pair gains",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial=("We cannot estimate the gain: the policy that shares GPUs (sjf-bsbf) also lets short jobs go first."),
)
