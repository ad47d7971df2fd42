"""Guidelines about node outages: which jobs they stop, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from tracekit.calibration.losses import ASSUMED, LossChange
from tracekit.guidelines.declared import declared
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LossTrial,
    Number,
    day_of,
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.replay.outages.theory import CheckpointRule, daly_interval, expected_ettr
from tracekit.text import shorten

NEEDED_STOPS = 5
"""Minimum number of attempts that outages stopped (our choice, as for the effect)."""

_ATTEMPTS = f"""
SELECT
    i.job_id,
    i.attempt,
    j.status AS job_status,
    i.node_count AS nodes,
    i.gpu_count AS gpus,
    i.run_s,
    CAST(i.gpu_s AS DOUBLE) AS gpu_s,
    coalesce(i.interrupted AND i.node_cause IS NOT NULL, FALSE) AS by_event,
    coalesce(i.interrupted AND (i.node_cause IS NOT NULL OR i.status = 'node_fail'), FALSE) AS stopped,
    lead(i.attempt) OVER one AS next_attempt,
    lead(i.wait_s) OVER one AS next_wait_s,
    {day_of("i.end_time")} AS day
FROM attempt_interruptions AS i
INNER JOIN jobs AS j ON i.job_id = j.job_id
WHERE i.gpu_count > 0 AND i.run_s > 0 AND i.end_time IS NOT NULL
WINDOW one AS (PARTITION BY i.job_id ORDER BY i.attempt)
ORDER BY i.job_id, i.attempt
"""


def attempts_with_stops(evidence: Evidence) -> pl.DataFrame:
    """Return one row per finished GPU attempt: whether an outage stopped it, and how long the next attempt waited.

    The columns are job_id, attempt, job_status, nodes, gpus, run_s [s], gpu_s [GPU * s], by_event (one of its nodes
    failed according to node_events, as in the attempt_interruptions view), stopped (by_event, or the status is
    node_fail, as in failures/ettr), next_attempt and next_wait_s [s] of the same job (NULL if there is no next attempt
    or its wait is unknown), and day.

    Raises
    ------
    LackingError
        The Trace has no attempts.
    """
    return evidence.sql(_ATTEMPTS, also=("placements", "node_events"))


# Checkpoint multi-node jobs as often as their failure rate requires.

_EVERY_S = float(ASSUMED.interval_s)
_SAVING = ASSUMED.cost_s / (_EVERY_S + ASSUMED.cost_s)


def _find_checkpoint_interval(evidence: Evidence) -> Finding:
    attempts = attempts_with_stops(evidence)
    hit = pl.col("by_event")
    # As in tracekit.guidelines.effects, checkpoints take a share of the time, and a stop costs the unsaved work and a
    # restart.
    unsaved = (pl.col("run_s") % (_EVERY_S + ASSUMED.cost_s) + ASSUMED.restart_s) * pl.col("gpus") * (1 - _SAVING)
    cost = pl.col("gpu_s") * _SAVING + pl.when(hit).then(unsaved).otherwise(0.0)
    costs = attempts.select("day", held="gpu_s", cost=cost)
    placed = attempts.filter(pl.col("nodes") > 0)
    stops, node_s = int(placed["by_event"].sum()), float((placed["nodes"] * placed["run_s"]).sum())
    rows = _intervals_by_nodes(placed, stops / node_s) if stops and node_s else ()
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
                f"Logs do not record checkpoints, so the cost assumes {ASSUMED.words}. Ask the teams for their "
                f"values before you change anything."
            ),
            (
                "The best interval is Daly's, with a constant stop rate, equal for all nodes. The gain follows from "
                "renewal theory for long-running jobs."
            ),
        ),
        rows=rows,
        rows_title="Best interval by number of nodes",
        text="" if stops else none,
    )


def _intervals_by_nodes(attempts: pl.DataFrame, rate_per_s: float) -> tuple[dict[str, Any], ...]:
    """Compute the theoretical values for each number of nodes per job, from the stop rate per node and second."""
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


def _best_interval(_: Finding) -> tuple[LossChange, ...]:
    return (LossChange("checkpoints at the best interval for each job size", replace(ASSUMED, interval_s="daly")),)


CHECKPOINT_INTERVAL = Guideline(
    **declared("checkpoint-interval", needed_stops=NEEDED_STOPS),
    find=_find_checkpoint_interval,
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    trial=LossTrial(_best_interval),
)


# Restart jobs automatically after a node fails.

_LATE_S = 3600
_GOES_ON = ("running", "pending", "completed", "cancelled")


def _find_restart_automatically(evidence: Evidence) -> Finding:
    attempts = attempts_with_stops(evidence).with_columns(job_gpu_s=pl.col("gpu_s").sum().over("job_id"))
    late = pl.col("stopped") & (pl.col("next_wait_s") > _LATE_S)
    never = pl.col("stopped") & pl.col("next_attempt").is_null() & ~pl.col("job_status").is_in(_GOES_ON)
    found = attempts.select(
        "day",
        "stopped",
        held="gpu_s",
        late=late.fill_null(value=False),
        never=never.fill_null(value=False),
        waited=pl.when(late).then(pl.col("next_wait_s") * pl.col("gpus")).otherwise(0.0),
        dropped=pl.when(never).then("job_gpu_s").otherwise(0.0),
    )
    sums = found.select("day", "held", cost=pl.col("waited") + pl.col("dropped"))
    stops, lates, nevers = (int(found[name].sum()) for name in ("stopped", "late", "never"))
    return Finding(
        {
            "cost_share": over_days(sums, ratio("cost", "held"), n=len(found)),
            "left": Number(float(lates + nevers), stops),
            "stopped": Number(float(stops), len(found)),
            "late": Number(float(lates), stops),
            "never": Number(float(nevers), stops),
            "late_gpu_hours": Number(float(found["waited"].sum()) / 3600, lates),
            "dropped_gpu_hours": Number(float(found["dropped"].sum()) / 3600, nevers),
        },
        notes=(
            (
                "A stop is an attempt with the status node_fail, or an attempt that ended badly when one of its nodes "
                "failed. A job that was resubmitted as a new job counts as never restarted, because logs do not link "
                "the two jobs. Jobs that their users cancelled do not count."
            ),
            "A late start may also be due to a full cluster, so automatic restarts save at most these hours.",
        ),
        text="" if stops else "No outage stopped an attempt.",
    )


RESTART_AUTOMATICALLY = Guideline(
    **declared("restart-automatically", needed_stops=NEEDED_STOPS),
    find=_find_restart_automatically,
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
)


# Keep spare nodes for multi-node jobs. Without them, jobs wait after each failure.

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
"""Total time for each number of nodes out of service, as in failures/cluster_availability."""


def _find_keep_spares(evidence: Evidence) -> Finding:
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
                "A job may wait after an outage because of a full cluster, a repair or a slow scheduler. The replay "
                "shows how much of this wait spares would save, and how much longer other jobs would wait."
            ),
        ),
        text="" if len(stopped) else "No outage stopped a job on two or more nodes that continued later.",
    )


def _spares_held(_: Finding) -> tuple[LossChange, ...]:
    return tuple(
        LossChange(f"{number} spare{'s' if number > 1 else ''} kept free", spares=number, told_by="waited")
        for number in _SPARES
    )


KEEP_SPARES = Guideline(
    **declared("keep-spares", needed_stops=NEEDED_STOPS),
    find=_find_keep_spares,
    tables=("jobs", "attempts", "node_events"),
    needs=("statuses", "gpu_count", "run_time"),
    trial=LossTrial(_spares_held),
)


# Repair or replace nodes that go out of service much more often than others.

_LEMON_COLUMNS = (
    "node_id",
    "cluster",
    "rack",
    "failures",
    "worked_h",
    "expected_failures",
    "shrunk_per_1000_d",
    "shrunk_low",
    "shrunk_high",
    "probability",
)

_NAMED = 3
"""Maximum number of nodes that a sentence names."""


def _find_repair_lemons(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/lemon_nodes")
    lemons = answer.frame.filter("lemon")
    every = int(answer.frame["failures"].sum())
    failed, expected = int(lemons["failures"].sum()), float(lemons["expected_failures"].sum())
    return Finding(
        {
            "lemons": Number(float(len(lemons)), len(answer.frame)),
            "excess_failures": Number(failed - expected, failed),
            "failures_share": Number(failed / every if every else None, every),
            "nodes_share": Number(len(lemons) / len(answer.frame) if len(answer.frame) else None, len(answer.frame)),
        },
        notes=(
            *answer.notes,
            (
                "A node is a lemon if, given the records of all nodes, its failure rate is above twice the "
                "cluster's with a probability of at least 95 %. This guideline is about node outages; drain-nodes "
                "is about jobs that fail on a node."
            ),
        ),
        rows=tuple(lemons.select(_LEMON_COLUMNS).iter_rows(named=True)) if len(lemons) else (),
        rows_title="Lemon nodes",
        text=_naming(lemons["node_id"].to_list())
        if len(lemons)
        else "No node in the log fails more than twice as often as the average node.",
    )


def _naming(nodes: list[str]) -> str:
    """Insert the names of the worst nodes into the guideline's sentence."""
    # Escape braces, because a node name is plain text.
    names = [shorten(node, 30).replace("{", "{{").replace("}", "}}") for node in nodes[:_NAMED]]
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return REPAIR_LEMONS.finding.replace("{lemons}", ", ".join(names) + more)


def _without_lemons(finding: Finding) -> tuple[LossChange, ...]:
    names = frozenset(str(row["node_id"]) for row in finding.rows)
    return (LossChange("without the outages of these nodes", without=names),)


REPAIR_LEMONS = Guideline(
    **declared("repair-lemons"),
    find=_find_repair_lemons,
    tables=("jobs", "node_events"),
    least_n=2,
    trial=LossTrial(_without_lemons),
)


MEMBERS = (CHECKPOINT_INTERVAL, RESTART_AUTOMATICALLY, KEEP_SPARES, REPAIR_LEMONS)
