"""Read the jobs of a Trace as input for a fit.

A job's run time is the sum of its attempts' run times; if any of these is unknown, it is the job's run_s, or end minus
start. Gaps between attempts are queueing time and do not count, so the run time is what a simulator needs. A job with a
start but no end is right-censored at the end of the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.trace import Trace


CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")
"""Size classes by number of GPUs, small to large."""

STOPPED = ("cancelled", "timeout", "preempted", "node_fail")
"""Statuses of jobs that were stopped and would otherwise have run longer."""

UNFINISHED = ("running", "pending")

LONGEST_S = 100 * 365 * 86_400
"""Longest run time that is accepted as plausible [s], as in replays and exports."""


@dataclass(frozen=True)
class JobTable:
    """One row per job, in submission order."""

    frame: pl.DataFrame
    """submit_us (since 1970), cluster, vc, user, status, gpu_class, gpu_count, node_count, instance_count, cpu_count,
    memory_gib, attempt_count, held_s (run time), known (held_s is complete), run_s (gaps included)."""
    end_us: int | None
    """The last time in the log."""
    negative: int
    """Number of jobs with a run time below 0, which no fit uses."""
    too_long: int
    """Number of jobs with a run time above `LONGEST_S`, a sign of a damaged log, which no fit uses."""
    unknown: int
    """Number of jobs without a run time; most of them never ran."""


def gpu_class(count: pl.Expr) -> pl.Expr:
    """Return the size class of a GPU count, or NULL if it is unknown."""
    return (
        pl.when(count == 0)
        .then(pl.lit("0"))
        .when(count < 1)
        .then(pl.lit("<1"))
        .when(count == 1)
        .then(pl.lit("1"))
        .when(count <= 4)
        .then(pl.lit("2-4"))
        .when(count <= 8)
        .then(pl.lit("5-8"))
        .when(count > 8)
        .then(pl.lit(">8"))
    )


def read_jobs(trace: Trace) -> JobTable:
    """Return the jobs of a Trace.

    Raises
    ------
    MissingTableError
        The Trace has no jobs table.
    UsageError
        The table is empty.
    """
    jobs = trace.scan("jobs")
    if trace.has("attempts"):
        per_job = (
            trace.scan("attempts")
            .group_by("job_id")
            .agg(
                pl.col("run_s").sum().alias("attempts_s"),
                (pl.col("run_s").is_null() | (pl.col("run_s") < 0)).any().alias("unsure"),
                pl.len().cast(pl.Int64).alias("attempts"),
            )
        )
        jobs = jobs.join(per_job, on="job_id", how="left", maintain_order="left")
    else:
        jobs = jobs.with_columns(
            pl.lit(None, pl.Float64).alias("attempts_s"),
            pl.lit(None, pl.Boolean).alias("unsure"),
            pl.lit(None, pl.Int64).alias("attempts"),
        )
    whole = pl.when(~pl.col("unsure")).then(pl.col("attempts_s"))
    own = pl.coalesce("run_s", (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
    frame = jobs.select(
        pl.col("submit_time").dt.epoch("us").alias("submit_us"),
        pl.col("start_time").dt.epoch("us").alias("start_us"),
        pl.col("end_time").dt.epoch("us").alias("end_us"),
        *(pl.col(c).cast(pl.Categorical) for c in ("cluster", "vc", "user", "status")),
        gpu_class(pl.col("gpu_count")).cast(pl.Categorical).alias("gpu_class"),
        "gpu_count",
        "node_count",
        "instance_count",
        "cpu_count",
        "memory_gib",
        pl.coalesce("attempts", "attempt_count").alias("attempt_count"),
        # Finished attempts of an unfinished job do not give its run time.
        pl.when(~pl.col("status").is_in(UNFINISHED).fill_null(value=False))
        .then(pl.coalesce(whole, own))
        .alias("held_s"),
        own.alias("run_s"),
    ).collect()
    if frame.is_empty():
        raise UsageError("the jobs table is empty", where=trace.path)
    times = [frame[c].max() for c in ("submit_us", "start_us", "end_us")]
    last = max((t for t in times if isinstance(t, int)), default=None)
    elapsed = (pl.lit(last, pl.Int64) - pl.col("start_us")) / 1e6
    runs = pl.col("held_s").is_null() & pl.col("start_us").is_not_null() & pl.col("end_us").is_null()
    frame = frame.with_columns(
        pl.when(runs).then(elapsed).otherwise("held_s").alias("held_s"), (~runs).alias("known")
    ).drop("start_us", "end_us")
    negative = int((frame["held_s"] < 0).sum())
    too_long = int((frame["held_s"] > LONGEST_S).sum())
    unknown = frame["held_s"].null_count()
    frame = frame.with_columns(pl.when(pl.col("held_s").is_between(0, LONGEST_S)).then("held_s").alias("held_s"))
    return JobTable(frame.sort("submit_us", maintain_order=True, nulls_last=True), last, negative, too_long, unknown)
