"""Places for gangs by tier: the fewest nodes, one rack, any nodes of one GPU model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ANYWHERE", "FEWEST", "RACK", "Places", "Pool", "Spot", "gathered"]

FEWEST, RACK, ANYWHERE = range(3)
"""How near the GPUs of a gang are: on the fewest nodes of a rack, on nodes of one rack, on nodes of one GPU model."""

Run: TypeAlias = tuple[int, int, int]
"""Neighbours among a pool's nodes: the first, the one after the last, and the GPUs of the largest."""


_MORE = 2**62
"""More than any number of GPUs."""


class Spot(NamedTuple):
    """Where a gang may go: nodes, and its GPUs on each."""

    nodes: list[int]
    gpus: list[int]


@dataclass(frozen=True)
class Pool:
    """Nodes that jobs of some kinds accept."""

    domain: int
    nodes: NDArray[np.int64]
    """Their indices, ascending (m,)."""
    racks: list[Run]
    """Those of one GPU model and rack."""
    rack_low: NDArray[np.int64]
    """First of each of these, as an index into `nodes` (r,)."""
    rack_largest: NDArray[np.int64]
    """GPUs of the largest node of each (r,)."""
    whole: NDArray[np.int64]
    """GPUs of the largest node of each node's rack (m,)."""
    models: list[Run]
    """Those of one GPU model."""
    largest: int
    """GPUs of the largest node."""


class Places:
    """Free GPUs of the nodes during a plan, and the places where gangs fit.

    Parameters
    ----------
    jobs : Jobs
        All jobs.
    cluster : Cluster
        All nodes; if racks are not known, all are in one.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster) -> None:
        found = assign(jobs, cluster)
        node_group = np.repeat(np.arange(len(found.group_low)), found.group_high - found.group_low)
        bit = np.uint64(1) << (node_group - np.searchsorted(found.group_domain, found.group_domain)[node_group]).astype(
            np.uint64
        )
        code = np.stack([found.kind_domain.astype(np.uint64), found.kind_accept], axis=1)
        _, first, kind_pool = np.unique(code, axis=0, return_index=True, return_inverse=True)
        domains = found.kind_domain[first].tolist()
        masks = [
            (cluster.domain == domain) & (bit & found.kind_accept[k] > 0)
            for k, domain in zip(first.tolist(), domains, strict=True)
        ]
        self.kind = found.kind.astype(np.int64)
        """Kind of demand of each job (n,)."""
        self.kind_gpus: list[int] = found.kind_devices.tolist()
        """GPUs of each kind (K,)."""
        self.kind_pool: list[int] = kind_pool.ravel().tolist()
        """Pool of each kind (K,)."""
        self.pools = [_pool(cluster, np.flatnonzero(mask), domain) for mask, domain in zip(masks, domains, strict=True)]
        self.gpus = cluster.gpus.astype(np.int64)
        """GPUs of each node (N,)."""
        self.job_pool = kind_pool.ravel()[self.kind] if len(self.kind) else np.zeros(0, np.int64)
        """Pool of each job (n,)."""
        self.nearest = [self._nearest(k) for k in range(len(self.kind_gpus))]
        """The nearest that each kind's GPUs can be with all nodes there and free (K,)."""
        self._member = np.array(masks, np.int64).reshape(len(masks), cluster.nodes)
        self._pools_of: list[list[int]] = [np.flatnonzero(column).tolist() for column in self._member.T]
        self.free = self.gpus.copy()
        """GPUs of each node that no job has now (N,)."""
        self.room: list[int] = []
        """Sum of them for each pool (P,)."""
        self._none: set[tuple[int, int]] = set()
        self.renew(self.gpus)

    def renew(self, free: NDArray[np.int64]) -> None:
        """Begin a plan with these free GPUs of the nodes (N,)."""
        self.free = free.copy()
        self.room = (self._member @ self.free).tolist()
        self._none.clear()

    def find(self, job: int, tier: int) -> Spot | None:
        """Return GPUs for a job by the rule of a tier, or None; failed attempts are not repeated."""
        kind = int(self.kind[job])
        if (kind, tier) in self._none:
            return None
        if self.kind_gpus[kind] > self.room[self.kind_pool[kind]]:
            return None
        found = self.found(job, tier, self.free)
        if found is None:
            self._none.add((kind, tier))
        return found

    def found(self, job: int, tier: int, free: NDArray[np.int64]) -> Spot | None:
        """Return GPUs for a job by the rule of a tier among other free GPUs of the nodes (N,)."""
        kind = int(self.kind[job])
        pool, gpus = self.pools[self.kind_pool[kind]], self.kind_gpus[kind]
        own = free[pool.nodes]
        return _fewest(pool, gpus, own) if tier == FEWEST else _within(pool, gpus, own, near=tier == RACK)

    def take(self, spot: Spot) -> None:
        """Let a gang have its GPUs for the rest of the plan."""
        self._change(spot, -1)

    def give(self, spot: Spot) -> None:
        """Take the GPUs of a gang back."""
        self._change(spot, 1)
        self._none.clear()

    def _change(self, spot: Spot, sign: int) -> None:
        for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
            self.free[node] += sign * gpus
            for pool in self._pools_of[node]:
                self.room[pool] += sign * gpus

    def _nearest(self, kind: int) -> int:
        pool, gpus = self.pools[self.kind_pool[kind]], self.kind_gpus[kind]
        free = self.gpus[pool.nodes]
        if _fewest(pool, gpus, free) is not None:
            return FEWEST
        return RACK if _within(pool, gpus, free, near=True) is not None else ANYWHERE


