"""Keep jobs from disturbing each other on a node."""

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
from tracekit.guidelines.intervals import pooled_drop, strata_with_both
from tracekit.guidelines.rules._evidence import day_of

# The shared times of a node do not overlap, so the last one that began shows whether a sample is shared.
_SAMPLES = f"""
WITH judged AS (
    SELECT s.job_id, s.attempt, s.utilization_pct, coalesce(s.time < t.until, FALSE) AS worse
    FROM attempt_samples AS s
    ASOF LEFT JOIN shared_node_times AS t ON s.node_id = t.node_id AND s.time >= t.since
),

counted AS (
    SELECT
        j.job_id,
        j.attempt,
        a.gpu_count,
        j.worse,
        {day_of("a.start_time")} AS day,
        count(*) AS samples,
        sum(CAST(j.utilization_pct AS DECIMAL(38, 6))) AS total
    FROM judged AS j
    INNER JOIN attempts AS a ON j.job_id = a.job_id AND j.attempt = a.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5
)

SELECT gpu_count, worse, day, samples, CAST(total AS DOUBLE) AS total FROM counted
"""


def _find(evidence: Evidence) -> Finding:
    samples = evidence.sql(_SAMPLES, merge=("counted",))
    all_samples = int(samples["samples"].sum())
    both = strata_with_both(samples)
    if both.is_empty():
        raise LackingError("No job size has samples both alone on its node and next to another job.")
    shared = both.filter("worse")
    beside = int(samples.filter("worse")["samples"].sum())
    return Finding(
        {
            "drop_pct": pooled_drop(both, len(shared)),
            "shared_share": Number(beside / all_samples, all_samples),
        },
        notes=(
            (
                "Each size is compared with itself, sample by sample, as in locality/utilization_by_colocation "
                "with rule=same_node; the sizes are weighted by their shared samples."
            ),
        ),
        rows=tuple(
            both.group_by("gpu_count", "worse")
            .agg(pl.col("samples").sum(), (pl.col("total").sum() / pl.col("samples").sum()).alias("mean_pct"))
            .sort("gpu_count", "worse")
            .select("gpu_count", pl.col("worse").alias("beside_others"), "samples", "mean_pct")
            .iter_rows(named=True)
        ),
        rows_title="GPU utilization alone and next to other jobs",
    )


GUIDELINE = Guideline(
    id="limit-interference",
    title="Dedicate nodes, or migrate, against interference",
    question="Are GPUs less busy while another job uses GPUs of the same node?",
    measures=(
        Measure("drop_pct", "loss of GPU utilization next to other jobs", "percent", "attempts next to other jobs"),
        Measure("shared_share", "share of samples next to other jobs", "share", "samples"),
    ),
    thresholds=(
        Threshold("drop_pct", "at least", 5, "ours; the direction is that of Philly's second guideline (ATC'19)"),
        Threshold("shared_share", "at least", 0.05, "ours: below, few jobs would gain"),
    ),
    finding="GPUs are {drop_pct} less busy while other jobs run on the node; this concerns {shared_share} of the "
    "samples.",
    find=_find,
    advice=(
        "Give jobs their own nodes if their size allows it, keep small jobs together on few nodes, and move small "
        "jobs to free whole nodes. On shared nodes give each job its own CPU cores and memory."
    ),
    cost="Jobs that need less than a node get a whole node, so some GPUs are idle; moving a job costs a restart.",
    risk="More fragmentation and longer waits if most jobs are small.",
    practice=Practice(
        slurm=(
            "'--exclusive' for multi-node jobs, or ExclusiveUser=YES of a partition if jobs of one user may share "
            "a node; a partition for small jobs. TaskPlugin=task/affinity,task/cgroup with ConstrainCores and "
            "ConstrainRAMSpace in cgroup.conf. Slurm does not move running jobs."
        ),
        kubernetes=(
            "Node pools by job size as Kueue ResourceFlavors; the kubelet's static CPU manager policy, which "
            "gives Guaranteed pods whole CPUs, and its topology manager. Volcano's binpack plugin collects small "
            "jobs on few nodes. Its rescheduling plugin instead balances the load of nodes, so use a descheduler "
            "to move small jobs away."
        ),
        yarn=(
            "An exclusive partition of node labels for multi-node jobs; cgroups for CPU and memory; anti-affinity "
            "as a placement constraint ('yarn.resourcemanager.placement-constraints.handler' is disabled by "
            "default). YARN does not move containers."
        ),
    ),
    sources=("Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 2, Table 4, Fig 6",),
    tables=("jobs", "attempts", "placements", "gpu_utilization"),
    needs=("utilization", "placement", "gpu_index"),
    no_trial="A replay runs jobs on one node at their recorded speed, so it cannot show the gain.",
)
