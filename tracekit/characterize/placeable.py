"""Whether a gang of GPUs would have fitted on the free GPUs of nodes at a moment, with the locality it wants.

A gang wants the fewest nodes that can hold it: on one node where nodes are large enough, else whole nodes and, for
the rest, one more node with enough free GPUs. Philly (ATC'19) and its successors schedule by this rule first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.notes import Note, noted
from tracekit.characterize.occupancy import Steps, open_attempts_sql
from tracekit.characterize.out_of_service import away_spans

if TYPE_CHECKING:
    import duckdb

    from tracekit.array_types import Bools, Floats, Ints


@dataclass(frozen=True)
class FreeNodes:
    """How many GPUs are free on each node of a pool through time.

    Attributes
    ----------
    node_gpus : float64 array, shape (nodes,)
        GPUs of each node.
    size : float
        GPUs of the largest node.
    node, time, free : arrays, shape (n,)
        The node's free GPUs from each time [us] on, ordered by node and time.
    names : tuple of str
        The node_id of each node; empty where nobody asks for them.
    """

    node_gpus: Floats
    node: Ints
    time: Ints
    free: Floats
    names: tuple[str, ...] = ()

    @property
    def size(self) -> float:
        """GPUs of the largest node; 0 without nodes."""
        return float(self.node_gpus.max(initial=0))

    def only(self, numbers: Ints) -> FreeNodes:
        """Return the pool of these nodes alone, in their order here."""
        kept = np.zeros(len(self.node_gpus), dtype=bool)
        kept[numbers] = True
        rows = kept[self.node]
        node = (np.cumsum(kept) - 1)[self.node[rows]]
        names = tuple(itertools.compress(self.names, kept))
        return FreeNodes(self.node_gpus[kept], node, self.time[rows], self.free[rows], names)

    def of_node(self, number: int) -> Steps:
        """Return the free GPUs of one node through time."""
        first, last = np.searchsorted(self.node, [number, number + 1])
        return Steps(
            self.time[first:last], np.concatenate([self.node_gpus[number : number + 1], self.free[first:last]])
        )

    def with_at_least(self, gpus: float) -> Steps:
        """Return the number of nodes with at least so many free GPUs."""
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
        """Return whether a gang of so many GPUs fits with the locality it wants: 1 where it does, else 0."""
        size = self.size
        none = np.empty(0, dtype=np.int64)
        if size <= 0:
            return Steps(none, np.array([0.0]))
        if gang <= size:
            counts = self.with_at_least(gang)
            return compressed(counts.times, counts.values >= 1)
        whole, rest = divmod(gang, size)
        full = self.with_at_least(size)
        if rest < 1e-9:
            return compressed(full.times, full.values >= whole)
        partly = self.with_at_least(rest)
        times = np.union1d(full.times, partly.times)
        ends = np.concatenate([[(full.values[0] >= whole) & (partly.values[0] >= whole + 1)]])
        return compressed(times, np.concatenate([ends, (full.at(times) >= whole) & (partly.at(times) >= whole + 1)]))

    def at_moments(self, moments: Ints) -> tuple[Floats, Ints, Floats, Floats]:
        """Return free GPUs, nodes wholly free, their GPUs, and the largest gang that fits, at each moment [us].

        The largest gang with the locality it wants fills all wholly free nodes and the best of the others.
        """
        free = np.zeros(len(moments))
        whole, whole_gpus = np.zeros(len(moments), dtype=np.int64), np.zeros(len(moments))
        best = np.zeros(len(moments))
        cuts = np.searchsorted(self.node, np.arange(len(self.node_gpus) + 1))
        for number, gpus in enumerate(self.node_gpus):
            own = slice(cuts[number], cuts[number + 1])
            left = np.concatenate([[gpus], self.free[own]])[np.searchsorted(self.time[own], moments, side="right")]
            left = np.maximum(left, 0)  # a node that holds more than it has is not short of less than nothing
            idle = left >= gpus - 1e-9
            free += left
            whole += idle
            whole_gpus += np.where(idle, gpus, 0)
            best = np.maximum(best, np.where(idle, 0, left))
        return free, whole, whole_gpus, whole_gpus + best


def compressed(times: Ints, holds: Bools) -> Steps:
    """Keep the steps at which something changes."""
    changed = holds[1:] != holds[:-1]
    return Steps(times[changed], np.concatenate([holds[:1], holds[1:][changed]]).astype(np.float64))


def free_nodes(
    con: duckdb.DuckDBPyConnection, capacity: str, *, half_steps: bool = False, events: bool = True
) -> tuple[dict[str | None, FreeNodes], list[Note]]:
    """Return the free GPUs of the nodes of each cluster, and notes on the nodes and what had to be left out.

    An attempt that still runs holds its GPUs as long as the view open_attempts says.

    Parameters
    ----------
    con : DuckDB connection
        Has attempts, jobs, placements, node_events, which may be empty, and the view node_gpus.
    capacity : str
        'observed' or 'listed': which number of GPUs a node has.
    half_steps : bool
        Count time in half microseconds, and let what starts at a moment start half a microsecond after what ends
        then, so that the state between the two can be looked at.
    events : bool
        Whether nodes are full while node_events says that they are down, drained or in maintenance.
    """
    nodes = pl.DataFrame(
        con.sql(f"""SELECT node_id, {capacity} AS gpus FROM node_gpus WHERE {capacity} > 0 ORDER BY node_id""")
    )
    # Where a placement has times of its own, as each instance of a gang may, these count.
    held = pl.DataFrame(
        con.sql(
            f"""SELECT node_id, any_value(cluster) AS cluster, epoch_us(since) AS start, until AS "end",
                  sum(gpu_count) AS gpus
           FROM (SELECT p.node_id, p.job_id, p.attempt, j.cluster, p.gpu_count,
                        coalesce(p.start_time, a.start_time) AS since,
                        coalesce(epoch_us(p.end_time), epoch_us(a.end_time), o.until_us) AS until
                 FROM placements AS p
                 INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
                 INNER JOIN jobs AS j ON a.job_id = j.job_id
                 LEFT JOIN {open_attempts_sql(con)} AS o
                 ON o.job_id = CASE WHEN a.end_time IS NULL THEN a.job_id END AND o.attempt = a.attempt)
           WHERE until > epoch_us(since) AND gpu_count > 0
           GROUP BY node_id, since, until"""
        )
    )
    if events and con.execute("SELECT 1 FROM node_events LIMIT 1").fetchall():
        away = away_spans(con).join(nodes, on="node_id", how="inner", maintain_order="left")
        full = away.select("node_id", pl.lit(None).alias("cluster"), start="since", end="until", gpus="gpus")
        held = pl.concat([held, full.cast(held.schema)])
    unlisted = held.filter(~pl.col("node_id").is_in(nodes["node_id"].implode()))
    notes = [Note("nodes", facts=(capacity,)), *noted("size unknown", unlisted.height)]
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
    # The state after all that happens on a node at one moment is what counts.
    last = np.ones(len(node), dtype=bool)
    last[:-1] = (node[1:] != node[:-1]) | (time[1:] != time[:-1])
    sums = np.concatenate([[0.0], np.cumsum(change)])
    before = sums[np.searchsorted(node, np.arange(len(node_gpus)))]
    free = np.round(node_gpus[node] + sums[1:] - before[node], 6)
    return FreeNodes(node_gpus, node[last], time[last], free[last], names)
