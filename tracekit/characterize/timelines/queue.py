"""The queue: why each job waited, and which jobs overtook others that had waited longer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.free_nodes import CAPACITY, free_nodes, nodes_of_job, nodes_of_partitions
from tracekit.characterize.notes import Note, noted
from tracekit.characterize.occupancy import (
    QUOTA,
    attempts_sql,
    no_attempt_sql,
    quotas,
    running,
    tenants,
    time_true,
    window_us,
)
from tracekit.characterize.timeline import TimelineRows, TimelineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.free_nodes import FreeNodes
    from tracekit.characterize.occupancy import Steps

_JOB_COLUMNS = (
    AnswerColumn("cluster", "text", "the job's cluster"),
    AnswerColumn("vc", "text", "the job's tenant"),
    AnswerColumn("gpu_count", "GPUs", "the job's size"),
    AnswerColumn("gpu_class", "class", "the job's size class"),
    AnswerColumn("class_order", "number", "order of the class"),
)
"""Columns that both queue timelines have after job_id and attempt."""
_QUEUE_TIMELINE = partial(
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
"""Makes a queue timeline with these tables, views and parameters; the other fields are given later."""


class _Room(NamedTuple):
    """GPUs that tenants used and could use over time, and the clusters' free nodes."""

    used: list[Steps]
    allowed: list[Steps]
    nodes: dict[str | None, FreeNodes]
    """Empty if the log does not record on which nodes jobs ran."""
    lost: list[Note]
    quota: Note
    of_nodes: list[Note]
    partitions: dict[str, frozenset[str]]
    """The nodes of each partition that has only some nodes of its pool; empty if there is none."""

    @classmethod
    def read(
        cls,
        con: duckdb.DuckDBPyConnection,
        params: Mapping[str, int | float | str],
        groups: pl.DataFrame,
        source: str,
        *,
        half_steps: bool = False,
    ) -> _Room:
        """Return the room for the tenants in `groups`; `half_steps` applies to used and free GPUs (`free_nodes`)."""
        held, lost = running(con, source, with_gpus=True)
        used = (held.half_steps() if half_steps else held).by_tenant(len(groups))
        allowed, quota = quotas(con, groups, lambda: used, str(params["quota"]))
        nodes: tuple[dict[str | None, FreeNodes], list[Note]] = ({}, [])
        if con.execute("SELECT 1 FROM placements LIMIT 1").fetchall():
            nodes = free_nodes(con, str(params["capacity"]), half_steps=half_steps)
        return cls(used, allowed, nodes[0], lost, quota, nodes[1], nodes_of_partitions(con))

    def of_job(self, cluster: str | None, partition: str | None) -> FreeNodes | None:
        """Return the nodes on which a job may run, or None if they are unknown."""
        return nodes_of_job(self.nodes, self.partitions, cluster, partition)


