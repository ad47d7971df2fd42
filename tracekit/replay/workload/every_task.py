"""Every job of a Trace as a task that only needs GPUs: its request, even if it never ran.

A placement study uses only requests. Jobs without GPUs, jobs that never started, jobs still running and traces without
any times count like all other jobs.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.replay.jobs import Jobs, LeftOut, naive_utc
from tracekit.replay.workload.from_trace import MOST_GPUS, column, index_in, request_sizes, scaled_column

if TYPE_CHECKING:
    from tracekit.trace import Trace


_EPOCH = dt.datetime(1970, 1, 1)


def every_task(
    trace: Trace,
    *,
    cluster: str | None = None,
    start: dt.datetime | None = None,
    end: dt.datetime | None = None,
    limit: int | None = None,
) -> Jobs:
    """Return the requests of all jobs, in table order.

    `devices` and `milli` are 0 for a job without GPUs. All times are 0, and `origin` is the first known submission
    (1970 if no submission is known). The following jobs are excluded and counted in `left_out`: jobs of another
    cluster, jobs with an unknown or impossibly large GPU count and, if a window is given, jobs submitted outside it or
    at an unknown time.

    Parameters
    ----------
    trace : Trace
        The Trace, which must have a jobs table.
    cluster : str, optional
        Exclude jobs of other clusters.
    start, end : datetime, optional
        Use only jobs submitted in [start, end). Times without a zone are in UTC.
    limit : int, optional
        Use only this many jobs, from the top of the table.

    Raises
    ------
    MissingTableError
        The Trace has no jobs table.
    UsageError
        No job is left, or the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"the limit must be at least 1 job, not {limit}")
    table = trace.scan("jobs").select("cluster", "submit_time", "gpu_count", "instance_count").with_row_index("row")
    judged = table.with_columns(pl.col("gpu_count").fill_nan(None)).with_columns(_reason(cluster, start, end)).collect()
    kept = judged.filter(pl.col("reason").is_null())
    told = judged.drop_nulls("reason").group_by("reason", maintain_order=True).len().sort("reason")
    left_out = [LeftOut(reason, count, None) for reason, count in told.iter_rows()]
    if limit is not None and len(kept) > limit:
        left_out.append(LeftOut("beyond the limit of jobs", len(kept) - limit, None))
        kept = kept.head(limit)
    if kept.is_empty():
        reasons = ", ".join(f"{part.jobs:,} {part.reason}" for part in left_out) or "the jobs table is empty"
        raise UsageError(f"no job has a known request: {reasons}", where=trace.path, hint="choose another trace")
    first = judged["submit_time"].min()
    return _jobs(trace, kept, naive_utc(first) if isinstance(first, dt.datetime) else _EPOCH, tuple(left_out))


def _reason(cluster: str | None, start: dt.datetime | None, end: dt.datetime | None) -> pl.Expr:
    """Return the reason why a job is excluded (the first reason that applies), or NULL if it is used."""
    gpus, submitted = pl.col("gpu_count"), pl.col("submit_time")
    tests: list[tuple[pl.Expr, str]] = []
    if cluster is not None:
        tests.append((pl.col("cluster").cast(pl.String).ne_missing(cluster), "of another cluster"))
    if start is not None or end is not None:
        tests.append((submitted.is_null(), "no submission time"))
    tests += [(submitted < naive_utc(start), "submitted outside the window")] if start is not None else []
    tests += [(submitted >= naive_utc(end), "submitted outside the window")] if end is not None else []
    tests += [
        (gpus.is_null(), "no GPU count"),
        ((gpus < 0) | (gpus > MOST_GPUS), f"a negative number of GPUs, or more than {MOST_GPUS:,}"),
    ]
    return pl.coalesce(pl.when(test).then(pl.lit(why)) for test, why in tests).alias("reason")


def _jobs(trace: Trace, kept: pl.DataFrame, origin: dt.datetime, left_out: tuple[LeftOut, ...]) -> Jobs:
    n, rows = len(kept), kept["row"]
    asks = (pl.col("gpu_count") > 0).cast(pl.Int32)
    sized = kept.select(*(size * asks for size in request_sizes()))
    models = column(trace, "gpu_model", rows)
    names = models.drop_nulls().unique().sort()
    unknown: Any = np.full(n, -1, np.int32)
    return Jobs(
        origin=origin,
        job_id=column(trace, "job_id", rows),
        submit_ms=np.zeros(n, np.int64),
        work_ms=np.zeros(n, np.int64),
        devices=sized["devices"].to_numpy().copy(),
        milli=sized["milli"].to_numpy().copy(),
        tenant=unknown,
        user=unknown,
        model=index_in(models, names),
        name=unknown,
        priority=np.zeros(n, np.int32),
        preemptible=np.full(n, -1, np.int8),
        cpu_milli=scaled_column(trace, "cpu_count", rows, 1000),
        memory_mib=scaled_column(trace, "memory_gib", rows, 1024),
        limit_ms=np.full(n, -1, np.int64),
        utilization=np.full(n, np.nan),
        recorded_start_ms=np.full(n, -1, np.int64),
        recorded_end_ms=np.full(n, -1, np.int64),
        models=names.to_list(),
        left_out=left_out,
    )
