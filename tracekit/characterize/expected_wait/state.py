"""The state of the queue when a job begins to wait: the jobs ahead, the work that they need, and the free GPUs.

The state uses only facts known at that moment, so it can be computed for every job in a log, and for a job submitted
now. A job competes with the jobs of its cluster (or pool, if partitions divide the cluster). GPU jobs compete with GPU
jobs. CPU jobs and jobs of unknown size compete with each other, and need one place each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.free_nodes import (
    FreeNodes,
    away_spans,
    free_nodes,
    nodes_of_job,
    nodes_of_partitions,
)
from tracekit.characterize.occupancy import Steps, window_us

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.expected_wait.likeness import Lately
    from tracekit.tables.live_queue import Queue

LOADS = (0.0, 0.1, 0.5, 1.5)
"""Upper bounds of the queue length classes: places needed by the jobs ahead, divided by all places (our choice). In the
first class, no job is ahead."""

_LEAST_WORK_S = 600.0
"""Two states with less work ahead than this hardly differ [s]; our choice."""
_AN_HOUR = 3600.0
BEYOND_US = 3_600_000_000
"""How long after the end of the log its running and waiting jobs still count [us]; any time above 0."""
_FIT_APART = 3.0
"""Distance between states in which the job fits and does not fit, as the natural logarithm of a ratio of work (our
choice). It equals a 20-fold difference in work."""


ROOM_TABLES = ("attempts", "placements", "nodes", "node_events", "gpu_utilization")
"""Tables that a connection needs for `Room.read`; they may be empty."""

_TIE = 1e-9
"""Distance added for each later candidate, to order equally similar states."""


@dataclass(frozen=True)
class Room:
    """The nodes on which jobs may run, with their free GPUs over time in half microseconds."""

    nodes: Mapping[str | None, FreeNodes] = field(default_factory=dict)
    """By cluster; empty if the log does not record on which nodes jobs ran."""
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes of each partition that has only some nodes of its pool."""
    away: frozenset[str] = frozenset()
    """Nodes that are out of service at the end of the log."""

    @classmethod
    def read(cls, con: duckdb.DuckDBPyConnection) -> Room:
        """Return the room of a log. `con` has the tables of `ROOM_TABLES`, which may be empty, and the shared views."""
        if not con.execute("SELECT 1 FROM placements LIMIT 1").fetchall():
            return cls()
        nodes, _ = free_nodes(con, "observed", half_steps=True, beyond_us=BEYOND_US)
        window, spans = window_us(con), away_spans(con)
        away = spans.filter(pl.col("until") == (window and window[1]))["node_id"]
        return cls(nodes, nodes_of_partitions(con), frozenset(away))

    def of_job(self, cluster: str | None, partition: str | None) -> FreeNodes | None:
        """Return the nodes on which a job may run, or None if they are unknown."""
        return nodes_of_job(self.nodes, self.partitions, cluster, partition)

    def with_use(self, used: Mapping[str, float]) -> Room:
        """Return the room with these GPUs of each node in use all the time, and no others."""
        nodes = {}
        for cluster, pool in self.nodes.items():
            left = [
                0.0 if name in self.away else max(gpus - used.get(name, 0.0), 0.0)
                for name, gpus in zip(pool.names, pool.node_gpus.tolist(), strict=True)
            ]
            number = np.arange(len(left))
            nodes[cluster] = FreeNodes(pool.node_gpus, number, np.zeros_like(number), np.array(left), pool.names)
        return Room(nodes, self.partitions, self.away)


STATE = ("ahead_jobs", "ahead_gpus", "ahead_s", "places", "fits")
"""The columns of `with_states`."""