def _wait_causes(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
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
    room = _Room.read(con, params, groups, source)
    if room.partitions:
        asked = pl.DataFrame(con.sql('SELECT job_id, "partition" FROM jobs'))
        waits = waits.join(asked.unique("job_id", keep="first"), on="job_id", how="left", maintain_order="left")
    else:
        waits = waits.with_columns(partition=pl.lit(None, dtype=pl.String))
    known = waits.filter(pl.col("wait_us") >= 0)
    fair, fragmented = _shares(known, groups, room)
    wait_us = known["wait_us"].to_numpy()
    other = wait_us - fair - fragmented
    frame = known.select(
        "job_id",
        "attempt",
        *(column.name for column in _JOB_COLUMNS),
        wait_us="wait_us",
        fair_share_us=pl.Series(fair, dtype=pl.Int64),
        fragmentation_us=pl.Series(fragmented, dtype=pl.Int64) if room.nodes else pl.lit(None, dtype=pl.Int64),
        other_us=pl.Series(other, dtype=pl.Int64),
        cause=_main_cause(wait_us, fair, fragmented, other),
    )
    negative = noted("wait below zero", waits.height - known.height)
    return TimelineRows(frame, (*room.lost, *negative, room.quota, *(room.of_nodes or (Note("causes without nodes"),))))


def _shares(waits: pl.DataFrame, groups: pl.DataFrame, room: _Room) -> tuple[Ints, Ints]:
    """Return the part of each wait caused by the quota, and the part caused by fragmentation [us]."""
    until, waiter = waits["until"].to_numpy(), waits["code"].to_numpy()
    since = until - waits["wait_us"].to_numpy()
    size = waits["gpu_count"].fill_null(0).to_numpy()
    fair, fragmented = np.zeros(len(until), dtype=np.int64), np.zeros(len(until), dtype=np.int64)
    names = waits["partition"].unique().sort().to_list()
    place = waits["partition"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    fits: dict[tuple[str | None, str | None, float], Steps] = {}
    order = np.lexsort((size, place, waiter))
    changes = [np.diff(keys[order]) != 0 for keys in (waiter, place, size)]
    cuts = np.flatnonzero(np.logical_or.reduce(changes)) + 1
    for rows in np.split(order, cuts) if len(order) else []:
        gpus, group = float(size[rows[0]]), int(waiter[rows[0]])
        # Neither cause applies to a job without GPUs.
        rows = rows[until[rows] > since[rows]]  # noqa: PLW2901 -- the rest of the loop uses these rows
        if gpus <= 0 or not len(rows):
            continue
        where = (groups["cluster"][group], names[place[rows[0]]], gpus)
        used, allowed = room.used[group], room.allowed[group]
        times = np.union1d(used.times, allowed.times)
        if where not in fits and (pool := room.of_job(*where[:2])) is not None:
            fits[where] = pool.fits(gpus)
        if where in fits:
            times = np.union1d(times, fits[where].times)
        # Nothing changes before the first step, but a wait may begin there.
        times = np.union1d(times, since[rows].min())
        full = used.at(times) + gpus > allowed.at(times) + 1e-9
        for share, holds in (
            (fair, full),
            *(((fragmented, ~full & (fits[where].at(times) < 1)),) if where in fits else ()),
        ):
            share[rows] = time_true(times, holds, until[rows]) - time_true(times, holds, since[rows])
    return fair, fragmented


def _main_cause(wait_us: Ints, fair: Ints, fragmented: Ints, other: Ints) -> pl.Series:
    """Return the main cause of each wait, or the first if several are equal."""
    main = np.argmax(np.stack([fair, fragmented, other]), axis=0)
    words = pl.Series(["fair_share", "fragmentation", "other", "none"])
    return words.gather(pl.Series(np.where(wait_us > 0, main, 3)))


WAIT_CAUSES = _QUEUE_TIMELINE(
    name="wait_causes",
    title="The causes of each wait",
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("attempt", "number", "the attempt that ended the wait"),
        *_JOB_COLUMNS,
        AnswerColumn("wait_us", "us", "the wait; the next three columns add up to it exactly"),
        AnswerColumn("fair_share_us", "us", "time in which the job would have exceeded the quota of the VC"),
        AnswerColumn(
            "fragmentation_us",
            "us",
            "time in which the quota had room, but no nodes with the requested locality were free",
        ),
        AnswerColumn("other_us", "us", "the rest"),
        AnswerColumn("cause", "text", "main cause of the wait: fair_share, fragmentation, other, or none if it is 0 s"),
    ),
    rule="""Each moment of a wait for g GPUs in the VC v has one cause. The cause is fair_share while (GPUs of v in use)
+ g > (quota of v). Otherwise it is fragmentation while g GPUs could not be placed on the fewest nodes of the cluster
that fit them, and other at all other times. Only nodes of the job's partition count if they are known (see
docs/partitions.md). Waits with unknown ends and negative waits are excluded. A job without GPUs, or of unknown size,
waits only for other reasons. The two kinds of delay come from Philly (ATC'19); the test is ours, because quotas are not
published.""",
    compute=_wait_causes,
)


def _queue_order(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    groups = tenants(con)
    source = attempts_sql(con)
    window = window_us(con)
    # A job still waiting at the end of the trace has waited through all starts.
    queued = pl.DataFrame(
        con.sql(
            f"""SELECT w.job_id, w.attempt, t.cluster, t.vc, w.code, w.job_gpus AS gpu_count,
                   w.gpu_class, w.class_order,
                   true AS started,
                   epoch_us(w.start_time) - CAST(round(w.wait_s * 1000000) AS BIGINT) AS since,
                   epoch_us(w.start_time) AS until
            FROM ({source}) AS w INNER JOIN tenant AS t ON w.code = t.code
            WHERE w.wait_s >= 0 AND w.start_time IS NOT NULL AND w.job_gpus > 0
            UNION ALL
            SELECT * FROM (
                SELECT j.job_id, NULL, j.cluster, j.vc, t.code, j.gpu_count, j.gpu_class, j.class_order, false,
                       epoch_us(j.submit_time) AS since,
                       coalesce(epoch_us(j.end_time), CASE WHEN j.status = 'pending' THEN $beyond END) AS until
                FROM job_classes AS j
                JOIN tenant AS t ON j.cluster IS NOT DISTINCT FROM t.cluster AND j.vc IS NOT DISTINCT FROM t.vc
                WHERE j.gpu_count > 0 AND {no_attempt_sql(con)})
            WHERE since <= until""",
            params={"beyond": window and window[1] + 1},
        )
    )
    room = _Room.read(con, params, groups, source, half_steps=True)
    waiter = queued["code"].to_numpy()
    early, overtaken, harmless = (np.zeros(len(queued), dtype=bool) for _ in range(3))
    known = np.zeros(len(queued), dtype=bool)
    since, until = queued["since"].to_numpy(), queued["until"].to_numpy()
    size, started = queued["gpu_count"].to_numpy(), queued["started"].to_numpy()
    by_tenant = np.argsort(waiter, kind="stable")
    cuts = np.searchsorted(waiter[by_tenant], np.arange(len(groups) + 1))
    for group, cluster in enumerate(groups["cluster"]):
        rows = by_tenant[cuts[group] : cuts[group + 1]]
        if not len(rows):
            continue
        early[rows], overtaken[rows] = _out_of_order(since[rows], until[rows], started[rows])
        jumped = rows[early[rows]]
        least = _least_overtaken(since[rows], until[rows], size[rows], since[jumped], until[jumped])
        left = room.allowed[group].at(until[jumped]) - room.used[group].at(until[jumped] * 2)
        placeable = least <= left + 1e-9
        pool = room.nodes.get(cluster)
        if pool is not None:
            for gang in np.unique(least):
                same = least == gang
                placeable[same] &= pool.fits(float(gang)).at(until[jumped[same]] * 2) >= 1
        harmless[jumped] = ~placeable
        known[jumped] = ~np.isnan(left)
    frame = queued.select(
        "job_id",
        "attempt",
        *(column.name for column in _JOB_COLUMNS),
        "started",
        out_of_order=pl.Series(early),
        overtaken=pl.Series(overtaken),
        harmless=pl.when(pl.Series(known)).then(pl.Series(harmless)),
    )
    return TimelineRows(frame, (*room.lost, room.quota, *(room.of_nodes or (Note("room without nodes"),))))


def _out_of_order(since: Ints, until: Ints, started: Bools) -> tuple[Bools, Bools]:
    """Return masks of the starts before a job queued earlier left the queue, and of the overtaken jobs."""
    order = np.argsort(since, kind="stable")
    queued = since[order]
    latest = np.maximum.accumulate(until[order])
    ahead = np.searchsorted(queued, since, side="left")  # number of jobs queued strictly earlier
    early = started & (ahead > 0) & (latest[np.maximum(ahead - 1, 0)] > until)
    starts = np.where(started[order], until[order], np.iinfo(np.int64).max)
    soonest = np.append(np.minimum.accumulate(starts[::-1])[::-1], np.iinfo(np.int64).max)
    overtaken = soonest[np.searchsorted(queued, since, side="right")] < until
    return early, overtaken


def _least_overtaken(since: Ints, until: Ints, size: Floats, jumper_since: Ints, jumper_start: Ints) -> Floats:
    """Return the size of the smallest job that each out-of-order start overtook.

    There are only a few sizes, so we try each, smallest first: a job up to that size was overtaken if the last of these
    jobs to leave the queue left after the start.
    """
    order = np.argsort(since, kind="stable")
    ahead = np.searchsorted(since[order], jumper_since, side="left")
    least = np.full(len(jumper_since), np.nan)
    open_ = np.arange(len(jumper_since))
    for gang in np.unique(size):
        if not len(open_):
            break
        leaving = np.where(size[order] <= gang, until[order], np.iinfo(np.int64).min)
        latest = np.maximum.accumulate(leaving)
        found = latest[ahead[open_] - 1] > jumper_start[open_]
        least[open_[found]] = gang
        open_ = open_[~found]
    return least


QUEUE_ORDER = _QUEUE_TIMELINE(
    name="queue_order",
    title="Each period in the queue, and whether it was out of order",
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn(
            "attempt", "number", "the attempt that ended the wait; NULL if the job left the queue without an attempt"
        ),
        *_JOB_COLUMNS,
        AnswerColumn("started", "true or false", "whether the job started, rather than left the queue"),
        AnswerColumn(
            "out_of_order", "true or false", "whether the job started while a job queued earlier was still waiting"
        ),
        AnswerColumn("overtaken", "true or false", "whether a job queued later started while the job was waiting"),
        AnswerColumn(
            "harmless",
            "true or false",
            "whether none of the overtaken jobs could have been placed then; NULL when unknown",
        ),
    ),
    rule="""Only jobs with GPUs in the same VC are compared. A start at s of a job queued at q is out of order if
another job was queued before q and was still waiting after s. The start is harmless if even the smallest overtaken job
could not have been placed at s, because the VC's quota had no room for it or no nodes with the requested locality were
free. GPUs released at s count as free, and so do GPUs taken at s. A job still pending at the end of the trace has
waited through all starts; other unknown or negative waits are excluded. The question comes from Philly (ATC'19); the
test is ours.""",
    compute=_queue_order,
)
