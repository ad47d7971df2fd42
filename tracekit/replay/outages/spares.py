"""Spares: nodes that are held free, and take the place of those that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.nodes import shares_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster

__all__ = ["chosen_spares", "pools_of"]


def pools_of(cluster: Cluster) -> list[list[int]]:
    """Return the nodes that can stand in for each other: of one domain, GPU model and number of GPUs."""
    pools: dict[tuple[int, int, int], list[int]] = {}
    for node in range(cluster.nodes):
        key = (int(cluster.domain[node]), int(cluster.model[node]), int(cluster.gpus[node]))
        pools.setdefault(key, []).append(node)
    return [pools[key] for key in sorted(pools)]


def chosen_spares(cluster: Cluster, number: int) -> list[int]:
    """Return which nodes are spares at first: of each pool in proportion to its nodes, of its racks in turn.

    Of a rack the last nodes are taken, from the rack with the most nodes left on. Each pool keeps a node that works:
    without one the jobs that need its kind would wait for ever, and its spares would stand in for nobody.

    Raises
    ------
    UsageError
        Not a node, or not a node of each kind, would be left to work.
    """
    if number >= cluster.nodes:
        raise UsageError(
            f"{number:,} spares leave none of {cluster.nodes:,} nodes to work", where="--spares", hint="use fewer"
        )
    pools = pools_of(cluster)
    most = cluster.nodes - len(pools)
    if number > most:
        raise UsageError(
            f"{number:,} spares leave no node to work of one of {len(pools):,} kinds (GPU model, GPUs, VC)",
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
    """Return shares in proportion, each at least 1 below its weight: what is over goes to the others likewise."""
    found = np.zeros_like(weights)
    while number:
        room = weights - 1 - found
        more = np.minimum(shares_of(np.where(room > 0, weights, 0), number), room)
        found += more
        number -= int(more.sum())
    return [int(share) for share in found]
