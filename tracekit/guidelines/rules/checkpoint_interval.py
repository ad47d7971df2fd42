"""Save the work of gangs as often as their failures ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.calibration.losses import ASSUMED, LossChange
from tracekit.guidelines.interface import Evidence, Finding, Guideline, LossTrial, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import NEEDED_STOPS, attempts_with_stops
from tracekit.replay.outages.theory import CheckpointRule, daly_interval, expected_ettr

_EVERY_S = float(ASSUMED.interval_s)
_SAVING = ASSUMED.cost_s / (_EVERY_S + ASSUMED.cost_s)


def _find(evidence: Evidence) -> Finding:
    attempts = attempts_with_stops(evidence)
    hit = pl.col("by_event")
    # As in tracekit.guidelines.losses: a share of the time goes into saving, and a stop costs the unsaved work and a
    # restart.
    unsaved = (pl.col("run_s") % (_EVERY_S + ASSUMED.cost_s) + ASSUMED.restart_s) * pl.col("gpus") * (1 - _SAVING)
    cost = pl.col("gpu_s") * _SAVING + pl.when(hit).then(unsaved).otherwise(0.0)
    costs = attempts.select("day", held="gpu_s", cost=cost)
    placed = attempts.filter(pl.col("nodes") > 0)
    stops, node_s = int(placed["by_event"].sum()), float((placed["nodes"] * placed["run_s"]).sum())
    rows = _rows(placed, stops / node_s) if stops and node_s else ()
    held = sum(row["gpu_hours"] for row in rows)
    gain = sum(row["gpu_hours"] * (row["best_ettr"] - row["assumed_ettr"]) for row in rows)
    widest = rows[-1] if rows else None
    none = "No outage stopped an attempt with known nodes, so the log does not show how often to save."
    return Finding(
        {
            "cost_share": over_days(costs, ratio("cost", "held"), n=len(attempts)),
            "stops": Number(float(stops), len(placed)),
            "cost_gpu_hours": Number(float(costs["cost"].sum()) / 3600, len(attempts)),
            "stops_per_1000_node_d": Number(stops / node_s * 86_400_000 if node_s else None, stops),
            "widest_nodes": Number(float(widest["nodes"]) if widest else None, widest["attempts"] if widest else 0),
            "best_interval_s": Number(widest["best_interval_s"] if widest else None, stops),
            "gain_share": Number(gain / held if held else None, stops),
        },
        notes=(
            (
                f"No log records how often jobs save: the cost assumes {ASSUMED.words}. Ask the teams for their "
                "values before you change anything."
            ),
            (
                "The best interval is Daly's for the rate of stops, assumed constant and equal for each node; the "
                "gain is that of long work by renewal theory."
            ),
        ),
        rows=rows,
        rows_title="Best interval by number of nodes",
        text="" if stops else none,
    )


def _rows(attempts: pl.DataFrame, rate_per_s: float) -> tuple[dict[str, Any], ...]:
    """Return the theory's values for jobs of each number of nodes, from the stops of a node per second."""
    rows = []
    sizes = (
        attempts.group_by("nodes", maintain_order=True)
        .agg(pl.len().alias("attempts"), pl.col("gpu_s").sum())
        .sort("nodes")
    )
    for nodes, count, gpu_s in sizes.iter_rows():
        rate = rate_per_s * nodes
        best = max(daly_interval(ASSUMED.cost_s, 1 / rate), ASSUMED.cost_s)
        every, often = (CheckpointRule(s, ASSUMED.cost_s, ASSUMED.restart_s) for s in (_EVERY_S, best))
        row = {"nodes": nodes, "attempts": count, "gpu_hours": gpu_s / 3600, "hours_between_stops": 1 / rate / 3600}
        row |= {"best_interval_s": best, "assumed_ettr": expected_ettr(every, rate)}
        rows.append(row | {"best_ettr": expected_ettr(often, rate)})
    return tuple(rows)


def _changes(_: Finding) -> tuple[LossChange, ...]:
    return (LossChange("checkpoints at the best interval of each job size", replace(ASSUMED, interval_s="daly")),)


GUIDELINE = Guideline(
    id="checkpoint-interval",
    title="Save multi-node jobs as often as their failure rate requires",
    question="What do outages and checkpoints cost together, and how much less would it be at the best interval?",
    measures=(
        Measure("cost_share", "share of GPU-hours that outages and checkpoints cost", "share", "attempts"),
        Measure("stops", "attempts that outages stopped", "attempts", "attempts with known nodes"),
        Measure("cost_gpu_hours", "GPU-hours that outages and checkpoints cost", "GPU-hours", "attempts"),
        Measure("stops_per_1000_node_d", "stops per thousand node-days of attempts", "stops", "stops"),
        Measure("widest_nodes", "nodes of the largest jobs", "nodes", "their attempts"),
        Measure("best_interval_s", "best work time between two checkpoints of these jobs", "s", "stops"),
        Measure("gain_share", "share of GPU-hours that the best intervals would save, by theory", "share", "stops"),
    ),
    thresholds=(
        Threshold(
            "cost_share",
            "at least",
            0.02,
            "ours: a checkpoint of one minute per hour alone, without any outage, costs 1.6 %",
        ),
        Threshold("stops", "at least", NEEDED_STOPS, "ours: with fewer, the rate is too uncertain"),
        Threshold("gain_share", "at least", 0.005, "ours"),
    ),
    finding=(
        "Outages stopped {stops}. With a checkpoint every hour, outages and checkpoints together cost "
        "{cost_gpu_hours}, {cost_share} of all. The largest jobs, on {widest_nodes}, should save after "
        "{best_interval_s} of work. The best interval for each job size would save {gain_share} of the GPU-hours."
    ),
    find=_find,
    advice=(
        "Let each multi-node job save at the interval that suits its number of nodes: the square root of twice "
        "the cost of a checkpoint times the time between failures. Give users that time, and measure what a "
        "checkpoint costs."
    ),
    cost="Storage bandwidth and space if jobs save more often; work on programs that save at a fixed step.",
    risk=(
        "The numbers change if jobs already save at another interval, or if a checkpoint takes longer. Failures "
        "that come in bursts make the best interval shorter than the rate suggests."
    ),
    practice=Practice(
        slurm=(
            "Set the interval in the environment of jobs from their number of nodes, in a job_submit plug-in or a "
            "TaskProlog, and have scripts pass it to the program; '--requeue' starts them again."
        ),
        kubernetes=(
            "Set it as an environment variable from the number of replicas, in the template of the Job or by an "
            "admission webhook; mount a volume that outlives the pod for checkpoints. A JobSet with a failure "
            "policy, or Volcano's RestartJob on PodFailed, starts the job again."
        ),
        yarn=(
            "The launcher sets it from the number of containers; checkpoints go to HDFS, and "
            "'yarn.resourcemanager.am.max-attempts' above 1 lets the application continue from them."
        ),
    ),
    sources=(
        "Daly, A higher order estimate of the optimum checkpoint interval for restart dumps (FGCS 22, 2006)",
        "Young, A first order approximation to the optimum checkpoint interval (CACM 17, 1974)",
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)",
    ),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    trial=LossTrial(_changes),
)
