"""Inference servers on loan: nodes that join a training cluster when they are free and leave when they are needed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.assumptions.prices import HOUR_MS
from tracekit.replay.clusters.nodes import Node, QuotaTable, make_cluster, scaled_number
from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ON_LOAN", "loaned", "with_loans", "without_loans"]

ON_LOAN = "on loan"
"""The rack of nodes on loan. A cluster with such a rack itself says when its nodes come and go."""

_MOST_HOURS = 200_000
"""After this many hours no server is lent any more."""


def loaned(cluster: Cluster) -> NDArray[np.bool_]:
    """Return which nodes are on loan while they are present (N,)."""
    if ON_LOAN not in cluster.racks:
        return np.zeros(cluster.nodes, np.bool_)
    return np.asarray(cluster.rack == cluster.racks.index(ON_LOAN))


def without_loans(cluster: Cluster) -> Cluster:
    """Return the cluster without the nodes on loan."""
    lent = loaned(cluster)
    if not lent.any():
        return cluster
    kept = [node for node, gone in zip(_nodes(cluster), lent.tolist(), strict=True) if not gone]
    return _made(cluster, kept, f"{cluster.origin}, without loans")


def with_loans(cluster: Cluster, jobs: Jobs, models: Models, min_loan_ms: int) -> Cluster:
    """Return the cluster with the servers that M42 says are free, in a rack of their own.

    Among equal servers the last to join is the first to leave, so loans are as long as possible. They are lent until
    the jobs could have run four times over, and then all are returned.

    Parameters
    ----------
    cluster : Cluster
        Where it has nodes on loan already, it stays as it is.
    jobs : Jobs
        Their first submission is time 0.
    models : Models
        Assumptions (M42).
    min_loan_ms : int
        Servers that are free for a shorter time than this are not borrowed [ms].
    """
    if loaned(cluster).any():
        return cluster
    level = _levels(cluster, jobs, models)
    nodes, taken = _nodes(cluster), set(cluster.node_id)
    lent: list[Node] = []
    code = cluster.domain.astype(np.int64) * max(len(cluster.models), 1) + cluster.model
    for kind in np.unique(code).tolist():
        mine = np.flatnonzero(code == kind)
        sizes, count = np.unique(cluster.gpus[mine], return_counts=True)
        size = int(sizes[len(sizes) - 1 - int(count[::-1].argmax())])
        alike = nodes[int(mine[int((cluster.gpus[mine] == size).argmax())])]
        servers = scaled_number(len(mine), models.loans.servers) if models.loans.servers > 0 else 0
        for spans in _spans(np.floor(level * servers + 0.5).astype(np.int64), servers, min_loan_ms):
            name = f"loan-{len(lent)}"
            while name in taken:
                name += "+"
            lent.append(
                replace(
                    alike,
                    name=name,
                    rack=ON_LOAN,
                    absent=not (spans and spans[0][0] <= 0),
                    changes=tuple(move for a, b in spans for move in ((a, True), (b, False)) if move[0] > 0),
                )
            )
    if not lent:
        return cluster
    return _made(cluster, [*nodes, *lent], f"{cluster.origin}; {len(lent):,} inference servers that are lent at times")


def _levels(cluster: Cluster, jobs: Jobs, models: Models) -> NDArray[np.float64]:
    """Return the part of the servers that is free in each hour from time 0 on [0..1] (H,)."""
    gpu_ms = float((jobs.work_ms * jobs.devices.astype(np.float64)).sum())
    longest = float(jobs.work_ms.max(initial=0))
    last = float(jobs.submit_ms.max(initial=0))
    span = last + 4 * (gpu_ms / max(cluster.total_gpus, 1) + longest)
    hours = np.arange(min(int(span // HOUR_MS) + 1, _MOST_HOURS))
    given = models.loans
    if given.series:
        return np.array(given.series, np.float64)[hours % len(given.series)]
    origin = naive_utc(jobs.origin)
    clock = origin.hour + origin.minute / 60 + origin.second / 3600 + hours
    wave = np.cos(2 * np.pi * (clock - given.peak_h) / given.period_h)
    return np.asarray(np.clip(given.mean + given.swing * wave, 0.0, 1.0))


def _spans(free: NDArray[np.int64], servers: int, min_loan_ms: int) -> list[list[tuple[int, int]]]:
    """Return the times for which each server is lent, from the number of free servers in each hour [ms]."""
    found: list[list[tuple[int, int]]] = []
    for server in range(servers):
        lent = np.concatenate([[0], free > server, [0]])
        step = np.diff(lent)
        begin, end = np.flatnonzero(step > 0) * HOUR_MS, np.flatnonzero(step < 0) * HOUR_MS
        long = end - begin >= min_loan_ms
        found.append(list(zip(begin[long].tolist(), end[long].tolist(), strict=True)))
    return found


def _nodes(cluster: Cluster) -> list[Node]:
    """Return the nodes of a cluster as they were before they had a place in it."""
    moves: list[list[tuple[int, bool]]] = [[] for _ in cluster.node_id]
    for at, number, up in zip(
        cluster.change_ms.tolist(), cluster.change_node.tolist(), cluster.change_up.tolist(), strict=True
    ):
        moves[number].append((at, bool(up)))
    return [
        Node(
            name,
            int(cluster.gpus[i]),
            cluster.models[cluster.model[i]],
            cluster.racks[cluster.rack[i]],
            cluster.domains[cluster.domain[i]],
            int(cluster.cpu_milli[i]),
            int(cluster.memory_mib[i]),
            bool(cluster.absent[i]),
            tuple(moves[i]),
        )
        for i, name in enumerate(cluster.node_id)
    ]


def _made(cluster: Cluster, nodes: list[Node], origin: str) -> Cluster:
    quotas = QuotaTable(cluster.tenants, cluster.quota_ms, cluster.quota)
    made = make_cluster(nodes, quotas, origin)
    return replace(made, lendable=cluster.lendable, without_gpus=cluster.without_gpus)