def _pool(cluster: Cluster, nodes: NDArray[np.int64], domain: int) -> Pool:
    gpus, model, rack = cluster.gpus[nodes], cluster.model[nodes], cluster.rack[nodes]
    racks = _runs(gpus, model, rack)
    low, high, largest = np.array(racks, np.int64).reshape(-1, 3).T
    whole = np.repeat(largest, high - low)
    return Pool(domain, nodes, racks, low, largest, whole, _runs(gpus, model), int(gpus.max(initial=0)))


def _runs(gpus: NDArray[np.int32], *columns: NDArray[np.int32]) -> list[Run]:
    """Return neighbours that are equal in the columns."""
    if not len(gpus):
        return []
    change = np.zeros(len(gpus), np.bool_)
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    change[:1] = True
    low = np.flatnonzero(change).tolist()
    high = [*low[1:], len(gpus)]
    return [(a, b, int(gpus[a:b].max())) for a, b in zip(low, high, strict=True)]


def _fewest(pool: Pool, gpus: int, free: NDArray[np.int64]) -> Spot | None:
    """Return the node with least room that has enough; for more than a node, whole nodes of a rack and one more."""
    if gpus <= pool.largest:
        enough = np.where(free >= gpus, free, _MORE)
        node = int(enough.argmin())
        if free[node] >= gpus:
            return Spot([int(pool.nodes[node])], [gpus])
    # One pass over all nodes: most racks have too few entirely free nodes.
    full = np.add.reduceat(free == pool.whole, pool.rack_low, dtype=np.int64)
    for index in ((gpus > pool.rack_largest) & (full >= gpus // pool.rack_largest)).nonzero()[0].tolist():
        low, high, largest = pool.racks[index]
        whole, rest = divmod(gpus, largest)
        taken = np.flatnonzero(free[low:high] == largest)[:whole]
        sizes = [largest] * whole
        if rest:
            others = free[low:high].copy()
            others[taken] = 0
            last = int(others.argmax())
            if others[last] < rest:
                continue
            taken, sizes = np.append(taken, last), [*sizes, rest]
        return Spot(pool.nodes[low + taken].tolist(), sizes)
    return None


def _within(pool: Pool, gpus: int, free: NDArray[np.int64], *, near: bool) -> Spot | None:
    """Return nodes of the first rack, or else GPU model, with enough free GPUs, those with the most first."""
    for low, high, _ in pool.racks if near else pool.models:
        here = free[low:high]
        if int(here.sum()) >= gpus:
            return gathered(pool.nodes[low:high], here, np.argsort(-here, kind="stable"), gpus)
    return None


def gathered(
    nodes: NDArray[np.int64], free: NDArray[np.int64], order: NDArray[np.intp] | Sequence[int], gpus: int
) -> Spot:
    """Return the nodes, in an order, that provide this many GPUs; there are enough (m,)."""
    ordered = free[order]
    before = np.cumsum(ordered) - ordered
    used = np.flatnonzero((ordered > 0) & (before < gpus))
    taken = np.minimum(ordered[used], gpus - before[used])
    return Spot(nodes[np.asarray(order)[used]].tolist(), taken.tolist())
