"""Guidelines about waits in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.guidelines.declared import declared
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    NodeChange,
    Number,
    RuleChange,
    Trial,
    day_of,
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.array_types import Floats
    from tracekit.calibration.rules import Rules


_WAITS = f"""
SELECT
    CAST(wait_us AS DOUBLE) / 1e6 AS wait_s,
    CAST(fair_share_us AS DOUBLE) / 1e6 AS fair_share_s,
    CAST(fragmentation_us AS DOUBLE) / 1e6 AS fragmentation_s,
    CAST(other_us AS DOUBLE) / 1e6 AS other_s,
    {day_of("j.submit_time")} AS day
FROM wait_causes AS w
INNER JOIN jobs AS j ON w.job_id = j.job_id
WHERE w.wait_us > 0 AND w.gpu_count > 0 AND j.submit_time IS NOT NULL
"""


def waits(evidence: Evidence) -> Answer:
    """Return one row per wait above 0 s: its length, the time due to each cause [s], and the day of submission.

    The causes are those of queuing/delay_causes. fragmentation_s is NULL if the nodes are unknown.

    Raises
    ------
    LackingError
        There are no waits.
    """
    answer = evidence.answer(_WAITS)
    if answer.frame.is_empty():
        raise LackingError("No job with GPUs has a recorded wait.")
    return answer


# Let later jobs overtake a job that does not fit yet.

_LIMITS = "SELECT count(*) AS jobs, count(time_limit_s) AS limited FROM jobs WHERE gpu_count > 0"


def _find_backfill(evidence: Evidence) -> Finding:
    answer = waits(evidence)
    frame = answer.frame
    limits = evidence.sql(_LIMITS)
    jobs, limited = int(limits["jobs"][0]), int(limits["limited"][0])
    sums = frame.select("day", "wait_s", "other_s")
    return Finding(
        {
            "placeable_share": over_days(sums, ratio("other_s", "wait_s"), n=len(frame)),
            "placeable_wait_s": Number(float(frame.select(pl.col("other_s").mean()).item()), len(frame)),
            "limit_share": Number(limited / jobs if jobs else None, jobs),
        },
        notes=(
            (
                "The placeable part of a wait is the part that queuing/delay_causes explains neither by quota nor by "
                f"fragmentation: enough GPUs were free on the fewest nodes, and the {evidence.trace.tenant.one} was "
                "within its quota."
            ),
            *answer.notes,
        ),
    )


def _easy(estimates: str, words: str) -> RuleChange:
    rules = {"backfill": "easy", "estimates": estimates, "scan": "stop", "queues": "one"}
    return RuleChange.of(f"EASY backfilling {words}", "Backfilling", **rules)


BACKFILL = Guideline(
    **declared("backfill"),
    find=_find_backfill,
    tables=("jobs", "attempts", "placements"),
    needs=("queueing", "gpu_count", "placement"),
    trial=Trial((_easy("limit", "by time limits"), _easy("oracle", "by the true run times")), headline="queue"),
)


# Let short jobs go before long ones.

_LEAST_WAIT_S = 60

_SERVICES = f"""
SELECT queue_s, run_s, gpu_count * run_s AS service, "user", "name", gpu_count, {day_of("submit_time")} AS day
FROM jobs
WHERE gpu_count > 0 AND queue_s IS NOT NULL AND run_s > 0 AND submit_time IS NOT NULL
"""


def _find_order_by_service(evidence: Evidence) -> Finding:
    jobs = evidence.sql(_SERVICES)
    if jobs.is_empty():
        raise LackingError("No job with GPUs has both a known wait and a known run time.")
    long = (pl.col("queue_s") > pl.col("run_s")) & (pl.col("queue_s") >= _LEAST_WAIT_S)
    sums = jobs.select("day", one=pl.lit(1), long=long.cast(pl.Int64))
    p10, p90 = (jobs["service"].quantile(q, interpolation="linear") for q in (0.1, 0.9))
    keys = ["user", "name", "gpu_count"]
    named = jobs.drop_nulls(["user", "name"])
    again = len(named) - named.select(keys).n_unique()
    return Finding(
        {
            "waited_longer_share": over_days(sums, ratio("long", "one"), n=len(jobs)),
            "spread": Number(p90 / p10 if p90 is not None and p10 else None, len(jobs)),
            "again_share": Number(again / len(jobs), len(jobs)),
        },
        notes=("Service is run time times GPUs. A job is a repeat if an earlier job has its user, name and GPUs.",),
    )


def _shortest_limit_first(rules: Rules) -> Rules:
    """Return rules with another order, under which later jobs may still pass a job that cannot start."""
    changes = {"order": "shortest", "estimates": "limit"}
    if rules.site is not None:
        return rules.changed(**changes)
    plain: dict[str, Any] = {"backfill": "none", "queues": "one", "half_life_s": 0.0, "relax_s": 0.0}
    changed = rules.changed(**changes, **plain, scan="skip" if rules.passes else "stop")
    fault = changed.fault()
    if fault is not None:
        raise LackingError(f"Another order cannot be replayed with these rules: {fault}.")
    return changed


ORDER_BY_SERVICE = Guideline(
    **declared("order-by-service"),
    find=_find_order_by_service,
    tables=("jobs",),
    needs=("queueing", "run_time", "gpu_count"),
    trial=Trial(("qssf", RuleChange("the shortest time limit first", _shortest_limit_first), "las"), passes=True),
)


# Let VCs use quota that other VCs leave idle, and move quota to VCs that use it.


def _find_lend_quota(evidence: Evidence) -> Finding:
    tenant = evidence.trace.tenant
    answer = evidence.query("utilization/vc", quota="capacity", until="last_submission")
    known = answer.frame.filter(pl.col(tenant.column).is_not_null() & (pl.col("capacity_gpus") > 0)).drop_nulls(
        "allocated_share_mean"
    )
    if len(known) < 2:
        raise LackingError(f"The trace has the quotas of fewer than two {tenant.many}.")
    waited = waits(evidence)
    frame = waited.frame
    owned = float(known["capacity_gpus"].sum())
    # Borrowed GPUs do not reduce another VC's idle quota.
    unused = (pl.col("capacity_gpus") * (1 - pl.col("allocated_share_mean").clip(0, 1))).sum()
    sums = frame.select("day", "wait_s", "fair_share_s")
    rows = known.select("cluster", tenant.column, "capacity_gpus", "allocated_share_mean", "queue_p50_s")
    return Finding(
        {
            "quota_wait_share": over_days(sums, ratio("fair_share_s", "wait_s"), n=len(frame)),
            "quota_wait_s": Number(float(frame.select(pl.col("fair_share_s").mean()).item()), len(frame)),
            "unused_share": Number(float(known.select(unused).item()) / owned, len(known)),
        },
        notes=(*answer.notes, *waited.notes),
        rows=tuple(rows.sort("allocated_share_mean", tenant.column, descending=[True, False]).iter_rows(named=True)),
        rows_title=f"Use of each {tenant.one}'s quota, highest first",
    )


def _lent(quotas: str, words: str) -> RuleChange:
    lending = RuleChange.of(f"quotas {words}", "Lending", quotas=quotas, relax_s=0.0)

    def change(rules: Rules) -> Rules:
        if rules.quotas not in {"partitions", "limits"}:
            lends = "already lends quotas" if rules.quotas != "none" else "enforces no quotas that hold jobs back"
            raise LackingError(f"The log's scheduler {lends}.")
        return lending.change(rules)

    return RuleChange(lending.name, change)


LEND_QUOTA = Guideline(
    **declared("lend-quota"),
    find=_find_lend_quota,
    tables=("jobs", "attempts", "capacity"),
    needs=("queueing", "gpu_count", "capacity", "tenants"),
    trial=Trial(
        (_lent("idle", "lent until the borrower ends"), _lent("reclaim", "lent and taken back by preemption")),
        headline="queue",
    ),
)


# Spread submissions over the day.

_BUSY_HOURS = 8

_SUBMISSIONS = f"""
WITH local_times AS (
    SELECT submit_time AT TIME ZONE 'UTC' AT TIME ZONE $timezone AS submitted, queue_s
    FROM jobs
    WHERE gpu_count > 0 AND submit_time IS NOT NULL AND queue_s IS NOT NULL
)

