"""Let gangs wait for GPUs that are close together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import (
    Assumption,
    Finding,
    Guideline,
    LackingError,
    Measure,
    Number,
    Practice,
    RuleChange,
    Threshold,
    Trial,
)
from tracekit.guidelines.rules._drop import pooled_drop, sizes_with_both
from tracekit.guidelines.rules._sql import day_of

if TYPE_CHECKING:
    from tracekit.calibration.rules import Rules
    from tracekit.guidelines.evidence import Evidence
    from tracekit.replay.assumptions.models import Models

__all__ = ["GUIDELINE"]

_SAMPLES = f"""
WITH spread AS (
    SELECT job_id, attempt, count(DISTINCT node_id) AS node_count
    FROM placements
    WHERE len(gpu_index) > 0 OR gpu_count > 0
    GROUP BY job_id, attempt
),

sampled AS (
    SELECT job_id, attempt, count(*) AS samples, sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS total
    FROM attempt_samples
    GROUP BY job_id, attempt
)

SELECT a.gpu_count, p.node_count, {day_of("a.start_time")} AS day, s.samples, CAST(s.total AS DOUBLE) AS total
FROM sampled AS s
INNER JOIN attempts AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
INNER JOIN spread AS p ON s.job_id = p.job_id AND s.attempt = p.attempt
WHERE a.gpu_count > 1
"""

_WAITS = """
SELECT w.gpu_count, w.node_count, w.wait_s, j.run_s
FROM waits AS w
INNER JOIN jobs AS j ON w.job_id = j.job_id
WHERE w.attempt = 0 AND w.gpu_count > 1 AND w.wait_s IS NOT NULL AND w.node_count IS NOT NULL AND j.run_s IS NOT NULL
"""


def _marked(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with `worse`: on more nodes than the fewest on which a job of this size was seen."""
    fewest = pl.col("node_count").min().over("gpu_count")
    return sizes_with_both(frame.with_columns(worse=pl.col("node_count") > fewest))


def _find(evidence: Evidence) -> Finding:
    samples = _marked(evidence.sql(_SAMPLES))
    if samples.is_empty():
        raise LackingError("No size of job ran on different numbers of nodes while its GPUs were sampled.")
    spread = samples.filter("worse")
    waits = _marked(evidence.sql(_WAITS))
    extra, share = None, None
    if len(waits):
        medians = waits.group_by("gpu_count", "worse").agg(pl.col("wait_s").median())
        strict = medians.filter(~pl.col("worse")).join(medians.filter("worse"), on="gpu_count")
        # The dearest size decides: its jobs would have to wait longest for the fewest nodes.
        extra = max(0.0, float(strict.select((pl.col("wait_s") - pl.col("wait_s_right")).max()).item()))
        usual = float(waits.select(pl.col("run_s").median()).item())
        share = extra / usual if usual else None
    return Finding(
        {
            "drop_pct": pooled_drop(samples, len(spread)),
            "extra_wait_share": Number(share, len(waits)),
            "extra_wait_s": Number(extra, len(waits)),
        },
        notes=(
            "Sizes are compared with themselves: attempts on the fewest nodes seen for the size against those on more.",
            "Which jobs are spread is not drawn by lot: jobs that are spread may differ in more than their nodes.",
        ),
    )


def _spread(level: str) -> Assumption:
    def change(models: Models) -> Models:
        return replace(models, spread=replace(models.spread, level=level))

    return Assumption(f"penalty of spreading: {level}", change)


def _wait(minutes: float) -> RuleChange:
    def change(rules: Rules) -> Rules:
        changed = replace(rules, relax_s=60.0 * minutes, fit="place")
        fault = changed.fault()
        if fault is not None:
            raise LackingError(f"Waiting for locality is not replayed beside these rules: {fault}.")
        return changed

    words = f"at most {minutes:g} min" if minutes else "as long as it takes"
    return RuleChange(f"gangs wait for the fewest nodes {words}", change)


GUIDELINE = Guideline(
    id="wait-for-locality",
    title="Wait for locality",
    question="Are GPUs less busy when a job is spread over more nodes, and is the wait for fewer nodes short?",
    measures=(
        Measure("drop_pct", "loss of GPU utilization on more nodes than needed", "percent", "spread attempts"),
        Measure(
            "extra_wait_share", "extra median wait for the fewest nodes over the median run time", "share", "gangs"
        ),
        Measure("extra_wait_s", "extra median wait of jobs on the fewest nodes", "s", "gangs"),
    ),
    thresholds=(
        Threshold("drop_pct", "at least", 5, "ours; the direction is Philly's (ATC'19), first guideline"),
        Threshold("extra_wait_share", "at most", 0.1, "ours: run time above 10 times the extra wait"),
    ),
    finding=(
        "GPUs of gangs on more nodes than needed are {drop_pct} less busy than those of gangs of the same size on the "
        "fewest; the fewest nodes cost {extra_wait_s} of median wait, {extra_wait_share} of the median run time."
    ),
    find=_find,
    advice=(
        "Let a gang wait a bounded time for the fewest nodes before it takes GPUs further apart, longer for long jobs; "
        "move a long job when a better set of GPUs becomes free. The expected effect tells which time is best by size."
    ),
    cost="Gangs wait longer before they start, and free GPUs stand idle meanwhile.",
    risk="With a time that is too long large gangs starve; without telemetry of links the loss may have other causes.",
    practice=Practice(
        slurm=(
            "topology/tree with '--switches=1@MAX-WAIT', which max_switch_wait in SchedulerParameters caps (300 s by "
            "default); '--segment' with topology/block, without a time. '--nodes=N' asks for N nodes exactly and is "
            "not relaxed."
        ),
        kubernetes=(
            "Kueue topology-aware scheduling: 'kueue.x-k8s.io/podset-required-topology' waits for one domain, "
            "'kueue.x-k8s.io/podset-preferred-topology' takes what there is; Volcano 'networkTopology' with "
            "HyperNodes, 'mode: hard' and 'highestTierAllowed' or 'mode: soft', and the binpack plugin. Neither has a "
            "time after which the strict form is relaxed: submit again with the other."
        ),
        yarn=(
            "Capacity Scheduler 'yarn.scheduler.capacity.node-locality-delay' and "
            "'yarn.scheduler.capacity.rack-locality-additional-delay': they count missed scheduling opportunities, "
            "not seconds, and serve requests that name nodes or racks. Placement constraints (affinity) are never "
            "relaxed. YARN knows no gangs."
        ),
    ),
    sources=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 1, Table 5, Fig 4",
        "Weng et al., MLaaS in the Wild (NSDI'22)",
    ),
    tables=("jobs", "attempts", "placements", "gpu_utilization"),
    needs=("utilization", "placement", "gpu_index", "queueing", "run_time"),
    trial=Trial(
        tuple(_wait(minutes) for minutes in (10, 1, 60, 0)),
        bracket=(_spread("default"), _spread("low"), _spread("high")),
    ),
)
