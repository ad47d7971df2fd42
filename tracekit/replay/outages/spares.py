"""Spares: nodes that are held free, and take the place of those that fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.nodes import shares_of

if TYPE_CHECKING:
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

    Of a rack the last nodes are taken, from the rack with the most nodes left on.

    Raises
    ------
    UsageError
        Not a node would be left to work.
    """
    if number >= cluster.nodes:
        raise UsageError(
            f"{number:,} spares leave none of {cluster.nodes:,} nodes to work", where="--spares", hint="use fewer"
        )
    pools = pools_of(cluster)
    found: list[int] = []
    weights = np.array([len(pool) for pool in pools], np.int64)
    for pool, share in zip(pools, shares_of(weights, number).tolist(), strict=True):
        racks: dict[int, list[int]] = {}
        for node in pool:
            racks.setdefault(int(cluster.rack[node]), []).append(node)
        for _ in range(share):
            rack = max(racks, key=lambda name: (len(racks[name]), -name))
            found.append(racks[rack].pop())
    return sorted(found)
