"""What the rules of a site take into account in addition: other jobs, arrays, and runs that were stopped."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.replay.jobs import Others, in_time, others_since
from tracekit.replay.workload.from_trace import index_in, jobs_of_rows, read_numbers, request_sizes

if TYPE_CHECKING:
    from tracekit.replay.jobs import Jobs
    from tracekit.trace import Trace

MOST_OTHERS = 200_000
"""A log with more of these jobs is replayed without them, to bound the time of a replay; our choice."""


def jobs_of_site(trace: Trace, jobs: Jobs, cluster: str | None) -> Jobs:
    """Return the GPU jobs of a cluster with their arrays, lost work and `others` (see `others_of_trace`)."""
    jobs = _with_lost_work(trace, _with_arrays(trace, jobs))
    others = others_of_trace(trace, jobs, cluster)
    if others is None:
        return jobs
    begin_ms = (others.jobs.origin - jobs.origin) // dt.timedelta(milliseconds=1)
    moved: dict[str, Any] = {
        name: np.where(times < 0, -1, times - begin_ms)
        for name in ("submit_ms", "recorded_start_ms", "recorded_end_ms")
        for times in (getattr(jobs, name),)
    }
    return replace(jobs, origin=others.jobs.origin, others=others, **moved)


def _with_lost_work(trace: Trace, jobs: Jobs) -> Jobs:
    """Return the jobs with the work of runs that were stopped, if another run followed.

    In SWF, no work is lost, because a preempted part is continued by the next.
    """
    if not trace.has("attempts") or trace.manifest.format == "swf":
        return jobs
    own = pl.DataFrame({"job_id": jobs.job_id})
    runs = (
        trace.scan("attempts").select("job_id", "attempt", "status", "run_s").join(own.lazy(), on="job_id", how="semi")
    )
    stopped = (
        runs.filter(pl.col("attempt") < pl.col("attempt").max().over("job_id"))
        .group_by("job_id")
        .agg(pl.col("run_s").filter(pl.col("status") == status).sum().alias(status) for status in _STARTS_OVER)
        .collect()
    )
    if stopped.is_empty():
        return jobs
    lost = own.join(stopped, on="job_id", how="left", maintain_order="left").select(_STARTS_OVER).fill_null(0.0)
    preempted, failed = ((lost[name].to_numpy() * 1000 + 0.5).astype(np.int64) for name in _STARTS_OVER)
    return replace(jobs, preempted_ms=preempted, failed_ms=failed)


_STARTS_OVER = ("preempted", "node_fail")
"""Statuses of runs whose work is lost if another run follows: those of `preempted_ms` and `failed_ms`."""


def _with_arrays(trace: Trace, jobs: Jobs) -> Jobs:
    """Return the jobs with the arrays whose tasks waited for a limit on the tasks of the array.

    Such an array always ran as many tasks as the limit allows while a task waited for it, so the most tasks that ran at
    once are the limit.
    """
    columns = trace.scan("jobs").select("job_id", "cluster", "group", limited=pl.col("wait_reason") == _AT_LIMIT)
    limited = columns.filter("limited").select("cluster", "group").unique().drop_nulls("group")
    # Clusters may give their arrays the same numbers.
    tasks = columns.join(limited, on=["cluster", "group"], how="semi", nulls_equal=True)
    table = tasks.unique("job_id", keep="first").collect()
    own = pl.DataFrame({"job_id": jobs.job_id}).join(table, on="job_id", how="left", maintain_order="left")
    known = (jobs.recorded_start_ms >= 0) & (jobs.recorded_end_ms >= jobs.recorded_start_ms)
    names = own["group"].drop_nulls().unique(maintain_order=True)
    array = index_in(own["group"], names)
    if not len(names):
        return jobs
    most = np.zeros(len(jobs), np.int64)
    order = np.argsort(array, kind="stable")
    for rows in np.split(order, np.searchsorted(array[order], np.arange(len(names))))[1:]:
        ran = rows[known[rows]]
        start, end = jobs.recorded_start_ms[ran], jobs.recorded_end_ms[ran]
        most[rows] = in_time(start, start, end, np.ones(len(ran))).max(initial=1)
    return replace(jobs, array=array, array_most=most)


_AT_LIMIT = "JobArrayTaskLimit"
"""Slurm's reason for a task that waits for such a limit."""


