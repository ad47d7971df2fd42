"""Reclaim GPUs from jobs that leave them idle."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import IDLE_PCT, NOTE, measured_jobs

_LEAST_RUN_S = 3600
_SHOWN = 20


def _find(evidence: Evidence) -> Finding:
    measured, covers = measured_jobs(evidence)
    jobs = measured.with_columns(idle=(pl.col("mean_pct") <= IDLE_PCT) & (pl.col("run_s") >= _LEAST_RUN_S))
    sums = jobs.select("day", "gpu_hours", wasted=pl.when("idle").then("wasted_gpu_h").otherwise(0.0))
    idle = jobs.filter("idle").sort("wasted_gpu_h", "job_id", descending=[True, False])
    rows = idle.head(_SHOWN).select("job_id", "user", "vc", "gpu_count", "run_s", "mean_pct", "wasted_gpu_h")
    return Finding(
        {
            "idle_share": over_days(sums, ratio("wasted", "gpu_hours"), n=len(jobs)),
            "idle_jobs": Number(float(len(idle)), len(jobs)),
            "wasted_gpu_hours": Number(float(sums["wasted"].sum()), len(idle)),
        },
        notes=(NOTE,),
        rows=tuple(rows.iter_rows(named=True)),
        rows_title="Idle jobs that cost the most",
        text="" if len(idle) else "No measured job used its GPUs at 10 % utilization or less for an hour or more.",
        covers=covers,
    )


GUIDELINE = Guideline(
    id="reclaim-idle",
    title="Reclaim GPUs from idle jobs",
    question="How many GPU-hours go to jobs that keep GPUs for long and leave them idle?",
    measures=(
        Measure("idle_share", "share of the measured GPU-hours wasted by idle jobs", "share", "measured jobs"),
        Measure("idle_jobs", "idle jobs", "jobs", "measured jobs"),
        Measure("wasted_gpu_hours", "GPU-hours wasted by idle jobs", "GPU-hours", "idle jobs"),
    ),
    thresholds=(
        Threshold(
            "idle_share", "at least", 0.05, "ours: below a twentieth a reclaimer costs more trouble than it saves"
        ),
    ),
    finding=(
        "{idle_jobs} had GPUs for an hour or more at 10 % utilization or less; they wasted {wasted_gpu_hours}, "
        "{idle_share} of all measured GPU-hours."
    ),
    find=_find,
    advice=(
        "Monitor the GPU utilization of running jobs. Warn the owner after half an hour at 10 % or less, and take "
        "the GPUs back after another hour unless the owner objects. Give interactive jobs their own pool and time "
        "limit."
    ),
    cost="An exporter of GPU telemetry on every node, and a rule that warns and ends jobs.",
    risk="Jobs that load data or evaluate on the CPU for long look idle; let owners mark them, and warn before "
    "ending them.",
    practice=Practice(
        slurm=(
            "The prolog writes the job's GPUs (SLURM_JOB_GPUS) to the directory of dcgm-exporter's "
            "'--hpc-job-mapping-dir'; warn by mail, end with 'scancel'; a separate partition with a short MaxTime "
            "for interactive jobs. Slurm itself does not end idle jobs."
        ),
        kubernetes=(
            "dcgm-exporter and an alert on the mean of DCGM_FI_DEV_GPU_UTIL by pod; a controller deletes or stops the "
            "job: with Kueue by '.spec.active: false' of the Workload ('kueuectl stop workload') and not by "
            "'.spec.suspend' of the job, which Kueue sets itself; with Volcano by 'vcctl job suspend' (AbortJob)."
        ),
        yarn=(
            "Each NodeManager lists its GPUs, their utilization and their containers at "
            "'/ws/v1/node/resources/yarn.io%2Fgpu'; a script collects this and ends jobs with 'yarn application "
            "-kill'. Preemption ignores utilization."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Weng et al., MLaaS in the Wild (NSDI'22): GPUs that are requested and hardly used",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial=(
        "A replay keeps each job's run time and ends no idle job early, so it cannot show the gain. At most the "
        "wasted GPU-hours are saved."
    ),
)
