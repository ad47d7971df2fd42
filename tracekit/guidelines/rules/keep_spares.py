"""Keep spare nodes for multi-node jobs that wait after each failure."""

from __future__ import annotations

import polars as pl

from tracekit.calibration.losses import LossChange
from tracekit.guidelines.interface import Evidence, Finding, Guideline, LossTrial, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import NEEDED_STOPS, attempts_with_stops

_SPARES = (1, 2, 4)

_DOWN = """
WITH turn AS (
    SELECT t, sum(step) AS step
    FROM (
        SELECT since AS t, 1 AS step FROM node_outages
        UNION ALL
        SELECT until, -1 FROM node_outages
        UNION ALL
        SELECT unnest([since, until]), 0 FROM observed_time
    ) AS turns
    GROUP BY t
),

span AS (
    SELECT sum(step) OVER (ORDER BY t ROWS UNBOUNDED PRECEDING) AS down, lead(t) OVER (ORDER BY t) - t AS us FROM turn
)

SELECT
    CAST(down AS BIGINT) AS down,
    CAST(sum(us) AS DOUBLE) AS us,
    (SELECT count(*) FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events) AS known) AS nodes
FROM span
WHERE us > 0
GROUP BY down
ORDER BY down
"""
"""How long each number of nodes was out of service at once, as in failures/cluster_availability."""


def _find(evidence: Evidence) -> Finding:
    gangs = attempts_with_stops(evidence).filter(pl.col("nodes") > 1)
    stopped = gangs.filter(pl.col("stopped") & (pl.col("next_wait_s") >= 0))
    stalled = pl.when(pl.col("stopped") & (pl.col("next_wait_s") >= 0)).then(pl.col("next_wait_s") * pl.col("gpus"))
    sums = gangs.select("day", held="gpu_s", stalled=stalled.fill_null(0.0))
    median = stopped["next_wait_s"].median()
    widest = int(gangs["nodes"].cast(pl.Int64).to_numpy().max(initial=0))
    down = evidence.sql(_DOWN, also=("nodes", "node_events"))
    short = float(down.filter(pl.col("nodes") - pl.col("down") < widest)["us"].sum())
    every = float(down["us"].sum())
    return Finding(
        {
            "stalled_share": over_days(sums, ratio("stalled", "held"), n=len(gangs)),
            "stopped": Number(float(len(stopped)), len(gangs)),
            "median_wait_s": Number(float(median) if isinstance(median, int | float) else None, len(stopped)),
            "stalled_gpu_hours": Number(float(sums["stalled"].sum()) / 3600, len(stopped)),
            "widest_nodes": Number(float(widest) if widest else None, len(gangs)),
            "short_share": Number(short / every if every and widest else None, down.height),
        },
        notes=(
            (
                "A job may wait after an outage because of a full cluster, a repair or a slow scheduler. The "
                "replay with spares shows how much of that wait more reserve nodes would save, and how much "
                "longer other jobs wait."
            ),
        ),
        text="" if len(stopped) else "No job on two or more nodes was stopped by an outage and continued later.",
    )


def _changes(_: Finding) -> tuple[LossChange, ...]:
    return tuple(
        LossChange(f"{number} spare{'s' if number > 1 else ''} held free", spares=number, told_by="waited")
        for number in _SPARES
    )


GUIDELINE = Guideline(
    id="keep-spares",
    title="Keep spare nodes for multi-node jobs",
    question="How long do multi-node jobs wait after an outage until they have all their nodes again?",
    measures=(
        Measure(
            "stalled_share",
            "GPU-hours that multi-node jobs wait after outages, as a share of their GPU-hours",
            "share",
            "attempts of multi-node jobs",
        ),
        Measure(
            "stopped",
            "multi-node jobs that an outage stopped and that continued later",
            "gangs",
            "attempts of multi-node jobs",
        ),
        Measure("median_wait_s", "their median wait", "s", "such gangs"),
        Measure("stalled_gpu_hours", "total wait in GPU-hours", "GPU-hours", "such gangs"),
        Measure("widest_nodes", "nodes of the largest job", "nodes", "attempts of multi-node jobs"),
        Measure(
            "short_share", "share of the time in which fewer nodes are in service", "share", "levels of nodes down"
        ),
    ),
    thresholds=(
        Threshold("stalled_share", "at least", 0.01, "ours"),
        Threshold("stopped", "at least", NEEDED_STOPS, "ours: a few may be chance"),
        Threshold("median_wait_s", "at least", 600, "ours: twice the time of a restart in Kokolis et al. (HPCA'25)"),
    ),
    finding=(
        "Outages stopped {stopped} on two or more nodes, which then waited {median_wait_s} in the median and "
        "{stalled_gpu_hours} in total, {stalled_share} of the GPU-hours of multi-node jobs. For {short_share} of "
        "the time, fewer nodes are in service than the largest job needs."
    ),
    find=_find,
    advice=(
        "Keep a few nodes free, or fill them only with jobs that may be stopped at once, so a job that loses a "
        "node can continue on a spare. 'tracekit plan --gang' computes how many spares a multi-node job needs."
    ),
    cost="The spares do no other work, or only work that can be stopped; other jobs wait longer if the cluster is "
    "full.",
    risk="Spares save nothing if the jobs wait for other reasons, or if faults take down more nodes at once.",
    practice=Practice(
        slurm=(
            "A reservation with flag MAINT or for the teams with large jobs, 'scontrol create reservation "
            "nodecnt=N'; or a partition on all nodes whose jobs are preempted (PreemptMode=REQUEUE)."
        ),
        kubernetes=(
            "Pods of a low PriorityClass that request whole nodes and do nothing, which the pods of a multi-node "
            "job preempt; in Kueue a 'nominalQuota' below the real capacity, so other queues borrow the rest and "
            "are preempted."
        ),
        yarn="A queue with a guaranteed capacity for large jobs, and preemption of what other queues borrow from it.",
    ),
    sources=(
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)",
        "The replay with spares, docs/replay.md",
    ),
    tables=("jobs", "attempts", "node_events"),
    needs=("statuses", "gpu_count", "run_time"),
    trial=LossTrial(_changes),
)
