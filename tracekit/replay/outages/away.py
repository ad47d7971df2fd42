"""A cluster whose nodes are away during outages, with spares that replace them."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.cluster import shares_of
from tracekit.replay.clusters.of_trace import NO_END, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.outages.failures import Outages


# Lent spares, on which preemptible jobs run until the spares are needed.
#
# A node in reserve has two rows in the cluster: one for preemptible jobs only, and one for regular work. They are never
# present at the same time.

_RACK = "lent spares"


def lent_spans(
    standing_by: Sequence[tuple[int, set[int]]], changes: Iterable[tuple[int, int, bool, bool]]
) -> list[tuple[int, int, bool]]:
    """Return the times at which nodes start (True) and stop (False) being lent, as (time [ms], node, lent).

    A job may still run on a node that was drained and came back into reserve. The node is lent only if its jobs have
    been stopped since it left.

    Parameters
    ----------
    standing_by : sequence
        Times [ms] in ascending order, each with the nodes that are in reserve from then on.
    changes : iterable
        Time [ms], node, whether it joins, whether its jobs stop.
    """
    left: dict[int, list[int]] = {}
    stopped: dict[int, list[int]] = {}
    for time, node, joins, stops in changes:
        if stops:
            stopped.setdefault(node, []).append(time)
        elif not joins:
            left.setdefault(node, []).append(time)
    found: list[tuple[int, int, bool]] = []
    lent: set[int] = set()
    before: set[int] = set()
    for time, now in standing_by:
        found += [(time, node, False) for node in sorted(lent - now)]
        lent &= now
        for node in sorted(now - before):
            last = max((at for at in left.get(node, ()) if at <= time), default=None)
            if last is None or any(last <= at <= time for at in stopped.get(node, ())):
                found.append((time, node, True))
                lent.add(node)
        before = now
    return found


def with_lent_rows(cluster: Cluster, nodes: Sequence[int]) -> tuple[Cluster, dict[int, int], dict[int, int]]:
    """Return a cluster with an extra, absent row for each given node, and the new rows of all nodes and lent nodes.

    Rows of lent nodes form groups of their own, which are the last ones of their domain, GPU model
    and partitions. Changes are
    dropped.
    """
    picked = np.concatenate([np.arange(cluster.nodes), np.array(nodes, np.int64)])
    lent = np.arange(len(picked)) >= cluster.nodes
    rack = np.where(lent, len(cluster.racks), cluster.rack[picked]).astype(np.int32)
    order = np.lexsort((rack, cluster.serves[picked], cluster.model[picked], cluster.domain[picked]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = picked[order]
    same = ("gpus", "model", "domain", "serves", "place", "cpu_milli", "memory_mib")
    columns = {name: getattr(cluster, name)[rows] for name in same}
    made = replace(
        cluster,
        node_id=[cluster.node_id[row] for row in rows.tolist()],
        rack=rack[order],
        racks=[*cluster.racks, _RACK],
        absent=np.where(lent[order], 1, cluster.absent[rows]).astype(np.int8),
        lent=lent[order],
        **columns,
    )
    row_of = dict(enumerate(place[: cluster.nodes].tolist()))
    return made, row_of, dict(zip(nodes, place[cluster.nodes :].tolist(), strict=True))


# Spares: nodes kept in reserve to replace nodes that fail.


def pools_of(cluster: Cluster) -> list[list[int]]:
    """Return the sets of interchangeable nodes: same domain, GPU model, partitions and number of GPUs."""
    pools: dict[tuple[int, ...], list[int]] = {}
    for node in range(cluster.nodes):
        key = tuple(int(column[node]) for column in (cluster.domain, cluster.model, cluster.serves, cluster.gpus))
        pools.setdefault(key, []).append(node)
    return [pools[key] for key in sorted(pools)]


def chosen_spares(cluster: Cluster, number: int) -> list[int]:
    """Return the initial spares: from each pool in proportion to its nodes, and from its racks in turn.

    Spares are the last nodes of a rack, taken from the rack with the most remaining nodes. Each pool keeps at least one
    working node, or jobs that need this kind would wait forever and its spares would replace no node.

    Raises
    ------
    UsageError
        No working node, or no working node of some kind, would remain.
    """
    if number >= cluster.nodes:
        raise UsageError(
            f"{number:,} spares leave none of the {cluster.nodes:,} nodes for jobs", where="--spares", hint="use fewer"
        )
    pools = pools_of(cluster)
    most = cluster.nodes - len(pools)
    if number > most:
        raise UsageError(
            f"{number:,} spares leave no node for jobs in one of {len(pools):,} kinds (GPU model, GPUs, VC)",
            where="--spares",
            hint=f"use {most:,} or fewer",
        )
    found: list[int] = []
    weights = np.array([len(pool) for pool in pools], np.int64)
    for pool, share in zip(pools, _shares(weights, number), strict=True):
        racks: dict[int, list[int]] = {}
        for node in pool:
            racks.setdefault(int(cluster.rack[node]), []).append(node)
        for _ in range(share):
            rack = max(racks, key=lambda name: (len(racks[name]), -name))
            found.append(racks[rack].pop())
    return sorted(found)


def _shares(weights: NDArray[np.int64], number: int) -> list[int]:
    """Return proportional shares, each at least 1 below its weight. The remainder is shared in the same way."""
    found = np.zeros_like(weights)
    while number:
        room = weights - 1 - found
        more = np.minimum(shares_of(np.where(room > 0, weights, 0), number), room)
        found += more
        number -= int(more.sum())
    return [int(share) for share in found]


_Change = tuple[int, int, bool, bool]
"""Time [ms], node, whether it joins, and whether its jobs stop."""


def with_outages(cluster: Cluster, outages: Outages, spares: int = 0, *, lend: bool = False) -> Cluster:
    """Return the cluster with its nodes away during the outages, in addition to their other absences.

    `spares` nodes stay idle in reserve. With `lend`, preemptible jobs may use them and are stopped, as by a failure,
    when the spare is needed. When a node leaves, a spare of the same domain, GPU model and size joins immediately,
    preferably from the same rack. A node that comes back becomes a spare if its place is taken.

    Raises
    ------
    UsageError
        With this many spares, no working node would remain.
    """
    away = _merged(cluster, outages)
    there = [not any(since <= 0 < until for since, until in spans) for spans in away]
    moves = sorted(
        [(since, 1, node) for node, spans in enumerate(away) for since, _ in spans if since > 0]
        + [(until, 0, node) for node, spans in enumerate(away) for _, until in spans if 0 < until < NO_END]
    )
    kills = set(zip(outages.since_ms[outages.kills].tolist(), outages.node[outages.kills].tolist(), strict=True))
    changes: list[_Change] = [(time, node, False, True) for time, node in sorted(kills) if time > 0]
    reserve = _Reserve(cluster, chosen_spares(cluster, spares), there)
    spans = [(0, set(reserve.standing_by))]
    for time, at_once in groupby(moves, key=lambda move: move[0]):
        leaving = []
        for _, leaves, node in at_once:
            if leaves:
                leaving.append(node)
            else:
                changes += reserve.come_back(time, node)
        # A spare that fails at the same time replaces no node.
        reserve.standing_by.difference_update(leaving)
        for node in leaving:
            changes += reserve.leave(time, node)
        spans.append((time, set(reserve.standing_by)))
    held = f"; {spares:,} of them kept as spares" if spares else ""
    made = replace(cluster, absent=np.array([not works for works in reserve.begins], np.int8))
    if not (lend and spares):
        return _changed(made, changes, cluster.origin + held)
    lent = lent_spans(spans, changes)
    made, row_of, twin_of = with_lent_rows(made, sorted({node for _, node, _ in lent}))
    changes = [(time, row_of[node], joins, stops) for time, node, joins, stops in changes]
    begins = {twin_of[node] for time, node, joins in lent if time == 0 and joins}
    for time, node, joins in lent:
        if time > 0:
            changes += [(time, twin_of[node], False, True)] * (not joins) + [(time, twin_of[node], joins, False)]
    absent = np.array([row not in begins if own else gone for row, (own, gone) in enumerate(_rows(made))], np.int8)
    return _changed(replace(made, absent=absent), changes, f"{cluster.origin}{held}, lent to preemptible jobs")


def _rows(cluster: Cluster) -> list[tuple[bool, bool]]:
    """Return, for each row, whether it is a lent spare and whether it is away at first."""
    assert cluster.lent is not None  # noqa: S101 -- rows of lent spares have just been added
    return list(zip(cluster.lent.tolist(), (cluster.absent == 1).tolist(), strict=True))


def _changed(cluster: Cluster, changes: list[_Change], origin: str) -> Cluster:
    # Stops come before joins, so a job can continue on a spare at the same time.
    ordered = sorted(changes, key=lambda change: (change[0], change[2], not change[3], change[1]))
    return replace(
        cluster,
        change_ms=np.array([change[0] for change in ordered], np.int64),
        change_node=np.array([change[1] for change in ordered], np.int32),
        change_up=np.array([change[2] for change in ordered], np.int8),
        change_kills=np.array([change[3] for change in ordered], np.int8),
        origin=origin,
    )


def without_absences(cluster: Cluster, nodes: NDArray[np.bool_]) -> Cluster:
    """Return the cluster in which the nodes selected by `nodes` are always available (N,)."""
    kept = ~nodes[cluster.change_node]
    return replace(
        cluster,
        change_ms=cluster.change_ms[kept],
        change_node=cluster.change_node[kept],
        change_up=cluster.change_up[kept],
        change_kills=None if cluster.change_kills is None else cluster.change_kills[kept],
        absent=np.where(nodes, 0, cluster.absent).astype(np.int8),
    )


def _merged(cluster: Cluster, outages: Outages) -> list[list[tuple[int, int]]]:
    """Return the spans in which each node is away for any reason [ms]. The spans do not touch."""
    spans: list[list[tuple[int, int]]] = [[] for _ in range(cluster.nodes)]
    since: list[int | None] = [-NO_END if absent else None for absent in cluster.absent.tolist()]
    for time, node, up in cluster.effective_changes():
        begin = since[node]
        if up and begin is not None:
            spans[node].append((begin, time))
        since[node] = None if up else time
    for node, begin in enumerate(since):
        if begin is not None:
            spans[node].append((begin, NO_END))
    rows = zip(outages.node.tolist(), outages.since_ms.tolist(), outages.until_ms.tolist(), strict=True)
    for node, begin, end in rows:
        spans[node].append((begin, end))
    return [joined(one) for one in spans]


class _Reserve:
    """The nodes that work, and the nodes in reserve."""

    def __init__(self, cluster: Cluster, spares: list[int], there: list[bool]) -> None:
        self.rack = cluster.rack.tolist()
        self.pool_of = {node: pool for pool in pools_of(cluster) for node in pool}
        waiting = set(spares)
        self.lacking = {id(pool): 0 for pool in self.pool_of.values()}
        """Number of working nodes that are missing in each pool."""
        self.standing_by = {node for node in waiting if there[node]}
        self.working = [works and node not in waiting for node, works in enumerate(there)]
        for node, works in enumerate(there):
            if not works and node not in waiting:
                self._replace(node)
        self.begins = list(self.working)

    def _replace(self, node: int) -> int | None:
        """Replace a node by a spare and return the spare."""
        near = [other for other in self.pool_of[node] if other in self.standing_by]
        if not near:
            self.lacking[id(self.pool_of[node])] += 1
            return None
        spare = min(near, key=lambda other: (self.rack[other] != self.rack[node], other))
        self.standing_by.discard(spare)
        self.working[spare] = True
        return spare

    def leave(self, time: int, node: int) -> list[_Change]:
        """Return the changes when a node leaves."""
        if not self.working[node]:
            self.standing_by.discard(node)
            return []
        self.working[node] = False
        spare = self._replace(node)
        return [(time, node, False, False)] + ([] if spare is None else [(time, spare, True, False)])

    def come_back(self, time: int, node: int) -> list[_Change]:
        """Return the changes when a node could work again."""
        pool = id(self.pool_of[node])
        if self.lacking[pool] == 0:
            self.standing_by.add(node)
            return []
        self.lacking[pool] -= 1
        self.working[node] = True
        return [(time, node, True, False)]
