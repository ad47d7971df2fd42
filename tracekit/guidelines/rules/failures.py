"""Guidelines about jobs that fail."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.characterize.timelines.node_failures import LEVEL
from tracekit.guidelines.declared import declared
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Number,
    day_of,
)
from tracekit.guidelines.intervals import over_days, ratio, share_of
from tracekit.text import counted

# Stop retrying jobs that always fail in the same way.

_MEMORY = "'gpu_out_of_memory', 'cpu_out_of_memory'"
"""Reasons besides user errors that recur unless something changes."""

_TRIALS = f"""
SELECT DISTINCT
    f.job_id,
    f.attempt,
    f.reason,
    a.gpu_hours,
    coalesce(f.category = 'user' OR f.reason IN ({_MEMORY}), FALSE)
        AND f.reason NOT IN ('job_timeout', 'job_cancelled') AS stays,
    {day_of("coalesce(a.start_time, f.time)")} AS day
FROM failures AS f
INNER JOIN attempt_gpu_time AS a ON f.job_id = a.job_id AND f.attempt = a.attempt
WHERE f.reason IS NOT NULL AND coalesce(a.start_time, f.time) IS NOT NULL
"""


def _find_stop_retries(evidence: Evidence) -> Finding:
    trials = evidence.sql(_TRIALS)
    if trials.is_empty():
        raise LackingError("No failure has a known reason and date.")
    later = pl.col("attempt") > pl.col("attempt").min().over("job_id", "reason")
    trials = trials.with_columns(repeat=pl.col("stays") & later)
    whole = {name: pl.col(name).cast(pl.Int64) for name in ("stays", "repeat")}
    sums = trials.select("day", one=pl.lit(1), **whole, pair=whole["stays"] - whole["repeat"])
    repeats = trials.filter("repeat")
    pairs = int(sums["pair"].sum())
    by_reason = (
        trials.filter("stays")
        .group_by("reason")
        .agg(
            pl.len().alias("trials"),
            pl.col("job_id").n_unique().alias("jobs"),
            pl.col("repeat").sum().alias("retries_saved"),
            pl.col("gpu_hours").filter("repeat").sum().alias("gpu_hours_saved"),
        )
        .sort("gpu_hours_saved", "reason", descending=[True, False])
    )
    return Finding(
        {
            "repeat_share": over_days(sums, ratio("repeat", "one"), n=len(trials)),
            "factor": over_days(sums, ratio("stays", "pair"), n=pairs),
            "repeats": Number(float(len(repeats)), len(trials)),
            "repeat_gpu_hours": Number(float(repeats["gpu_hours"].sum()), len(repeats)),
        },
        notes=(
            "Deterministic reasons are the user errors and out-of-memory errors that the log classifier identifies.",
        ),
        rows=tuple(by_reason.iter_rows(named=True)),
        rows_title="Retries saved by reason",
        text="" if len(repeats) else "No job was retried after it failed for a deterministic reason.",
    )


STOP_RETRIES = Guideline(
    **declared("stop-retries"),
    find=_find_stop_retries,
    tables=("failures", "jobs", "attempts"),
    needs=("failures",),
)


# Run the first minutes of a gang on a small pool.

_FIRST_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(failed_or_retried, FALSE) AS failed, {day_of("start_time")} AS day
FROM attempt_outcomes
WHERE gpu_count > 1 AND run_s > 0 AND start_time IS NOT NULL AND attempt = 0
"""

_EARLY_S = 600
_TIMES_S = (60, 120, 300, 600)
_POOL_SIZES = (2, 4, 8, 16)


def _find_pre_run_pool(evidence: Evidence) -> Finding:
    attempts = evidence.sql(_FIRST_ATTEMPTS)
    if attempts.is_empty():
        raise LackingError("No job with several GPUs has a known run time.")
    early = pl.col("failed") & (pl.col("run_s") <= _EARLY_S)
    counts = attempts.select("day", one=pl.lit(1), early=early.cast(pl.Int64))
    seconds, size = _best(attempts)
    tried = attempts.select("day", saved=_saved(seconds, size), held=pl.col("gpu_count") * pl.col("run_s") / 3600)
    text = ""
    if not counts["early"].sum():
        text = "No multi-GPU job fails within ten minutes of its first start."
    elif tried["saved"].sum() <= 0:
        text = (
            "{early_share} of multi-GPU jobs fail within ten minutes of their first start, but a first run on one "
            "GPU would cost as much as it saves."
        )
    return Finding(
        {
            "early_share": over_days(counts, ratio("early", "one"), n=len(attempts)),
            "saved_share": over_days(tried, ratio("saved", "held"), n=len(attempts)),
            "saved_gpu_hours": Number(float(tried["saved"].sum()), len(attempts)),
            "pool_s": Number(float(seconds), len(attempts)),
            "least_gpus": Number(float(size), len(attempts)),
        },
        notes=(
            (
                "Only first attempts of jobs with more than one GPU count. An attempt with an unknown end counts as "
                "failed if the job was retried. A run on the pool uses one GPU, and jobs that do not fail there "
                "repeat this time."
            ),
            (
                "The time on the pool (1 to 10 minutes) and the smallest job (2 to 16 GPUs) are those that save the "
                "most, so the saving is slightly optimistic."
            ),
        ),
        text=text,
    )


