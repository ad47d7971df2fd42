"""Free GPUs per node over time, when a gang would have fitted, and nodes out of service.

A gang needs the fewest nodes that fit it: a single node if nodes are large enough, otherwise whole nodes and one more
node with enough free GPUs for the rest. Philly (ATC'19) and its successors try this rule first. While the node_events
table lists a node as out of service, its GPUs do not count as capacity.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import Param
from tracekit.characterize.notes import Note, noted
from tracekit.characterize.occupancy import Steps, open_attempts_sql, window_us
from tracekit.tables.pools import find_pools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints

# Find the times in which nodes were out of service.


AWAY = ("down", "drained", "maintenance")
"""States in which a node accepts no new jobs. A degraded node still does. Replays use the same states."""

CAPACITY = Param(
    "capacity",
    "observed",
    "source of a node's GPU count: the node list, or the largest number in any source",
    ("observed", "listed"),
)
"""The query parameter that selects the source of node sizes."""

EVENTS = Param(
    "events",
    "away",
    "whether nodes that node_events lists as down, drained or in maintenance have no capacity or count as available",
    ("away", "ignored"),
)
"""The query parameter that selects how node events count."""

_SPANS = f"""WITH event AS (
    SELECT node_id, epoch_us(start_time) AS since, coalesce(epoch_us(end_time), $last) AS until
    FROM node_events WHERE state IN {AWAY}),
