"""The nodes of a planned cluster, in any number per GPU model. They never join late or leave for good."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster, repeated, shares_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster

Capacity = tuple[int, ...]
"""Number of nodes of each GPU model, in the order of `Cluster.models`."""


def gpus_up(cluster: Cluster, begin_ms: int, end_ms: int) -> float:
    """Return the mean number of GPUs on nodes in service during a window.

    Parameters
    ----------
    cluster : Cluster
        The cluster as returned by `settled_nodes`, in which all nodes are available before their first change.
    begin_ms, end_ms : int
        The window, longer than 0 [ms].
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
    """Keep all nodes from joining late or leaving for good; return the cluster and the number of changed nodes.

    In a plan, a node is available in the whole window, except during outages after which it came back. A node that is
    never available is excluded.
    """
    nodes, changed = [], 0
    for node in cluster.as_nodes():
        settled = _settled(node)
        changed += settled != node
        if settled is not None:
            nodes.append(settled)
    if not changed:
        return cluster, 0
    if not nodes:
        raise UsageError("no node of the cluster is ever available", hint="give another capacity")
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


def resized(cluster: Cluster, capacity: Capacity, later_ms: int = 0, quotas_grow: bool = True) -> Cluster:
    """Return a cluster with other numbers of nodes and with all node changes delayed.

    Nodes of a model are dropped or repeated, in proportion over its racks and VCs as in `repeated`, until their number
    equals the capacity. Each group keeps at least one node if there are enough. Copies have the same outages as their
    originals.

    Parameters
    ----------
    cluster : Cluster
    capacity : Capacity
        Number of nodes of each model, at least one node in total.
    later_ms : int
        Delay of the changes [ms].
    quotas_grow : bool
        Whether quotas scale with the GPUs.
    """
    kept: list[Node] = []
    for model, number in zip(cluster.models, capacity, strict=True):
        kept += _numbered([n for n in cluster.as_nodes() if n.model == model], number)
    if not kept:
        raise UsageError("a cluster needs at least one node", where="--nodes", hint="give 1 or more")
    moved = [replace(n, changes=tuple((at + later_ms, up) for at, up in n.changes)) for n in kept]
    quotas = _quotas(cluster)
    if quotas_grow:
        quotas = quotas.scaled(sum(n.gpus for n in kept) / cluster.total_gpus)
    made = make_cluster(moved, replace(quotas, times=quotas.times + later_ms), cluster.origin)
    return replace(made, lendable=cluster.lendable)


def _numbered(nodes: Sequence[Node], number: int) -> list[Node]:
    """Return the given number of nodes, divided among their groups in proportion."""
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
    """Divide a number of nodes in proportion to group sizes. Each group gets at least one if there are enough."""
    shares = shares_of(np.array(sizes), number)
    if number >= len(sizes):
        for empty in np.flatnonzero(shares == 0):
            shares[int(np.argmax(shares))] -= 1
            shares[empty] = 1
    found: list[int] = shares.tolist()
    return found


@dataclass(frozen=True)
class NodeAxis:
    """The nodes whose number a plan varies: all models in proportion, or one model."""

    models: tuple[str, ...]
    nodes: Capacity
    """Number of existing nodes of each model."""
    model: str | None = None
    """The model whose nodes vary while the others stay, or None to vary all models in proportion."""

    @classmethod
    def of(cls, cluster: Cluster, model: str | None = None) -> NodeAxis:
        """Return the axis of a cluster.

        Raises
        ------
        UsageError
            The cluster has no such model.
        """
        if model is not None and model not in cluster.models:
            raise UsageError(f"no GPU model '{model[:60]}'", where="--model", hint=nearest(model[:60], cluster.models))
        counts = np.bincount(cluster.model, minlength=len(cluster.models))
        return cls(tuple(cluster.models), tuple(int(n) for n in counts), model)

    @property
    def now(self) -> int:
        """Number of existing nodes of the kind that varies."""
        return sum(self.nodes) if self.model is None else self.nodes[self.models.index(self.model)]

    def at(self, number: int) -> Capacity:
        """Return the capacity with the given number of varying nodes."""
        if self.model is None:
            return tuple(shares_of(np.array(self.nodes), number).tolist())
        return tuple(number if m == self.model else n for m, n in zip(self.models, self.nodes, strict=True))