def _saved(seconds: int, size: int) -> pl.Expr:
    """Compute the GPU-hours that each attempt saves.

    If the attempt fails on the pool, the GPU-hours of its other GPUs are saved. Otherwise, the pool's GPU-hours are
    lost.
    """
    fails = pl.col("failed") & (pl.col("run_s") <= seconds)
    pool = pl.min_horizontal("run_s", pl.lit(float(seconds)))
    gain = pl.when(fails).then((pl.col("gpu_count") - 1) * pl.col("run_s")).otherwise(-pool)
    return pl.when(pl.col("gpu_count") >= size).then(gain).otherwise(0.0) / 3600


def _best(attempts: pl.DataFrame) -> tuple[int, int]:
    """Find the time on the pool [s] and the minimum job size [GPUs] that save the most."""
    pairs = [(seconds, size) for seconds in _TIMES_S for size in _POOL_SIZES]
    totals = attempts.select(_saved(s, g).sum().alias(f"{s}/{g}") for s, g in pairs).row(0)
    return pairs[int(np.argmax(totals))]


PRE_RUN_POOL = Guideline(
    **declared("pre-run-pool"),
    find=_find_pre_run_pool,
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
)


# Checkpoint very long jobs, or limit their run time.

_LONG_S = 86400
_SAVE_EVERY_S = 3600

_LONG_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(interrupted_or_retried, FALSE) AS failed, status = 'timeout' AS late,
       {day_of("end_time")} AS day
