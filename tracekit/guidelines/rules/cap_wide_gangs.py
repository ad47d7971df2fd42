"""Cap or split jobs on so many nodes that a failure is likely to hit them before they end."""

from __future__ import annotations

from typing import Any

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, Measure, Number, Practice, Threshold

_LEAST_JOBS = 10
"""Fewest jobs of a size; our choice."""

_SIZES = """
WITH job AS (
    SELECT
        a.job_id,
        CAST(pow(2, greatest(0, ceil(log2(any_value(j.gpu_count)) - 1e-9))) AS BIGINT) AS gpus,
        max(a.node_count) AS nodes,
        sum(a.run_s) / 3600 AS run_h
    FROM attempts AS a
    INNER JOIN jobs AS j ON a.job_id = j.job_id
    WHERE j.gpu_count > 0 AND coalesce(j.status, '') NOT IN ('running', 'pending')
    GROUP BY a.job_id
    HAVING count(a.run_s) = count(*) AND sum(a.run_s) > 0 AND count(a.node_count) = count(*)
)

SELECT
    gpus,
    count(*) AS jobs,
    quantile_cont(run_h, 0.5) AS median_run_h,
    CAST(pow(2, ceil(log2(quantile_cont(nodes, 0.5)))) AS BIGINT) AS nodes
FROM job
WHERE nodes > 0
GROUP BY gpus
ORDER BY gpus
"""
"""Job sizes as in failures/ettr, with their median run time."""


def _find(evidence: Evidence) -> Finding:
    ettr = evidence.query("failures/ettr", interruptions="node").frame
    sizes = evidence.sql(_SIZES).filter((pl.col("jobs") >= _LEAST_JOBS) & (pl.col("nodes") > 1))
    rows: list[dict[str, Any]] = []
    for size in sizes.iter_rows(named=True):
        hits = evidence.query("failures/by_gang", within_h=round(size["median_run_h"], 6)).frame
        hit = hits.filter(pl.col("nodes") == size["nodes"])["hit_share"].to_list()
        own = ettr.filter(pl.col("gpus") == size["gpus"])["ettr"].to_list()
        rows.append(size | {"hit_share": hit[0] if hit else None, "ettr": own[0] if own else None})
    known = [row for row in rows if row["hit_share"] is not None]
    worst = max(known, key=lambda row: (row["hit_share"], row["gpus"]), default=None)
    others = ettr.filter(pl.col("gpus") < worst["gpus"]) if worst else ettr.clear()
    wall = float(others["wall_h"].sum())
    rest = float(others["productive_h"].sum()) / wall if wall > 0 else None
    own_ettr = worst["ettr"] if worst else None
    gap = rest - own_ettr if rest is not None and own_ettr is not None else None
    jobs = worst["jobs"] if worst else 0
    none = "No ten jobs of one size ran on two or more nodes long enough to measure how often they are hit."
    return Finding(
        {
            "hit_share": Number(
                worst["hit_share"] if worst else 0.0, int(sum(row["jobs"] for row in rows)) or len(ettr)
            ),
            "gpus": Number(float(worst["gpus"]) if worst else None, jobs),
            "jobs": Number(float(jobs), jobs),
            "median_run_s": Number(worst["median_run_h"] * 3600 if worst else None, jobs),
            "ettr": Number(own_ettr, jobs),
            "rest_ettr": Number(rest, int(others["jobs"].sum())),
            "ettr_gap": Number(gap, jobs),
        },
        notes=(
            (
                "The chance of being hit is that of failures/by_gang for neighbouring nodes, within the median "
                "run time of such jobs. The training time ratio is that of failures/ettr with a checkpoint every "
                "hour, counting only interruptions by node failures. It includes the time spent waiting for this "
                "many nodes."
            ),
        ),
        rows=tuple(rows),
        rows_title="Multi-node jobs by size",
        text="" if worst else none,
    )


GUIDELINE = Guideline(
    id="cap-wide-gangs",
    title="Cap or split jobs on very many nodes",
    question="How likely is a job on many nodes to be hit by a failure before it ends, and what does that cost?",
    measures=(
        Measure(
            "hit_share",
            "chance that one of the job's nodes fails within its run time",
            "share",
            "jobs on several nodes",
        ),
        Measure("gpus", "GPUs of the jobs that are hit most", "GPUs", "jobs of that size"),
        Measure("jobs", "jobs of that size", "jobs", "jobs of that size"),
        Measure("median_run_s", "their median run time", "s", "jobs of that size"),
        Measure("ettr", "their effective training time ratio", "share", "jobs of that size"),
        Measure("rest_ettr", "effective training time ratio of all smaller jobs", "share", "smaller jobs"),
        Measure("ettr_gap", "the difference", "share", "jobs of that size"),
    ),
    thresholds=(
        Threshold("hit_share", "more than", 0.5, "ours: a failure is then more likely than not"),
        Threshold("ettr_gap", "at least", 0.05, "ours"),
    ),
    finding=(
        "{jobs} on about {gpus} run for {median_run_s} in the median, and with a chance of {hit_share} one of "
        "their nodes fails in that time. They make progress in {ettr} of the time since submission, smaller jobs "
        "in {rest_ettr}."
    ),
    find=_find,
    advice=(
        "Cap such jobs if the work runs as well on fewer nodes, split it into parts that fail separately, or let "
        "them shrink and continue without the failed node. Test all nodes of a multi-node job before it starts."
    ),
    cost="Work takes longer on fewer nodes, and programs that shrink must be written for it.",
    risk="A model that needs this many GPUs cannot be split; less waste may still mean a later end.",
    practice=Practice(
        slurm=(
            "MaxNodes of the partition or 'MaxTRESPerJob=node=N' of the QOS; '--nodes=MIN-MAX' lets a job take "
            "fewer nodes, and 'srun --no-kill' lets an elastic program continue after a node fails."
        ),
        kubernetes=(
            "An elastic PyTorchJob with 'minReplicas' and 'maxReplicas'; Kueue's partial admission with "
            "'kueue.x-k8s.io/job-min-parallelism'; 'minAvailable' below the number of replicas in Volcano."
        ),
        yarn="'maximum-allocation' of the queue for containers, and a cap on their number in the launcher.",
    ),
    sources=(
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)",
        "The definitions in failures/by_gang and failures/ettr",
    ),
    tables=("jobs", "attempts", "node_events"),
    needs=("statuses", "gpu_count", "run_time"),
    least_n=_LEAST_JOBS,
    no_trial="We cannot estimate the gain: no log shows how long the work takes on fewer nodes.",
)