marked AS (
    SELECT *, max(until) OVER (
        PARTITION BY node_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM event WHERE until > since),
numbered AS (
    SELECT *, count(*) FILTER (WHERE before IS NULL OR since > before) OVER (
        PARTITION BY node_id ORDER BY since, until ROWS UNBOUNDED PRECEDING) AS number
    FROM marked)
SELECT node_id, min(since) AS since, max(until) AS until FROM numbered GROUP BY node_id, number"""

# GPUs that a job still uses on a drained node count as capacity.
_IDLE = """SELECT s.cluster, s.since, s.until, s.gpus FROM away_span s
UNION ALL
SELECT s.cluster, greatest(s.since, h.since), least(s.until, h.until), -h.gpus
FROM away_span s JOIN (
    SELECT p.node_id, p.gpu_count AS gpus, epoch_us(coalesce(p.start_time, a.start_time)) AS since,
           coalesce(epoch_us(p.end_time), epoch_us(a.end_time), o.until_us) AS until
    FROM placements p JOIN attempts a ON p.job_id = a.job_id AND p.attempt = a.attempt
    LEFT JOIN {still} o ON o.job_id = a.job_id AND o.attempt = a.attempt
    WHERE p.gpu_count > 0) h
  ON s.node_id = h.node_id AND h.since < s.until AND h.until > s.since"""


def away_spans(con: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    """Return the periods in which nodes were out of service: node_id, since, until [us], without overlaps on a node.

    A period without an end lasts until the last time in the trace.

    Parameters
    ----------
    con : DuckDB connection
        A connection with jobs, attempts and node_events, which may be empty.
    """
    window = window_us(con)
    found: pl.DataFrame = pl.DataFrame(con.sql(_SPANS, params={"last": window and window[1]}))
    return found.sort("node_id", "since")


def idle_gpus_away(
    con: duckdb.DuckDBPyConnection, clusters: Sequence[str | None], edges: Ints
) -> tuple[dict[str | None, Floats], list[Note]]:
    """Return the mean number of unused GPUs that were out of service, by cluster and interval, and a note on them.

    Parameters
    ----------
    con : DuckDB connection
        A connection with jobs, attempts, placements, nodes and node_events; the last three may be empty.
    clusters : sequence
        Names of the clusters; if there is only one, nodes without a cluster belong to it.
    edges : int64 array, shape (intervals + 1,)
        Edges of the intervals [us].

    Returns
    -------
    dict
        Empty if no node of known size was out of service.
    list of Note
        Empty in the same case.
    """
    if not con.execute("SELECT 1 FROM node_events LIMIT 1").fetchall():
        return {}, []
    spans = away_spans(con)
    con.register("away", spans)
    only = clusters[0] if len(clusters) == 1 else None
    con.execute(
        """CREATE OR REPLACE TEMP TABLE away_span AS
        SELECT a.node_id, CASE WHEN $single THEN $only ELSE n.cluster END AS cluster, a.since, a.until,
               n.gpu_count AS gpus
        FROM away a JOIN nodes n ON a.node_id = n.node_id WHERE n.gpu_count > 0""",
        {"single": len(clusters) == 1, "only": only},
    )
    con.unregister("away")
    rows = pl.DataFrame(con.sql(_IDLE.format(still=open_attempts_sql(con))))
    if rows.is_empty():
        return {}, []
    found: dict[str | None, Floats] = {}
    total = 0.0
    for (cluster,), own in rows.group_by("cluster", maintain_order=True):
        values = [own[name].to_numpy() for name in ("since", "until", "gpus")]
        steps = Steps.of_intervals(values[0].astype(np.int64), values[1].astype(np.int64), values[2].astype(np.float64))
        found[cluster] = steps.means(edges)
        total += float((found[cluster] * np.diff(edges)).sum()) / 3.6e9
    nodes = con.execute("SELECT count(DISTINCT node_id) FROM away_span").fetchall()[0][0]
    return found, [Note("out of service", (total, nodes))]


# Find the free GPUs of nodes, and the gangs that fit on them.


@dataclass(frozen=True)
class FreeNodes:
    """The free GPUs of each node of a pool over time.

    Attributes
    ----------
    node_gpus : float64 array, shape (nodes,)
        GPUs of each node.
    size : float
        GPUs of the largest node.
    node, time, free : arrays, shape (n,)
        The node's free GPUs from each time [us] on, ordered by node and time.
    names : tuple of str
        The node_id of each node; empty if not requested.
    """

    node_gpus: Floats
    node: Ints
    time: Ints
    free: Floats
    names: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """GPUs of the largest node, or 0 if there are no nodes."""
        return float(self.node_gpus.max(initial=0))

    def only(self, numbers: Ints) -> FreeNodes:
        """Return a pool that consists of only these nodes, in this order."""
        kept = np.zeros(len(self.node_gpus), dtype=bool)
        kept[numbers] = True
        rows = kept[self.node]
        node = (np.cumsum(kept) - 1)[self.node[rows]]
        names = tuple(itertools.compress(self.names, kept))
        return FreeNodes(self.node_gpus[kept], node, self.time[rows], self.free[rows], names)

    def of_node(self, number: int) -> Steps:
        """Return the free GPUs of a single node over time."""
        first, last = np.searchsorted(self.node, [number, number + 1])
        return Steps(
            self.time[first:last], np.concatenate([self.node_gpus[number : number + 1], self.free[first:last]])
        )

    def with_at_least(self, gpus: float) -> Steps:
        """Return the number of nodes with at least this many free GPUs, over time."""
        enough = self.free >= gpus - 1e-9
        first = np.ones(len(self.node), dtype=bool)
        first[1:] = self.node[1:] != self.node[:-1]
        previous = np.empty(len(self.node), dtype=bool)
        previous[1:] = enough[:-1]
        previous[first] = self.node_gpus[self.node[first]] >= gpus - 1e-9
        changed = enough != previous
        times, change = self.time[changed], np.where(enough[changed], 1.0, -1.0)
        moments, index = np.unique(times, return_inverse=True)
        sums = np.bincount(index, weights=change, minlength=len(moments))
        whole = float((self.node_gpus >= gpus - 1e-9).sum())
        return Steps(moments, np.concatenate([[whole], whole + np.cumsum(sums)]))

    def fits(self, gang: float) -> Steps:
        """Return whether a gang of this many GPUs fits on the fewest nodes over time: 1 if it does, otherwise 0."""
        if self.size <= 0:
            return Steps(np.empty(0, dtype=np.int64), np.array([0.0]))
        return Packing(self, gang).fits()

    def at_moments(self, moments: Ints) -> tuple[Floats, Ints, Floats, Floats]:
        """Return free GPUs, entirely free nodes, their GPUs, and the largest gang that fits, at each moment [us].

        The largest gang that fits on its fewest nodes fills all entirely free nodes and the best of the others.
        """
        free = np.zeros(len(moments))
        whole, whole_gpus = np.zeros(len(moments), dtype=np.int64), np.zeros(len(moments))
        best = np.zeros(len(moments))
        cuts = np.searchsorted(self.node, np.arange(len(self.node_gpus) + 1))
        for number, gpus in enumerate(self.node_gpus):
            own = slice(cuts[number], cuts[number + 1])
            left = np.concatenate([[gpus], self.free[own]])[np.searchsorted(self.time[own], moments, side="right")]
            left = np.maximum(left, 0)  # an overcommitted node has 0 free GPUs, not fewer
            idle = left >= gpus - 1e-9
            free += left
            whole += idle
            whole_gpus += np.where(idle, gpus, 0)
            best = np.maximum(best, np.where(idle, 0, left))
        return free, whole, whole_gpus, whole_gpus + best


# Counting unknown GPUs as 0 would show them as free.
_UNEVEN = """CREATE OR REPLACE TEMP TABLE uneven AS
SELECT p.job_id, p.attempt, a.gpu_count / count(*) AS share
FROM placements AS p
INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
WHERE a.gpu_count > 0
GROUP BY p.job_id, p.attempt, a.gpu_count
HAVING count(p.gpu_count) = 0"""
"""Attempts whose GPUs are known only as a sum over their nodes, with an even share for each node."""


def free_nodes(
    con: duckdb.DuckDBPyConnection, capacity: str, *, half_steps: bool = False, events: bool = True, beyond_us: int = 0
) -> tuple[dict[str | None, FreeNodes], list[Note]]:
    """Return the free GPUs of each cluster's nodes, and notes on the nodes and on excluded data.

    A running attempt keeps its GPUs until the time that the view open_attempts gives.

    Parameters
    ----------
    con : DuckDB connection
        A connection with attempts, jobs, placements, node_events (which may be empty) and the view node_gpus.
    capacity : str
        Source of a node's number of GPUs: 'observed' or 'listed'.
    half_steps : bool
        Whether to count time in half microseconds, with starts half a microsecond after ends at the same moment, so
        that the state in between can be read.
    events : bool
        Whether nodes count as full while node_events lists them as out of service.
    beyond_us : int
        How long after the end of the log running attempts keep their GPUs, and nodes stay out of service [us]. The
        state at the very end of the log needs a time above 0.
    """
    nodes = pl.DataFrame(
        con.sql(f"""SELECT node_id, {capacity} AS gpus FROM node_gpus WHERE {capacity} > 0 ORDER BY node_id""")
    )
    con.execute(_UNEVEN)
    # A placement's own times take precedence; each instance of a gang may have them.
    held = pl.DataFrame(
        con.sql(
            f"""SELECT node_id, any_value(cluster) AS cluster, epoch_us(since) AS start, until AS "end",
                  sum(gpu_count) AS gpus
           FROM (SELECT p.node_id, p.job_id, p.attempt, j.cluster, coalesce(p.gpu_count, u.share) AS gpu_count,
                        coalesce(p.start_time, a.start_time) AS since,
                        coalesce(epoch_us(p.end_time), epoch_us(a.end_time),
                                 o.until_us + CASE WHEN o.lost IS NULL THEN {beyond_us} ELSE 0 END) AS until
                 FROM placements AS p
                 INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
                 INNER JOIN jobs AS j ON a.job_id = j.job_id
                 LEFT JOIN uneven AS u ON p.gpu_count IS NULL AND p.job_id = u.job_id AND p.attempt = u.attempt
                 LEFT JOIN {open_attempts_sql(con)} AS o
                 ON o.job_id = CASE WHEN a.end_time IS NULL THEN a.job_id END AND o.attempt = a.attempt)
           WHERE until > epoch_us(since) AND gpu_count > 0
           GROUP BY node_id, since, until"""
        )
    )
    if events and con.execute("SELECT 1 FROM node_events LIMIT 1").fetchall():
        window = window_us(con)
        last = pl.when(pl.col("until") == (window and window[1])).then(beyond_us).otherwise(0)
        away = away_spans(con).with_columns(until=pl.col("until") + last)
        away = away.join(nodes, on="node_id", how="inner", maintain_order="left")
        full = away.select("node_id", pl.lit(None).alias("cluster"), start="since", end="until", gpus="gpus")
        held = pl.concat([held, full.cast(held.schema)])
    unlisted = held.filter(~pl.col("node_id").is_in(nodes["node_id"].implode()))
    split = con.execute("SELECT count(*) FROM uneven").fetchall()[0][0]
    notes = [Note("nodes", facts=(capacity,)), *noted("size unknown", unlisted.height), *noted("split unknown", split)]
    owners = pl.DataFrame(con.sql("SELECT node_id, cluster FROM nodes"))
    seen = held.group_by("node_id").agg(pl.col("cluster").min())
    owner = nodes.join(owners.unique("node_id", keep="first"), on="node_id", how="left").join(
        seen, on="node_id", how="left", suffix="_seen"
    )
    owner = owner.with_columns(cluster=pl.coalesce("cluster", "cluster_seen"))
    clusters = owner["cluster"].unique().sort().to_list()
    found = {}
    for cluster in clusters:
        members = owner.filter(pl.col("cluster").eq_missing(cluster)).sort("node_id").with_row_index("number")
        own = held.join(members.select("node_id", "number"), on="node_id", how="inner")
        if half_steps:
            own = own.with_columns(start=pl.col("start") * 2 + 1, end=pl.col("end") * 2)
        found[cluster] = _free(members["gpus"].cast(pl.Float64).to_numpy(), own, tuple(members["node_id"]))
    return found, notes


def _free(node_gpus: Floats, held: pl.DataFrame, names: tuple[str, ...]) -> FreeNodes:
    number = held["number"].to_numpy().astype(np.int64)
    gpus = held["gpus"].cast(float).to_numpy()
    node = np.concatenate([number, number])
    time = np.concatenate([held["start"].to_numpy(), held["end"].to_numpy()]).astype(np.int64)
    change = np.concatenate([-gpus, gpus])
    order = np.lexsort((time, node))
    node, time, change = node[order], time[order], change[order]
    # The state after all changes of a node at one moment counts.
    last = np.ones(len(node), dtype=bool)
    last[:-1] = (node[1:] != node[:-1]) | (time[1:] != time[:-1])
    sums = np.concatenate([[0.0], np.cumsum(change)])
    before = sums[np.searchsorted(node, np.arange(len(node_gpus)))]
    free = np.round(node_gpus[node] + sums[1:] - before[node], 6)
    return FreeNodes(node_gpus, node[last], time[last], free[last], names)


def nodes_of_partitions(con: duckdb.DuckDBPyConnection) -> dict[str, frozenset[str]]:
    """Return the nodes on which jobs of each partition may run, for partitions that have only some of the nodes.

    Partitions with the same name in several clusters get the nodes of all of them; each cluster's pool has its own.
    """
    found: dict[str, frozenset[str]] = {}
    for pool in find_pools(con):
        if pool.apart or not pool.observed:
            for name, own in pool.partitions.items():
                nodes = frozenset(pool.nodes if pool.observed else own)
                found[name] = found.get(name, frozenset()) | nodes
    return found if len(set(found.values())) > 1 else {}


def nodes_of_job(
    nodes: Mapping[str | None, FreeNodes],
    partitions: Mapping[str, frozenset[str]],
    cluster: str | None,
    partition: str | None,
) -> FreeNodes | None:
    """Return the nodes on which a job may run, or None if they are unknown.

    `nodes` comes from `free_nodes`, and `partitions` from `nodes_of_partitions`.
    """
    pool = nodes.get(cluster)
    own = partitions.get(partition or "")
    if pool is None or own is None:
        return pool
    return pool.only(np.array([k for k, name in enumerate(pool.names) if name in own], dtype=np.int64))


# Find when a spread gang could first have run on the fewest nodes.


_NEVER = np.iinfo(np.int64).max


class Packing:
    """The times at which gangs of one size fit on the fewest nodes of a pool.

    Parameters
    ----------
    pool : FreeNodes
        The pool, with at least one node.
    gang : float
        GPUs of the gang, more than 0.
    """

    def __init__(self, pool: FreeNodes, gang: float) -> None:
        self._pool = pool
        # A gang needs whole nodes, and one more node with room for the rest; a small gang needs only room for the rest.
        whole, rest = divmod(gang, pool.size) if gang > pool.size else (0, gang)
        self._whole, self._rest = int(whole), float(rest) if rest > 1e-9 else 0.0
        self._full = pool.with_at_least(pool.size) if self._whole else None
        self._partly = pool.with_at_least(self._rest) if self._rest else None
        self._fits: dict[tuple[int, int], Steps] = {}
        self._nodes: dict[int, Steps] = {}

    def first_place(self, since: int, until: int, nodes: Sequence[int], parts: Sequence[float]) -> int | None:
        """Return the first moment in [since, until) at which the fewest nodes have room [us], or None if there is none.

        The gang's own GPUs, `parts` on the `nodes` of the pool, count as free.
        """
        anyway = int(_next_true(self.fits(), np.array([since]))[0])
        if anyway == since:
            return since
        # Counting the gang's own GPUs as free can only make the moment earlier.
        end = min(anyway, until)
        own = [self._of_node(node) for node in nodes]
        times = [steps.times[slice(*np.searchsorted(steps.times, [since, end - 1], side="right"))] for steps in own]
        begins = np.unique(np.concatenate([np.array([since]), *times]))
        full, partly = np.zeros(len(begins), dtype=np.int64), np.zeros(len(begins), dtype=np.int64)
        for node, steps, gpus in zip(nodes, own, parts, strict=True):
            free = steps.at(begins)
            with_own = np.minimum(free + gpus, self._pool.node_gpus[node])
            full += (with_own >= self._pool.size - 1e-9) & (free < self._pool.size - 1e-9)
            partly += (with_own >= self._rest - 1e-9) & (free < self._rest - 1e-9)
        first = self._first(begins, np.append(begins[1:], end), full, partly)
        return anyway if first is None and anyway < until else first

    def _first(self, begins: Ints, ends: Ints, full: Ints, partly: Ints) -> int | None:
        """Return the first moment at which the gang fits. From each begin on, this many of its own nodes also count."""
        full, partly = np.minimum(full, self._whole), np.minimum(partly, self._whole + 1)
        best = _NEVER
        for pair in np.unique(np.stack([full, partly], axis=1), axis=0).tolist():
            rows = (full == pair[0]) & (partly == pair[1])
            moments = _next_true(self.fits(pair[0], pair[1]), begins[rows])
            inside = moments[moments < ends[rows]]
            best = min(best, int(inside.min(initial=_NEVER)))
        return None if best == _NEVER else best

    def fits(self, full: int = 0, partly: int = 0) -> Steps:
        """Return whether the gang fits (1 or 0) if `full` more nodes are entirely free and `partly` more fit the rest.

        Results are cached for each pair of numbers.
        """
        if (full, partly) not in self._fits:
            times = np.unique(np.concatenate([s.times for s in (self._full, self._partly) if s is not None]))
            holds: Bools = np.ones(len(times) + 1, dtype=bool)
            if self._full is not None:
                holds &= _values_at(self._full, times) + full >= self._whole
            if self._partly is not None:
                holds &= _values_at(self._partly, times) + partly >= self._whole + 1
            changed = holds[1:] != holds[:-1]
            steps = np.concatenate([holds[:1], holds[1:][changed]])
            self._fits[full, partly] = Steps(times[changed], steps.astype(np.float64))
        return self._fits[full, partly]

    def _of_node(self, node: int) -> Steps:
        if node not in self._nodes:
            self._nodes[node] = self._pool.of_node(node)
        return self._nodes[node]


def _values_at(steps: Steps, times: Ints) -> Floats:
    """Return the value before the first time, and the value from each time on; the times include all steps."""
    return np.concatenate([steps.values[:1], steps.at(times)])


def _next_true(steps: Steps, moments: Ints) -> Ints:
    """Return the first moment at or after each given moment at which a condition holds; it changes at every step."""
    index = np.searchsorted(steps.times, moments, side="right")
    later = np.append(steps.times, _NEVER)[index]
    return np.where(steps.values[index] > 0, moments, later)