FROM attempt_interruptions
WHERE gpu_count > 0 AND run_s > 0 AND end_time IS NOT NULL
ORDER BY job_id, attempt
"""


def _find_checkpoint_long(evidence: Evidence) -> Finding:
    held = pl.col("gpu_count") * pl.col("run_s") / 3600
    long = pl.col("run_s") >= _LONG_S
    # As in failures/lost_work with a checkpoint every hour, the work since the last checkpoint is lost.
    kept = pl.col("gpu_count") * (pl.col("run_s") - pl.col("run_s") % _SAVE_EVERY_S) / 3600
    attempts = evidence.sql(_LONG_ATTEMPTS, also=("placements", "node_events")).select(
        "day",
        "late",
        held=held,
        long=pl.when(long).then(held).otherwise(0.0),
        lost=pl.when(long & pl.col("failed")).then(held).otherwise(0.0),
        saved=pl.when(long & pl.col("failed")).then(kept).otherwise(0.0),
    )
    failures = attempts.filter(pl.col("lost") > 0).height
    none = "No attempt was cut short after a day or more. Attempts this long took {long_share} of the GPU-hours."
    return Finding(
        {
            "lost_share": over_days(attempts, ratio("lost", "held"), n=len(attempts)),
            "long_failures": Number(float(failures), attempts.filter(pl.col("long") > 0).height),
            "lost_gpu_hours": Number(float(attempts["lost"].sum()), failures),
            "saved_gpu_hours": Number(float(attempts["saved"].sum()), failures),
            "long_share": over_days(attempts, ratio("long", "held"), n=len(attempts)),
        },
        notes=(
            *(
                [f"{counted(late, 'attempts')} of those that were cut short hit their time limit (timeout)"]
                if (late := attempts.filter((pl.col("lost") > 0) & pl.col("late")).height)
                else []
            ),
            (
                "As in failures/lost_work with rule=retried, attempts are cut short if they failed, were preempted "
                "or lost a node, or if their end is unknown and they were retried. Checkpoints are unknown, so work "
                "that jobs already save is not subtracted."
            ),
        ),
        text="" if failures else none,
    )


CHECKPOINT_LONG = Guideline(
    **declared("checkpoint-long"),
    find=_find_checkpoint_long,
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
)


# Drain nodes that fail more often than chance explains.

_SUSPECT_COLUMNS = (
    "node_id",
    "attempts",
    "failed_attempts",
    "trials",
    "failed_trials",
    "expected_failed_trials",
    "adjusted_p_value",
    "adjusted_p_value_without_one_user",
)

_WITH_GPUS = """
SELECT DISTINCT p.node_id
FROM placements AS p
INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt
INNER JOIN jobs AS j ON p.job_id = j.job_id
INNER JOIN node_gpus AS g ON p.node_id = g.node_id
WHERE o.failed AND g.observed > 0 AND j.gpu_count IS DISTINCT FROM 0
"""
"""GPU nodes with failed jobs that may have used GPUs."""


def _find_drain_nodes(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/by_node")
    excess = answer.frame.filter(pl.col("adjusted_p_value") <= LEVEL)
    suspects = excess.filter("suspect")
    if suspects["adjusted_p_value_without_one_user"].null_count():
        raise LackingError("The log has no users, so a bad node looks the same as a user whose jobs fail on it.")
    trials, failed = int(suspects["trials"].sum()), int(suspects["failed_trials"].sum())
    expected = float(suspects["expected_failed_trials"].sum())
    share = share_of(failed, trials)
    ends = [None if end is None else end * trials - expected for end in (share.low, share.high)]
    left = len(excess) - len(suspects)
    none = "No node fails more often than chance explains"
    none += ", if the user with the most failures on it is left out." if left else "."
    advice, cost = _texts(evidence, suspects)
    return Finding(
        {
            "suspect_nodes": Number(float(len(suspects)), len(answer.frame)),
            "excess_failures": Number(failed - expected, trials, *ends),
            "failed_share": share,
            "one_user_nodes": Number(float(left), len(answer.frame)),
        },
        notes=(
            *answer.notes,
            *_lemons(evidence, suspects),
            (
                "A user's attempts on a node with at most an hour between them count once, as the first attempt. A "
                "job retried on a node also counts once. So one broken script counts as one failure, not many."
            ),
            ("Failures are compared with those on normal nodes, for the same user, job group, tenant and size class."),
            (
                "A node is named only if chance does not explain its failures, even without the user with the most "
                "failures on it. Jobs of unknown users count as one user's."
            ),
        ),
        rows=tuple(suspects.select(_SUSPECT_COLUMNS).iter_rows(named=True)) if len(suspects) else (),
        rows_title="Suspect nodes",
        text="" if len(suspects) else none,
        advice=advice,
        cost=cost,
    )


def _lemons(evidence: Evidence, suspects: pl.DataFrame) -> list[str]:
    """Return a note on how many suspect nodes also have too many outages, if the log records outages."""
    if suspects.is_empty() or not evidence.trace.has("node_events"):
        return []
    lemons = evidence.query("failures/lemon_nodes").frame.filter("lemon")
    both = len(suspects.join(lemons, on="node_id", how="semi"))
    return [f"{both:,} of these {len(suspects):,} nodes also go out of service too often (repair-lemons)."]


def _texts(evidence: Evidence, suspects: pl.DataFrame) -> tuple[str, str]:
    """Return the advice and the cost for these nodes, or '' for both if the guideline's own wording fits."""
    if suspects.is_empty():
        return "", ""
    with_gpus = evidence.sql(_WITH_GPUS, also=("nodes", "gpu_utilization"))
    number = len(suspects.join(with_gpus, on="node_id", how="semi"))
    if number == len(suspects):
        return "", ""
    return (_ADVICE_WITH_SOME, _COST_WITHOUT_GPUS) if number else (_ADVICE_WITHOUT_GPUS, _COST_WITHOUT_GPUS)


_ADVICE_WITHOUT_GPUS = (
    "Drain these nodes, run the vendor's hardware diagnostics, and check the kernel messages about memory, disks "
    "and network. Return the nodes that pass to service, and count failures by node from then on."
)
_ADVICE_WITH_SOME = (
    "Drain these nodes, run the vendor's hardware diagnostics (with GPU diagnostics and a bandwidth test if the "
    "nodes have GPUs), and check the kernel messages. Return the nodes that pass to service, and count failures by "
    "node from then on."
)
_COST_WITHOUT_GPUS = "These nodes are unavailable while they are tested."


DRAIN_NODES = Guideline(
    **declared("drain-nodes"),
    find=_find_drain_nodes,
    tables=("jobs", "attempts", "placements"),
    needs=("placement", "statuses"),
    least_n=2,
)


MEMBERS = (STOP_RETRIES, PRE_RUN_POOL, CHECKPOINT_LONG, DRAIN_NODES)
