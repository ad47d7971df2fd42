"""The causes of each wait: the VC was at its quota, or no nodes with the wanted locality were free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn, Param
from tracekit.characterize.notes import Note
from tracekit.characterize.occupancy import attempts_sql, running, tenants, time_true
from tracekit.characterize.placeable import free_nodes
from tracekit.characterize.quotas import QUOTA, quotas
from tracekit.characterize.timeline import TimelineRows, TimelineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Ints
    from tracekit.characterize.occupancy import Steps
    from tracekit.characterize.placeable import FreeNodes


CAPACITY = Param(
    "capacity",
    "observed",
    "how many GPUs a node has: as the node list says, or the largest number that any source shows",
    ("observed", "listed"),
)
JOB_COLUMNS = (
    AnswerColumn("cluster", "text", "the job's cluster"),
    AnswerColumn("vc", "text", "the job's tenant"),
    AnswerColumn("gpu_count", "GPUs", "the job's size"),
    AnswerColumn("gpu_class", "class", "the job's size class"),
    AnswerColumn("class_order", "number", "order of the class"),
)
"""Columns that both timelines of the queue have after job_id and attempt."""
QUEUE_TIMELINE = partial(
    TimelineTable,
    tables=("jobs", "attempts"),
    views=(
        "job_classes",
        "node_gpus",
        "open_attempts",
        "trace_capabilities",
        "trace_nodes",
        "trace_tenant",
        "trace_window",
    ),
    also=("placements", "nodes", "capacity", "gpu_utilization", "node_events"),
    by_cluster=True,
    params=(QUOTA, CAPACITY),
)
"""A timeline of the queue, without its name, title, columns, rule and function: its tables, views and parameters."""


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    groups = tenants(con)
    source = attempts_sql(con)
    waits = pl.DataFrame(
        con.sql(
            f"""SELECT w.job_id, w.attempt, t.cluster, t.vc, w.code, w.job_gpus AS gpu_count,
                   w.gpu_class, w.class_order,
                   epoch_us(w.start_time) AS until, CAST(round(w.wait_s * 1000000) AS BIGINT) AS wait_us
            FROM ({source}) AS w INNER JOIN tenant AS t ON w.code = t.code
            WHERE w.wait_s IS NOT NULL AND w.start_time IS NOT NULL"""
        )
    )
    held, notes = running(con, source, with_gpus=True)
    negative = waits.filter(pl.col("wait_us") < 0).height
    if negative:
        notes.append(Note("wait below zero", (negative,)))
        waits = waits.filter(pl.col("wait_us") >= 0)
    used = held.by_tenant(len(groups))
    allowed, quota = quotas(con, groups, lambda: used, str(params["quota"]))
    notes.append(quota)
    nodes: dict[str | None, FreeNodes] | None = None
    if con.execute("SELECT 1 FROM placements LIMIT 1").fetchall():
        nodes, lost = free_nodes(con, str(params["capacity"]))
        notes += lost
    else:
        notes.append(Note("causes without nodes"))
    fair, fragmented = _shares(waits, groups, used, allowed, nodes)
    wait_us = waits["wait_us"].to_numpy()
    other = wait_us - fair - fragmented
    frame = waits.select(
        "job_id",
        "attempt",
        *(column.name for column in JOB_COLUMNS),
        wait_us="wait_us",
        fair_share_us=pl.Series(fair, dtype=pl.Int64),
        fragmentation_us=pl.Series(fragmented, dtype=pl.Int64) if nodes else pl.lit(None, dtype=pl.Int64),
        other_us=pl.Series(other, dtype=pl.Int64),
        cause=_main_cause(wait_us, fair, fragmented, other),
    )
    return TimelineRows(frame, tuple(notes))


def _shares(
    waits: pl.DataFrame,
    groups: pl.DataFrame,
    used: list[Steps],
    allowed: list[Steps],
    nodes: dict[str | None, FreeNodes] | None,
) -> tuple[Ints, Ints]:
    """Return how long each wait was due to the quota, and how long to fragmentation [us]."""
    until, waiter = waits["until"].to_numpy(), waits["code"].to_numpy()
    since = until - waits["wait_us"].to_numpy()
    size = waits["gpu_count"].fill_null(0).to_numpy()
    fair, fragmented = np.zeros(len(until), dtype=np.int64), np.zeros(len(until), dtype=np.int64)
    fits: dict[tuple[str | None, float], Steps] = {}
    order = np.lexsort((size, waiter))
    cuts = np.flatnonzero((np.diff(waiter[order]) != 0) | (np.diff(size[order]) != 0)) + 1
    for rows in np.split(order, cuts) if len(order) else []:
        gpus, group = float(size[rows[0]]), int(waiter[rows[0]])
        # A job without GPUs waits for neither.
        rows = rows[until[rows] > since[rows]]  # noqa: PLW2901 -- the rest of the loop is about these
        if gpus <= 0 or not len(rows):
            continue
        cluster = groups["cluster"][group]
        times = np.union1d(used[group].times, allowed[group].times)
        pool = None if nodes is None else nodes.get(cluster)
        if pool is not None:
            if (cluster, gpus) not in fits:
                fits[cluster, gpus] = pool.fits(gpus)
            times = np.union1d(times, fits[cluster, gpus].times)
        # Nothing changes before the first step, and a wait may begin there.
        times = np.union1d(times, since[rows].min())
        full = used[group].at(times) + gpus > allowed[group].at(times) + 1e-9
        for share, holds in (
            (fair, full),
            *(((fragmented, ~full & (fits[cluster, gpus].at(times) < 1)),) if pool is not None else ()),
        ):
            share[rows] = time_true(times, holds, until[rows]) - time_true(times, holds, since[rows])
    return fair, fragmented


def _main_cause(wait_us: Ints, fair: Ints, fragmented: Ints, other: Ints) -> pl.Series:
    """Return the cause of most of each wait; the first of equal ones."""
    main = np.argmax(np.stack([fair, fragmented, other]), axis=0)
    words = pl.Series(["fair_share", "fragmentation", "other", "none"])
    return words.gather(pl.Series(np.where(wait_us > 0, main, 3)))


TIMELINE = QUEUE_TIMELINE(
    name="wait_causes",
    title="The causes of each wait",
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("attempt", "number", "the attempt that ended the wait"),
        *JOB_COLUMNS,
        AnswerColumn("wait_us", "us", "the wait; the next three add up to it exactly"),
        AnswerColumn("fair_share_us", "us", "while the VC held so much that the job would have exceeded its quota"),
        AnswerColumn("fragmentation_us", "us", "while the quota had room, but no nodes with the wanted locality did"),
        AnswerColumn("other_us", "us", "the rest"),
        AnswerColumn("cause", "text", "the cause of most of the wait: fair_share, fragmentation, other; none for 0 s"),
    ),
    rule="""At each moment of a wait for g GPUs in the VC v: fair_share while (GPUs that v holds) + g > (quota of v);
else fragmentation while no nodes of the cluster could take g GPUs on the fewest nodes that can hold g; else other.
Waits with unknown ends and waits below zero are out; a job of unknown or no GPUs waits for other reasons only.
Source: the two kinds of delay are those of Philly (ATC'19); the test is ours, since quotas are not published.""",
    compute=_compute,
)