def with_states(jobs: pl.DataFrame, room: Room, least_places: Mapping[str, float] | None = None) -> pl.DataFrame:
    """Add the state in which each job began to wait.

    A job submitted at the same moment is not ahead, even if it starts then, and its GPUs do not count as used.

    Parameters
    ----------
    jobs : polars.DataFrame
        The columns cluster, partition, gpu_count, limit_s, since, until, ended [us], started and going_on, ordered by
        since, as in `waiting_jobs`.
    room : Room
        The nodes.
    least_places : mapping, optional
        Known places of GPU jobs and of other jobs (keys 'gpus' and 'jobs'), used only if the nodes are unknown.

    Returns
    -------
    polars.DataFrame
        With five more columns. ahead_jobs: the number of waiting jobs ahead. ahead_gpus: the places that they need,
        which are GPUs for GPU jobs, and one for each other job. ahead_s: their work, which is places times time limit,
        divided by all places [s]. A job without a limit gets the mean limit of earlier jobs, or an hour if none has a
        limit. places: the GPUs of the nodes, or else the most places in use at once so far. fits: whether a GPU job
        fits on the fewest free nodes; NULL if the nodes are unknown, and for other jobs.
    """
    of_gpus = (jobs["gpu_count"].fill_null(0) > 0).to_numpy()
    need = np.where(of_gpus, jobs["gpu_count"].fill_null(0).to_numpy(), 1.0)
    mean = (pl.col("limit_s").fill_null(0).cum_sum() / pl.col("limit_s").is_not_null().cum_sum()).shift(1)
    hours = pl.coalesce("limit_s", mean.fill_nan(None).over("cluster"), _AN_HOUR)
    work = need * jobs.select(hours.cast(pl.Float64)).to_series().to_numpy()
    since, until, ended = (jobs[name].to_numpy() for name in ("since", "until", "ended"))
    started = jobs["started"].to_numpy()
    left = np.where(jobs["going_on"].to_numpy(), until + BEYOND_US, until)
    columns = {name: np.zeros(jobs.height) for name in STATE[:4]}
    fits = np.full(jobs.height, np.nan)
    for cluster in jobs["cluster"].unique(maintain_order=True).to_list():
        member = jobs["cluster"].eq_missing(cluster).to_numpy()
        for kind in (True, False):
            rows = np.flatnonzero(member & (of_gpus == kind))
            if not len(rows):
                continue
            # In half microseconds, a job waits from just after its submission until just after its start.
            asked, begins, ends = 2 * since[rows], 2 * since[rows] + 1, 2 * left[rows] + 1
            for name, weight in zip(STATE[:3], (np.ones(jobs.height), need, work), strict=True):
                columns[name][rows] = Steps.of_intervals(begins, ends, weight[rows]).at(asked)
            ran = rows[started[rows] & (ended[rows] > until[rows])]
            used = Steps.of_intervals(2 * until[ran] + 1, 2 * ended[ran], need[ran])
            most = Steps(used.times, np.maximum.accumulate(used.values)).at(asked)
            least = (least_places or {}).get("gpus" if kind else "jobs", 0.0)
            places = np.maximum(np.maximum(most, need[rows]), least)
            pool = room.nodes.get(cluster) if kind else None
            columns["places"][rows] = places if pool is None or not len(pool.node_gpus) else pool.node_gpus.sum()
        if cluster in room.nodes:
            _fits(jobs, np.flatnonzero(member & of_gpus), cluster, room, fits)
    columns["ahead_s"] /= np.maximum(columns["places"], 1e-9)
    return jobs.with_columns(
        *(pl.Series(name, values) for name, values in columns.items()),
        fits=pl.Series(fits).fill_nan(None) > 0,
    ).with_columns(pl.col("ahead_jobs").cast(pl.Int64))


def _fits(jobs: pl.DataFrame, rows: Ints, cluster: str | None, room: Room, fits: Floats) -> None:
    """Set whether each of some rows' jobs fits on the nodes of its partition."""
    alike = jobs[rows].with_columns(row=pl.Series(rows)).select("partition", "gpu_count", "row", "since")
    for (partition, gpus), own in alike.group_by("partition", "gpu_count", maintain_order=True):
        pool = room.of_job(cluster, partition)
        if pool is not None and len(pool.node_gpus):
            fits[own["row"].to_numpy()] = pool.fits(float(gpus)).at(2 * own["since"].to_numpy())


@dataclass(frozen=True)
class Question:
    """The job whose wait is predicted, and the state of the queue at its submission."""

    jobs: pl.DataFrame
    """The jobs of the log with their states, and the job in the last row."""
    free_gpus: float | None
    """Free GPUs on the nodes on which the job may run, or None if the nodes are unknown."""

    @property
    def row(self) -> int:
        """The number of the job's row."""
        return self.jobs.height - 1


def ask_state(
    jobs: pl.DataFrame,
    room: Room,
    request: Mapping[str, object],
    end: int,
    queue: Queue | None,
    members: frozenset[str],
) -> Question:
    """Return the state in which a job is submitted: at the end of the log, or in a queue.

    Parameters
    ----------
    jobs : polars.DataFrame
        From `waiting_jobs`.
    room : Room
        The nodes of the log.
    request : mapping
        The job's cluster, gpu_class, partition and gpu_count.
    end : int
        The end of the log [us].
    queue : Queue, optional
        The jobs that replace those that run and wait at the end of the log.
    members : frozenset of str
        Partitions of the job's cluster; if empty, all partitions of the queue are.
    """
    past = with_states(jobs, room)
    asked = end + 1 if queue is None else queue.asked_us
    job = pl.DataFrame(
        [{**request, "since": asked, "until": asked, "ended": asked, "started": True, "going_on": False}]
    )
    job = job.cast({name: kind for name, kind in jobs.schema.items() if name in job.columns})
    if queue is None:
        now, there = jobs, room
        least: dict[str, float] = {}
    else:
        now, there = _of_queue(jobs, queue, str_or_none(request["cluster"]), members), room.with_use(_used(queue))
        own = past.filter(pl.col("cluster").eq_missing(pl.lit(request["cluster"])))
        some = pl.col("gpu_count").fill_null(0) > 0
        least = {
            "gpus": own.filter(some).select(pl.col("places").max()).item() or 0.0,
            "jobs": own.filter(~some).select(pl.col("places").max()).item() or 0.0,
        }
    state = with_states(pl.concat([now, job], how="diagonal"), there, least).tail(1)
    pool = there.of_job(str_or_none(request["cluster"]), str_or_none(request["partition"]))
    free = None
    if pool is not None and len(pool.node_gpus):
        free = float(pool.at_moments(np.array([2 * asked]))[0][0])
    return Question(pl.concat([past, state], how="diagonal"), free)


