"""Private cells: the blocks of GPUs that each virtual cluster owns and can always use.

A chain is the set of nodes with the same domain, GPU model and size. A virtual cluster (VC) owns a part of each chain
in proportion to its quota: as many whole nodes as fit into its part, and blocks of 2^k GPUs for the rest. If the node
size is not a power of two, nodes divide into unequal blocks, which cannot be guaranteed next to whole nodes. Then some
nodes are reserved for cells that are whole nodes, and the others form a chain of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.clusters.cluster import Cluster, shares_of
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True)
class PrivateCells:
    """The cells of the VCs of one cluster."""

    cluster: Cluster
    """The private clusters, with one domain per VC and one node per largest cell. The rack is the chain."""
    chain: NDArray[np.int32]
    """Chain of each node of the whole cluster (N,)."""
    whole: NDArray[np.bool_]
    """Mask of the chains whose cells are whole nodes of a size that is not a power of two (C,)."""


def deal_cells(cluster: Cluster, names: Sequence[str], quota: NDArray[np.int64]) -> PrivateCells:
    """Divide the nodes of a cluster among VCs.

    Parameters
    ----------
    cluster : Cluster
        Nodes that join later count too. A named domain belongs entirely to its VC, whose quota is ignored.
    names : sequence of str
        The VCs.
    quota : array (T,)
        GPUs of each VC. If their sum exceeds the cluster, quotas are scaled down. GPUs that are left over belong to no
        VC.

    Raises
    ------
    UsageError
        A node has more GPUs than blocks can cover.
    """
    if cluster.gpus.max(initial=0) > compiled.MOST_GPUS:
        node = int(np.argmax(cluster.gpus))
        raise UsageError(
            f"node {cluster.node_id[node]} has {cluster.gpus[node]} GPUs; cells divide at most {compiled.MOST_GPUS}"
        )
    nobody = max(cluster.total_gpus - int(quota.sum()), 0)
    left = shares_of(np.append(quota, nobody), cluster.total_gpus) if cluster.total_gpus else np.append(quota, 0)
    chain = np.zeros(cluster.nodes, np.int32)
    whole: list[bool] = []
    rows: list[tuple[int, int, int, int]] = []  # VC, GPU model, chain, GPUs
    classes = np.column_stack([cluster.domain, cluster.model, -cluster.gpus]).astype(np.int64)
    for domain, model, less in np.unique(classes, axis=0):
        nodes = np.flatnonzero((classes == (domain, model, less)).all(axis=1))
        size = -int(less)
        if cluster.domains[domain]:
            parts = np.array([len(nodes) * size * (name == cluster.domains[domain]) for name in names], np.int64)
        else:
            parts = shares_of(left, len(nodes) * size)
            left = left - parts
            parts = parts[:-1]
        full, cells, divided = _cells(parts, size, len(nodes))
        chain[nodes] = len(whole)
        rows += [(vc, int(model), len(whole), size) for vc, count in enumerate(full) for _ in range(count)]
        whole.append(bool(size & (size - 1)))
        if divided:
            chain[nodes[-divided:]] = len(whole)
            whole.append(False)
        rows += [(vc, int(model), len(whole) - 1, gpus) for vc, gpus in cells]
    return PrivateCells(_private(cluster, names, rows, len(whole)), chain, np.array(whole, np.bool_))


def _cells(parts: NDArray[np.int64], size: int, nodes: int) -> tuple[list[int], list[tuple[int, int]], int]:
    """Return the number of whole nodes of each VC, the smaller cells (VC, GPUs), and the number of nodes for them."""
    full = [int(part) // size for part in parts]
    rest = [(vc, int(part) % size) for vc, part in enumerate(parts)]
    pending = [(vc, 1 << k) for k in range(6, -1, -1) for vc, gpus in rest if gpus >> k & 1]
    divided = nodes - sum(full)
    if size & (size - 1) == 0:
        return full, pending, 0
    blocks = [divided * (size >> k & 1) for k in range(7)]
    cells = []
    while pending:
        pending.sort(key=lambda cell: (-cell[1], cell[0]))
        vc, gpus = pending.pop(0)
        level = gpus.bit_length() - 1
        above = [k for k in range(level, 7) if blocks[k]]
        if not above:
            pending += [(vc, gpus // 2)] * 2
            continue
        blocks[above[0]] -= 1
        for k in range(level, above[0]):
            blocks[k] += 1
        cells.append((vc, gpus))
    return full, cells, divided


def _private(cluster: Cluster, names: Sequence[str], rows: list[tuple[int, int, int, int]], chains: int) -> Cluster:
    rows.sort(key=lambda row: (*row[:3], -row[3]))
    table = np.array(rows, np.int64).reshape(len(rows), 4)
    unknown = np.full(len(rows), -1, np.int64)
    empty = np.zeros(0, np.int64)
    return Cluster(
        node_id=[f"{names[vc]}/{number}" for number, (vc, _, _, _) in enumerate(rows)],
        gpus=table[:, 3].astype(np.int32),
        model=table[:, 1].astype(np.int32),
        rack=table[:, 2].astype(np.int32),
        domain=table[:, 0].astype(np.int32),
        serves=np.zeros(len(rows), np.int32),
        place=np.arange(len(rows), dtype=np.int32),
        cpu_milli=unknown,
        memory_mib=unknown,
        models=cluster.models,
        racks=[str(number) for number in range(chains)],
        domains=list(names),
        partition_sets=[()],
        tenants=[],
        quota_ms=empty,
        quota=np.zeros((0, 0), np.int64),
        change_ms=empty,
        change_node=np.zeros(0, np.int32),
        change_up=np.zeros(0, np.int8),
        absent=np.zeros(len(rows), np.int8),
        origin="private cells",
    )