def others_of_trace(trace: Trace, jobs: Jobs, cluster: str | None) -> Others | None:
    """Return the jobs without GPUs that ran on nodes with GPUs, and those that users of the cluster ran elsewhere.

    Elsewhere means on the nodes of other partitions of the same cluster, if these nodes are a pool of their own (see
    `Trace.divided`). Only jobs with recorded starts and ends are included, because all others may never have run.

    Parameters
    ----------
    trace : Trace
    jobs : Jobs
        The GPU jobs of the cluster.
    cluster : str, optional
        The cluster, as for `jobs_of_trace`.

    Returns
    -------
    Others or None
        None if there are no such jobs, or more than `MOST_OTHERS`. Their origin is that of the jobs, or up to a day
        earlier if some of them were submitted then, so that nodes fill as they did in the log.
    """
    begin, last = (jobs.origin + dt.timedelta(milliseconds=int(at)) for at in (0, jobs.submit_ms[-1]))
    first_us, last_us = (int(time.replace(tzinfo=dt.UTC).timestamp() * 1e6) for time in (begin - _BEFORE, last))
    own = pl.col("cluster").cast(pl.String).eq_missing(pl.lit(cluster, pl.String))
    here = own & (pl.col("gpu_count") == 0)
    away = ~own & pl.col("cluster").cast(pl.String).is_in(_same_site(trace, cluster))
    ran = (pl.col("start_us") >= pl.col("submit_us")) & (pl.col("end_us") > pl.col("start_us"))
    table = read_numbers(trace).filter(
        ran & (here | away) & (pl.col("end_us") > first_us) & (pl.col("submit_us") <= last_us), pl.col("work_us") >= 0
    )
    if table.is_empty() or len(table) > MOST_OTHERS:
        return None
    table = table.with_columns(request_sizes()).with_columns(
        pl.when(pl.col("gpu_count") > 0).then("devices").otherwise(0).alias("devices"), elsewhere=away
    )
    table = table.sort("submit_us", maintain_order=True)
    found = _with_lost_work(trace, _with_arrays(trace, jobs_of_rows(trace, table, measured=False)))
    users, tenants = set(jobs.users), set(jobs.tenants)
    on_gpus = set(_on_gpu_nodes(trace, found.job_id))
    chosen = [
        k
        for k, (name, user, tenant, elsewhere) in enumerate(
            zip(found.job_id, found.user, found.tenant, table["elsewhere"], strict=True)
        )
        if (
            (user >= 0 and found.users[user] in users) or (tenant >= 0 and found.tenants[tenant] in tenants)
            if elsewhere
            else name in on_gpus
        )
    ]
    if not chosen:
        return None
    rows = pl.Series(chosen, dtype=pl.Int64).to_numpy()
    earliest = found.origin + dt.timedelta(milliseconds=int(found.submit_ms[rows].min()))
    origin = min(max(earliest, begin - _BEFORE), begin)
    begin_ms = (origin - found.origin) // dt.timedelta(milliseconds=1)
    made = others_since(found.rows(rows), table["elsewhere"].to_numpy()[rows], begin_ms)
    return replace(made, jobs=replace(made.jobs, origin=origin))


_BEFORE = dt.timedelta(days=1)
"""How much earlier than the first GPU job a replay may begin; our choice."""


def _same_site(trace: Trace, cluster: str | None) -> list[str]:
    """Return the pools of the cluster to which a pool belongs, and that cluster; empty if it is not a pool."""
    if not trace.by_pool:
        return []
    (site,) = {pool.cluster for pool in trace.pools if pool.name == cluster} or {cluster}
    names = [pool.name for pool in trace.pools if pool.cluster == site]
    return [*names, *([] if site is None else [site])]


def _on_gpu_nodes(trace: Trace, names: pl.Series) -> pl.Series:
    """Return those of the jobs that ran on a node with GPUs; all of them if the nodes are unknown."""
    if not (trace.has("placements") and trace.has("nodes")):
        return names
    nodes = trace.scan("nodes").filter(pl.col("gpu_count") > 0).select("node_id").unique()
    found = (
        trace.scan("placements")
        .select("job_id", "node_id")
        .join(names.alias("job_id").to_frame().lazy(), on="job_id", how="semi")
        .join(nodes, on="node_id", how="semi")
        .select("job_id")
        .unique()
    )
    return found.collect()["job_id"]
