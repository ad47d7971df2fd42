"""Guidelines about allocated GPUs that jobs hardly use, and about idle nodes."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.declared import declared
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Number,
    day_of,
)
from tracekit.guidelines.intervals import over_days, ratio

IDLE_PCT = 10.0
"""Jobs with at most this mean utilization [percent] count as idle, as in utilization/idle_jobs."""

LOW_PCT = 50.0
"""Mean utilization [percent] up to this value counts as low, as in Gao et al. (ICSE'24)."""

NOTE = (
    "As in utilization/idle_jobs, a job's utilization is the mean of its samples or the value in job_usage. Jobs "
    "with neither are not counted."
)

_JOBS = f"""
SELECT job_id, gpu_hours, gpu_count AS gpus, {day_of("coalesce(submit_time, start_time)")} AS day
FROM job_gpu_hours
WHERE gpu_hours > 0 AND coalesce(submit_time, start_time) IS NOT NULL
"""


def measured_jobs(evidence: Evidence, more_than: float = 0) -> tuple[pl.DataFrame, float | None]:
    """Return one row per job: job_id, user, the tenant, gpu_count, run_s, mean_pct, wasted_gpu_h, gpu_hours and day.

    The rows are those of utilization/idle_jobs without its limits. Jobs with an unknown date or at most `more_than`
    GPUs are excluded. The second value is the returned jobs' share of the GPU-hours of all jobs with a known date and
    more than `more_than` GPUs [1], or None if no GPU-hours are known.

    Raises
    ------
    LackingError
        The Trace does not contain utilization.
    """
    jobs = evidence.query("utilization/idle_jobs", threshold_pct=1_000_000, min_run_s=0).frame
    hours = evidence.answer(_JOBS, also=("attempts",)).frame.filter(pl.col("gpus") > more_than).drop("gpus")
    measured, held = jobs.join(hours, on="job_id"), float(hours["gpu_hours"].sum())
    return measured, float(measured["gpu_hours"].sum()) / held if held else None


def _share_of(jobs: pl.DataFrame, chosen: pl.Expr, hours: str = "gpu_hours") -> tuple[Number, pl.DataFrame, float]:
    """Return some jobs' `hours` as a share of all GPU-hours, these jobs, and the sum of their `hours`."""
    sums = jobs.select("day", "gpu_hours", chosen=pl.when(chosen).then(hours).otherwise(0.0))
    share = over_days(sums, ratio("chosen", "gpu_hours"), n=len(jobs))
    return share, jobs.filter(chosen), float(sums["chosen"].sum())


_LOW = (pl.col("mean_pct") > IDLE_PCT) & (pl.col("mean_pct") <= LOW_PCT)
_BOUNDS = {"idle_pct": IDLE_PCT, "low_pct": LOW_PCT}
_LOW_WORDS = f"{IDLE_PCT:g} to {LOW_PCT:g} % utilization"
_LOW_SOURCE = f"ours; {LOW_PCT:g} % counts as low in Gao et al. (ICSE'24)"

# Let jobs that use little of their GPU share a GPU.


def _find_share_gpus(evidence: Evidence) -> Finding:
    jobs, covers = measured_jobs(evidence)
    share, low, hours = _share_of(jobs, (pl.col("gpu_count") <= 1) & _LOW)
    none = f"No measured job with at most one GPU used the GPU {IDLE_PCT:g} to {LOW_PCT:g} % of the time."
    return Finding(
        {
            "low_share": share,
            "low_jobs": Number(float(len(low)), len(jobs)),
            "freed_gpu_hours": Number(hours / 2, len(low)),
        },
        notes=(NOTE, "GPU memory is not considered, but two jobs can share a GPU only if both fit into its memory."),
        text="" if len(low) else none,
        covers=covers,
    )


SHARE_GPUS = Guideline(
    **declared("share-gpus", **_BOUNDS),
    find=_find_share_gpus,
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
)


# Request fewer GPUs for multi-GPU jobs whose GPUs are half idle.

_GANGS_SHOWN = 20


def _find_right_size_gangs(evidence: Evidence) -> Finding:
    gangs, covers = measured_jobs(evidence, more_than=1)
    if gangs.is_empty():
        raise LackingError("No job with several GPUs has a known utilization.")
    share, low, hours = _share_of(gangs, _LOW)
    users = low.group_by("user").agg(pl.len().alias("jobs"), pl.col("gpu_hours").sum())
    none = f"No measured multi-GPU job used its GPUs {IDLE_PCT:g} to {LOW_PCT:g} % of the time."
    return Finding(
        {
            "low_share": share,
            "low_gangs": Number(float(len(low)), len(gangs)),
            "spare_gpu_hours": Number(hours / 2, len(low)),
        },
        notes=(NOTE,),
        rows=tuple(users.sort("gpu_hours", "user", descending=[True, False]).head(_GANGS_SHOWN).iter_rows(named=True)),
        rows_title="Users whose multi-GPU jobs are half idle",
        text="" if len(low) else none,
        covers=covers,
        covers_of="the GPU-hours of multi-GPU jobs",
    )


RIGHT_SIZE_GANGS = Guideline(
    **declared("right-size-gangs", **_BOUNDS),
    find=_find_right_size_gangs,
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
)


# Reclaim GPUs from jobs that leave them idle.

_LEAST_RUN_S = 3600
_IDLE_SHOWN = 20


def _find_reclaim_idle(evidence: Evidence) -> Finding:
    jobs, covers = measured_jobs(evidence)
    chosen = (pl.col("mean_pct") <= IDLE_PCT) & (pl.col("run_s") >= _LEAST_RUN_S)
    share, idle, hours = _share_of(jobs, chosen, "wasted_gpu_h")
    rows = idle.sort("wasted_gpu_h", "job_id", descending=[True, False]).head(_IDLE_SHOWN)
    owners = dict.fromkeys(("user", evidence.trace.tenant.column))
    rows = rows.select("job_id", *owners, "gpu_count", "run_s", "mean_pct", "wasted_gpu_h")
    none = f"No measured job used its GPUs at {IDLE_PCT:g} % utilization or less for an hour or more."
    return Finding(
        {
            "idle_share": share,
            "idle_jobs": Number(float(len(idle)), len(jobs)),
            "wasted_gpu_hours": Number(hours, len(idle)),
        },
        notes=(NOTE,),
        rows=tuple(rows.iter_rows(named=True)),
        rows_title="Idle jobs that cost the most",
        text="" if len(idle) else none,
        covers=covers,
    )


RECLAIM_IDLE = Guideline(
    **declared("reclaim-idle", **_BOUNDS),
    find=_find_reclaim_idle,
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
)


# Power down unused nodes.

_NODES = "SELECT count(*) AS nodes FROM node_gpus WHERE observed > 0"
_UNUSED = """
SELECT count(*) AS nodes, coalesce(sum(observed), 0) AS gpus
FROM node_gpus
WHERE observed > 0 AND node_id NOT IN (SELECT node_id FROM placements WHERE node_id IS NOT NULL)
"""
_HOURS = """
SELECT time, sum(whole_free_nodes) AS idle, sum(whole_free_gpus) AS gpus
FROM free_gpus
WHERE time <= (SELECT max(submit_time) FROM jobs)
GROUP BY time
ORDER BY time
"""
"""One row per hour (the default step of free_gpus), up to the last submission. After that, no new jobs arrive, so nodes
that become empty do not count as idle. Nodes of jobs still running at the end of the log count as used.
"""


def _find_power_down(evidence: Evidence) -> Finding:
    from tracekit.replay.assumptions.models import load_models

    tables = ("nodes", "placements", "gpu_utilization")
    free = evidence.answer(_HOURS)
    hours = free.frame
    number = int(evidence.sql(_NODES, also=tables)["nodes"][0])
    idle_always = evidence.sql(_UNUSED, also=tables)
    unused, unused_gpus = int(idle_always["nodes"][0]), float(idle_always["gpus"][0])
    if not number or hours.is_empty():
        raise LackingError("No node has a known number of GPUs.")
    used = number - unused
    sums = hours.select(
        day=pl.col("time").dt.epoch("d").cast(pl.Int64),
        idle="idle",
        nodes=pl.lit(number),
        used_idle=pl.col("idle") - unused,
        used=pl.lit(used),
    )
    gpu_hours = float(hours["gpus"].sum())
    power = load_models(None).power
    watts = [config.idle_w for config in power.configs.values()]
    kwh_per_watt = gpu_hours / len(hours) * 24 / 1000
    return Finding(
        {
            "idle_share": over_days(sums, ratio("idle", "nodes"), n=len(hours)),
            "used_idle_share": over_days(sums, ratio("used_idle", "used"), n=len(hours))
            if used
            else Number(None, len(hours)),
            "always_idle_nodes": Number(float(int(hours.select(pl.col("idle").min()).item())), len(hours)),
            "unused_nodes": Number(float(unused), number),
            "nodes": Number(float(number), number),
            "idle_kwh_per_day": Number(kwh_per_watt * power.idle_w, len(hours)),
            "used_kwh_per_day": Number(max(0.0, kwh_per_watt - unused_gpus * 24 / 1000) * power.idle_w, len(hours)),
            "idle_w": Number(float(power.idle_w), len(power.configs)),
            "least_kwh_per_day": Number(kwh_per_watt * min(watts), len(hours)),
            "most_kwh_per_day": Number(kwh_per_watt * max(watts), len(hours)),
        },
        notes=(
            *free.notes,
            (
                f"{number:,} nodes were checked every hour up to the last submission. The energy counts only the GPUs "
                f"of entirely idle nodes, {power.idle_w:g} W each, within the range of {min(watts):g} to "
                f"{max(watts):g} W in published configurations (model M7)."
            ),
        ),
        text=_idle_text(unused=unused, used=used, idle=gpu_hours > 0),
    )


def _idle_text(*, unused: int, used: int, idle: bool) -> str:
    """Write the finding, without sentences that have nothing to report."""
    if not idle:
        return "No node is ever entirely idle."
    if not unused:
        return f"{_IDLE}. {_ENERGY}."
    if not used:
        return f"{_IDLE}, and no node ran a job of this log ({_WHOLE}). {_ENERGY}."
    return (
        f"{_IDLE}. Of {{nodes}}, {{unused_nodes}} ran no job of this log ({_WHOLE}); the others are entirely "
        f"idle in {{used_idle_share}} of their hours. {_ENERGY}, {{used_kwh_per_day}} of it on nodes that ran a "
        "job."
    )


_IDLE = "Nodes are entirely idle in {idle_share} of their hours"
_WHOLE = "the log may be incomplete"
_ENERGY = "At {idle_w} per idle GPU, these nodes use {idle_kwh_per_day}"


POWER_DOWN = Guideline(
    **declared("power-down"),
    finding=f"{_IDLE}. {_ENERGY}.",
    find=_find_power_down,
    tables=("jobs", "attempts", "placements"),
    needs=("placement",),
    least_n=24,
)


MEMBERS = (SHARE_GPUS, RIGHT_SIZE_GANGS, RECLAIM_IDLE, POWER_DOWN)