SELECT extract(HOUR FROM submitted) AS hour, {day_of("submitted")} AS day, queue_s
FROM local_times
"""


def _find_spread_submissions(evidence: Evidence) -> Finding:
    jobs = evidence.sql(_SUBMISSIONS)
    if jobs.is_empty():
        raise LackingError("No job with GPUs has a known wait.")
    counts = jobs.group_by("hour").len().sort("len", "hour", descending=[True, False])
    hours = counts["hour"].head(_BUSY_HOURS).to_list()
    busy = pl.col("hour").is_in(hours)
    sums = jobs.select(
        "day",
        jobs=pl.lit(1),
        busy=busy.cast(pl.Int64),
        busy_wait=pl.when(busy).then("queue_s").otherwise(0.0),
        calm_wait=pl.when(busy).then(0.0).otherwise("queue_s"),
    )

    def times(s: Mapping[str, Floats]) -> Floats:
        return (s["calm_wait"] / (s["jobs"] - s["busy"])) / (s["busy_wait"] / s["busy"])

    return Finding(
        {
            "busy_share": over_days(sums, ratio("busy", "jobs"), n=len(jobs)),
            "calm_ratio": over_days(sums, times, n=len(jobs)),
            "busy_wait_s": over_days(sums, ratio("busy_wait", "busy"), n=int(sums["busy"].sum())),
        },
        notes=(
            (
                f"The 8 busiest hours are {', '.join(f'{hour} h' for hour in sorted(hours))} "
                f"({evidence.trace.timezone}). They are chosen from the same jobs, so even uniform arrivals give a "
                f"little over a third."
            ),
        ),
    )


SPREAD_SUBMISSIONS = Guideline(
    **declared("spread-submissions"),
    find=_find_spread_submissions,
    tables=("jobs",),
    needs=("arrivals", "hour_of_day", "queueing", "gpu_count"),
)


# Cap or split jobs that run on so many nodes that a failure before their end is likely.

_LEAST_JOBS = 10
"""Minimum number of jobs of a size (our choice)."""

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
"""Job sizes as in failures/ettr, with their median run times."""


def _find_cap_wide_gangs(evidence: Evidence) -> Finding:
    ettr = evidence.query("failures/ettr", interruptions="node").frame
    ratios = dict(ettr.select("gpus", "ettr").iter_rows())
    sizes = evidence.sql(_SIZES).filter((pl.col("jobs") >= _LEAST_JOBS) & (pl.col("nodes") > 1))
    rows: list[dict[str, Any]] = []
    for size in sizes.iter_rows(named=True):
        hits = evidence.query("failures/by_gang", within_h=round(size["median_run_h"], 6)).frame
        shares = dict(hits.select("nodes", "hit_share").iter_rows())
        rows.append(size | {"hit_share": shares.get(size["nodes"]), "ettr": ratios.get(size["gpus"])})
    known = [row for row in rows if row["hit_share"] is not None]
    if not known:
        raise LackingError(
            "No size has ten jobs that ran long enough on several nodes to measure how often failures hit them."
        )
    worst = max(known, key=lambda row: (row["hit_share"], row["gpus"]))
    jobs, own_ettr = worst["jobs"], worst["ettr"]
    others = ettr.filter(pl.col("gpus") < worst["gpus"])
    wall = float(others["wall_h"].sum())
    rest = float(others["productive_h"].sum()) / wall if wall else None
    return Finding(
        {
            "hit_share": Number(worst["hit_share"], sum(row["jobs"] for row in rows)),
            "gpus": Number(float(worst["gpus"]), jobs),
            "jobs": Number(float(jobs), jobs),
            "median_run_s": Number(worst["median_run_h"] * 3600, jobs),
            "ettr": Number(own_ettr, jobs),
            "rest_ettr": Number(rest, int(others["jobs"].sum())),
            "ettr_gap": Number(None if rest is None or own_ettr is None else rest - own_ettr, jobs),
        },
        notes=(
            (
                "The probability of a hit comes from failures/by_gang, for neighbouring nodes and the median run time "
                "of these jobs. The training time ratio comes from failures/ettr with a checkpoint every hour, and "
                "counts only interruptions by node failures. It includes the time spent waiting for this many "
                "nodes."
            ),
        ),
        rows=tuple(rows),
        rows_title="Multi-node jobs by size",
    )


CAP_WIDE_GANGS = Guideline(
    **declared("cap-wide-gangs"),
    find=_find_cap_wide_gangs,
    tables=("jobs", "attempts", "node_events"),
    needs=("statuses", "gpu_count", "run_time"),
    least_n=_LEAST_JOBS,
)


# Give more nodes to a partition where most of the waiting is.

_WAITED = f"""
SELECT cluster, {day_of("submit_time")} AS day, sum(queue_s) AS wait_s, count(queue_s) AS jobs
FROM jobs
WHERE gpu_count > 0 AND queue_s IS NOT NULL AND submit_time IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""
_LOAD = """
SELECT cluster, sum(used) AS used, sum(owned) AS owned, count(*) AS intervals
FROM (
    SELECT cluster, time, sum(running_gpus) AS used, max(cluster_gpus) AS owned
    FROM gpu_timeline WHERE submitting GROUP BY cluster, time)
WHERE owned IS NOT NULL GROUP BY cluster
"""
_OVERLOADED = 0.5
"""A partition with this share of all waiting hours is overloaded [1]; our choice."""


