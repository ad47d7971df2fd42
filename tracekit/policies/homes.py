"""Homes: the nodes on which jobs take turns, so that a job that waits for its turn comes back to the same GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.pools import make_pools
from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Homes"]


class Homes:
    """The home of each job of one run, and what the nodes have to carry.

    A job that fits a node lives on one. A wider gang lives on several of one pool, and takes its turn on all at once.

    Parameters
    ----------
    jobs, cluster
        As a policy gets them.
    depth : float
        GPUs that the jobs of a node may ask for together, over those that it has.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster, depth: float) -> None:
        n, nodes = len(jobs), cluster.nodes
        self.depth = depth
        self.asks: NDArray[np.int64] = jobs.devices.astype(np.int64)
        pools, found = make_pools(jobs, cluster, "place"), assign(jobs, cluster)
        self.kind: NDArray[np.int64] = pools.kind.astype(np.int64)
        group = np.zeros(nodes, np.int64)
        for index, (low, high) in enumerate(zip(found.group_low, found.group_high, strict=True)):
            group[low:high] = index
        self.pool: NDArray[np.int64] = pools.group_pool[group] if nodes else group
        self.may: NDArray[np.bool_] = pools.accepts[:, self.pool]
        """Which nodes a kind of demand may use (K, N)."""
        self._wide: dict[int, bool] = {}
        """Whether the gangs of a kind need several nodes."""
        self.size: NDArray[np.int64] = cluster.gpus.astype(np.int64)
        """GPUs of each node (N,)."""
        self.there: NDArray[np.int64] = self.size.copy()
        """The same, 0 while it is not there (N,)."""
        self.load: NDArray[np.int64] = np.zeros(nodes, np.int64)
        """GPUs that its jobs ask for (N,)."""
        self.members: NDArray[np.int64] = np.zeros(nodes, np.int64)
        """How many jobs it has (N,)."""
        self.sort: NDArray[np.int64] = np.zeros(nodes, np.int64)
        """GPUs of the job that came first, while it has any: the node's class (N,)."""
        self.first: NDArray[np.int64] = np.zeros(n, np.int64)
        self.rows: NDArray[np.int64] = np.zeros(n, np.int64)
        """Rows of each job: `rows` of them from `first` on; 0 it has no home (n,)."""
        self.node: NDArray[np.int64] = np.zeros(max(2 * n, 64), np.int64)
        self.gpus: NDArray[np.int64] = np.zeros(max(2 * n, 64), np.int64)
        self.used = 0

    def at(self, job: int) -> NDArray[np.int64]:
        """Return the nodes of a job's home."""
        return self.node[self.first[job] : self.first[job] + self.rows[job]]

    def single(self, jobs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the node of jobs that live on one; -1 for others (k,)."""
        return np.where(self.rows[jobs] == 1, self.node[self.first[jobs]], -1)

    def take_rows(self, job: int, nodes: NDArray[np.int64], gpus: NDArray[np.int64]) -> None:
        """Let a job live on these nodes."""
        end = self.used + len(nodes)
        if end > len(self.node):
            self.node, self.gpus = np.resize(self.node, 2 * end), np.resize(self.gpus, 2 * end)
        self.node[self.used : end], self.gpus[self.used : end] = nodes, gpus
        self.first[job], self.rows[job], self.used = self.used, len(nodes), end
        self.carry(job)

    def carry(self, job: int) -> None:
        """Count a job among those of its home."""
        nodes = self.at(job)
        self.sort[nodes] = np.where(self.members[nodes] == 0, self.asks[job], self.sort[nodes])
        self.load[nodes] += self.gpus[self.first[job] : self.first[job] + self.rows[job]]
        self.members[nodes] += 1

    def drop(self, job: int) -> None:
        """Count a job no longer: it ended, or sits on the GPUs of another."""
        nodes = self.at(job)
        self.load[nodes] -= self.gpus[self.first[job] : self.first[job] + self.rows[job]]
        self.members[nodes] -= 1

    def settle(self, job: int, *, within: bool) -> bool:
        """Find a home for a job: with room for it now, or, unless `within`, where it has to take turns."""
        gpus = int(self.asks[job])
        may = self.may[self.kind[job]] & (self.there > 0)
        kind = int(self.kind[job])
        if kind not in self._wide:
            self._wide[kind] = not (self.may[kind] & (self.size >= gpus)).any()
        if self._wide[kind]:
            return self._settle_wide(job, gpus, may, within=within)
        fits = may & (self.there >= gpus)
        node = self._narrow(gpus, fits & (self.load + gpus <= self.there))
        if node < 0 and not within:
            node = self._narrow(gpus, fits & (self.load + gpus <= self.depth * self.there))
        if node < 0:
            return False
        self.take_rows(job, np.array([node]), np.array([gpus]))
        return True

    def _narrow(self, gpus: int, room: NDArray[np.bool_]) -> int:
        """Return the least loaded of some nodes, one of the job's class first, then an empty one; -1 none."""
        if not room.any():
            return -1
        share = self.load / np.maximum(self.there, 1)
        tier = np.where(self.members == 0, 1, np.where(self.sort == gpus, 0, 2))
        score = np.where(room, tier * (self.depth + 2) + share, np.inf)
        return int(score.argmin())

    def _settle_wide(self, job: int, gpus: int, may: NDArray[np.bool_], *, within: bool) -> bool:
        left = np.where(may, self.there - self.load, 0)
        if within or any(int(left[self.pool == p].clip(0).sum()) >= gpus for p in np.unique(self.pool[may])):
            give = left.clip(0)
        else:
            left = np.where(may, self.depth * self.there - self.load, 0).astype(np.int64)
            give = np.minimum(left.clip(0), self.there)
        totals = np.bincount(self.pool, give, int(self.pool.max(initial=0)) + 1)
        pool = int(totals.argmax())
        if totals[pool] < gpus:
            return False
        order = np.flatnonzero((self.pool == pool) & (give > 0))
        order = order[np.lexsort((order, -left[order]))]
        ends = np.cumsum(give[order])
        count = int(np.searchsorted(ends, gpus)) + 1
        parts = give[order[:count]].copy()
        parts[-1] -= int(ends[count - 1]) - gpus
        self.take_rows(job, order[:count], parts)
        return True