def str_or_none(value: object) -> str | None:
    """Return a name, or None."""
    return None if value is None else str(value)


def _of_queue(jobs: pl.DataFrame, queue: Queue, cluster: str | None, members: frozenset[str]) -> pl.DataFrame:
    """Return the jobs of a queue that compete with jobs of a cluster, in the columns that `with_states` reads."""
    mean = jobs.filter(pl.col("cluster").eq_missing(pl.lit(cluster)))["limit_s"].mean()
    within = (
        pl.col("partitions").list.eval(pl.element().is_in(list(members))).list.any() if members else pl.lit(value=True)
    )
    later = queue.asked_us + BEYOND_US
    return (
        queue.jobs.filter(within.fill_null(value=False))
        .with_columns(since=pl.min_horizontal("since", pl.lit(queue.asked_us - 1)))
        .select(
            pl.lit(cluster, dtype=pl.String).alias("cluster"),
            pl.col("partitions").list.first().alias("partition"),
            "gpu_count",
            # Without a limit in the log, all jobs count alike.
            limit_s=pl.lit(None, dtype=pl.Float64) if mean is None else pl.col("limit_s").fill_null(mean),
            since="since",
            until=pl.when("waiting").then(queue.asked_us).otherwise("since"),
            ended=pl.lit(later),
            started=~pl.col("waiting"),
            going_on="waiting",
        )
        .sort("since")
    )


def _used(queue: Queue) -> dict[str, float]:
    """Return the GPUs in use on each node of a queue."""
    held = queue.jobs.filter(~pl.col("waiting")).explode("nodes", "node_gpus").group_by("nodes")
    return {node: gpus or 0.0 for node, gpus in held.agg(pl.col("node_gpus").sum()).rows() if node is not None}


@dataclass(frozen=True)
class States:
    """The states of jobs in the form in which they are compared."""

    work: Floats
    """Logarithm of the work ahead [log s]."""
    fits: Bools
    load: Ints
    """Class of the queue length (`LOADS`)."""

    @classmethod
    def of(cls, jobs: pl.DataFrame) -> States:
        """Return the states in the columns of `with_states`."""
        load = jobs["ahead_gpus"].to_numpy() / np.maximum(jobs["places"].to_numpy(), 1e-9)
        return cls(
            np.log(jobs["ahead_s"].to_numpy() + _LEAST_WORK_S),
            jobs["fits"].fill_null(value=False).to_numpy(),
            np.searchsorted(np.array(LOADS), load),
        )

    def cell(self, job: int) -> tuple[int, bool]:
        """Return the class of a job's state. Intervals learn separately in each class."""
        return int(self.load[job]), bool(self.fits[job])

    def nearest(self, jobs: Ints, candidates: Ints, lately: Lately) -> Ints:
        """Return the candidates in the states most similar to that of each of `jobs`, as many as `Lately.used`.

        Parameters
        ----------
        jobs : array
            Row numbers of the jobs.
        candidates : array of shape (jobs, any)
            Row numbers of earlier jobs, in the order in which they began to wait, padded with -1.

        Returns
        -------
        array of shape (jobs, lately.most)
            Row numbers, padded with -1.
        """
        apart = np.abs(self.work[candidates] - self.work[jobs, None])
        apart += _FIT_APART * (self.fits[candidates] != self.fits[jobs, None])
        there = candidates >= 0
        # Of equally similar candidates, use the latest, which come last.
        apart += _TIE * np.arange(candidates.shape[1])[::-1]
        apart[~there] = np.inf
        if lately.most < candidates.shape[1]:
            order = np.argpartition(apart, lately.most - 1, axis=1)[:, : lately.most]
            candidates, apart = np.take_along_axis(candidates, order, axis=1), np.take_along_axis(apart, order, axis=1)
        found = np.take_along_axis(candidates, np.argsort(apart, axis=1), axis=1)
        kept = lately.used(there.sum(axis=1))
        found[np.arange(found.shape[1]) >= kept[:, None]] = -1
        return found

    def ratio(self, jobs: Ints, others: Ints) -> Floats:
        """Return the work ahead of each of `jobs`, divided by that ahead of each of the others; shape of `others`."""
        ratio: Floats = np.exp(self.work[jobs, None] - self.work[others])
        return ratio
