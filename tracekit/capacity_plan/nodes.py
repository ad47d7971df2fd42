"""The nodes of a cluster that is planned: there all the time, in any number of each GPU model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.clusters.nodes import Node, QuotaTable, make_cluster, repeated, shares_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster

Capacity = tuple[int, ...]
"""Nodes of each GPU model, in the order of `Cluster.models`."""


def nodes_of(cluster: Cluster) -> list[Node]:
    """Return the nodes of a cluster, each with when it joins and leaves."""
    moves: list[list[tuple[int, bool]]] = [[] for _ in range(cluster.nodes)]
    for at, node, up in zip(cluster.change_ms, cluster.change_node, cluster.change_up, strict=True):
        moves[int(node)].append((int(at), bool(up)))
    return [
        Node(
            cluster.node_id[n],
            int(cluster.gpus[n]),
            cluster.models[cluster.model[n]],
            cluster.racks[cluster.rack[n]],
            cluster.domains[cluster.domain[n]],
            int(cluster.cpu_milli[n]),
            int(cluster.memory_mib[n]),
            absent=bool(cluster.absent[n]),
            changes=tuple(moves[n]),
        )
        for n in range(cluster.nodes)
    ]


def gpus_up(cluster: Cluster, begin_ms: int, end_ms: int) -> float:
    """Return the GPUs of the nodes that are there, the mean over a window: those away are lost to it.

    Parameters
    ----------
    cluster : Cluster
        Nodes that are there before their first change, as `settled_nodes` has them.
    begin_ms, end_ms : int
        The window, of some length [ms].
    """
    there = float(cluster.total_gpus) * (end_ms - begin_ms)
    left: dict[int, int] = {}
    for at, node, up in zip(cluster.change_ms, cluster.change_node, cluster.change_up, strict=True):
        if not up:
            left[int(node)] = int(at)
        elif int(node) in left:
            since = left.pop(int(node))
            there -= float(cluster.gpus[node]) * max(min(int(at), end_ms) - max(since, begin_ms), 0)
    return there / (end_ms - begin_ms)


def settled_nodes(cluster: Cluster) -> tuple[Cluster, int]:
    """Return the cluster with nodes that neither join late nor leave for good, and how many nodes that changes.

    What a plan calls a node is there in the whole window, but for the times in which it was away and came back. A node
    that is never there is left out.
    """
    nodes, changed = [], 0
    for node in nodes_of(cluster):
        settled = _settled(node)
        changed += settled != node
        if settled is not None:
            nodes.append(settled)
    if not changed:
        return cluster, 0
    if not nodes:
        raise UsageError("the cluster has no node that is ever available", hint="give another capacity")
    return make_cluster(nodes, _quotas(cluster), cluster.origin), changed


def _settled(node: Node) -> Node | None:
    changes = list(node.changes)
    if node.absent:
        if not changes:
            return None
        changes = changes[1:] if changes[0][1] else changes
    if changes and not changes[-1][1]:
        changes.pop()
    return replace(node, absent=False, changes=tuple(changes))


def _quotas(cluster: Cluster) -> QuotaTable:
    return QuotaTable(list(cluster.tenants), cluster.quota_ms, cluster.quota)


def resized(cluster: Cluster, capacity: Capacity, later_ms: int = 0) -> Cluster:
    """Return a cluster with other numbers of nodes, and all its changes so much later.

    The nodes of a model are dropped or repeated in proportion over its racks and VCs, as `repeated` does, in whole
    nodes that add up to the capacity, at least one each where there are enough; copies are away when their originals
    are. QuotaTable grow as the GPUs do.

    Parameters
    ----------
    cluster : Cluster
    capacity : Capacity
        At least one node in all.
    later_ms : int
        [ms]
    """
    kept: list[Node] = []
    for model, number in zip(cluster.models, capacity, strict=True):
        kept += _numbered([n for n in nodes_of(cluster) if n.model == model], number)
    if not kept:
        raise UsageError("a cluster needs at least one node", where="--nodes", hint="give 1 or more")
    moved = [replace(n, changes=tuple((at + later_ms, up) for at, up in n.changes)) for n in kept]
    quotas = _quotas(cluster).scaled(sum(n.gpus for n in kept) / cluster.total_gpus)
    return make_cluster(moved, replace(quotas, times=quotas.times + later_ms), cluster.origin)


def _numbered(nodes: Sequence[Node], number: int) -> list[Node]:
    """Return so many nodes, their groups in proportion."""
    groups: dict[tuple[str, str], int] = {}
    for node in nodes:
        key = (node.domain, node.rack)
        groups[key] = groups.get(key, 0) + 1
    wanted = dict(zip(groups, _shares(list(groups.values()), number), strict=True))
    most = max((count / groups[key] for key, count in wanted.items()), default=0.0)
    found = []
    for node in repeated(nodes, most) if most else ():
        key = (node.domain, node.rack)
        if wanted[key] > 0:
            wanted[key] -= 1
            found.append(node)
    return found


def _shares(sizes: list[int], number: int) -> list[int]:
    """Return so many nodes in proportion to the sizes of groups; each group has one as long as there are enough."""
    shares = shares_of(np.array(sizes), number)
    if number >= len(sizes):
        for empty in np.flatnonzero(shares == 0):
            shares[int(np.argmax(shares))] -= 1
            shares[empty] = 1
    found: list[int] = shares.tolist()
    return found


@dataclass(frozen=True)
class NodeAxis:
    """Along which a plan varies the number of nodes: all models in proportion, or one of them."""

    models: tuple[str, ...]
    nodes: Capacity
    """The nodes that there are."""
    model: str | None = None
    """The model that varies; the others stay. None varies all in proportion."""

    @classmethod
    def of(cls, cluster: Cluster, model: str | None = None) -> NodeAxis:
        """Return the axis of a cluster.

        Raises
        ------
        UsageError
            It has no such model.
        """
        if model is not None and model not in cluster.models:
            raise UsageError(f"no GPU model '{model[:60]}'", where="--model", hint=nearest(model[:60], cluster.models))
        counts = np.bincount(cluster.model, minlength=len(cluster.models))
        return cls(tuple(cluster.models), tuple(int(n) for n in counts), model)

    @property
    def now(self) -> int:
        """Nodes that there are and that vary."""
        return sum(self.nodes) if self.model is None else self.nodes[self.models.index(self.model)]

    def at(self, number: int) -> Capacity:
        """Return the capacity with so many nodes that vary."""
        if self.model is None:
            return tuple(shares_of(np.array(self.nodes), number).tolist())
        return tuple(number if m == self.model else n for m, n in zip(self.models, self.nodes, strict=True))