def _find_overloaded_partition(evidence: Evidence) -> Finding:
    trace = evidence.trace
    if not trace.by_pool:
        named = int(evidence.sql('SELECT count("partition") AS jobs FROM jobs')["jobs"][0])
        if not named:
            raise LackingError("The log records no partitions.")
        unknown = dict.fromkeys(("wait_s", "allocated_share", "others_share"), Number(None, 0))
        text = "No partition has both enough jobs and its own nodes, as far as is known."
        return Finding({"wait_share": Number(0.0, named), **unknown}, text=text)
    waited = evidence.sql(_WAITED)
    totals = waited.group_by("cluster").agg(pl.col("wait_s", "jobs").sum()).sort("wait_s", "cluster", descending=True)
    if totals.is_empty() or not totals["wait_s"][0]:
        raise LackingError("No job with GPUs has a recorded wait.")
    worst, wait_s, jobs = totals.row(0)
    own = pl.col("cluster").eq_missing(worst)
    load = evidence.sql(_LOAD)
    here, others = load.filter(own), load.filter(~own)
    sums = waited.select("day", "wait_s", own=pl.when(own).then("wait_s").otherwise(0.0))
    share_here, share_others = (Number(*_used(rows)) for rows in (here, others))
    name = "The jobs in no known partition have" if worst is None else f"Partition {shorten(worst, 30)} has"
    return Finding(
        {
            "wait_share": over_days(sums, ratio("own", "wait_s"), n=int(totals["jobs"].sum())),
            "wait_s": Number(wait_s / jobs, jobs),
            "allocated_share": share_here,
            "others_share": share_others,
        },
        notes=("Partitions that share nodes count as one; nodes without jobs count if the machine list has them.",),
        rows=tuple(
            totals.join(load, on="cluster", how="left", nulls_equal=True)
            .select(
                partition="cluster",
                jobs="jobs",
                mean_wait_s=pl.col("wait_s") / pl.col("jobs"),
                waiting_hours=pl.col("wait_s") / 3600,
                gpus=pl.col("owned") / pl.col("intervals"),
                allocated_share=pl.col("used") / pl.col("owned"),
            )
            .iter_rows(named=True)
        ),
        rows_title="Waits and use of each partition, most waiting hours first",
        text=f"{name} {{wait_share}} of all waiting hours: {{wait_s}} on average. {{allocated_share}} of its GPUs are "
        "allocated, and {others_share} of those of all other partitions.",
    )


def _used(load: pl.DataFrame) -> tuple[float | None, int]:
    """Return the share of GPU time that is allocated, and the number of intervals."""
    owned = float(load["owned"].sum())
    return (float(load["used"].sum()) / owned if owned else None), int(load["intervals"].sum())


OVERLOADED_PARTITION = Guideline(
    **declared("overloaded-partition"),
    find=_find_overloaded_partition,
    tables=("jobs", "attempts"),
    needs=("queueing", "gpu_count"),
    trial=Trial(
        tuple(NodeChange(share, _OVERLOADED) for share in (0.25, 0.5, 0.1)),
        headline="queue",
    ),
)


MEMBERS = (BACKFILL, ORDER_BY_SERVICE, LEND_QUOTA, SPREAD_SUBMISSIONS, CAP_WIDE_GANGS, OVERLOADED_PARTITION)
