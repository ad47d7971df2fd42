"""The GPUs of servers that gangs and extra workers have, and the servers returned at the end of a loan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.places import Spot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.mechanisms import View

__all__ = ["Servers"]


_NO_NODES = np.zeros(0, np.int64)


class Servers:
    """The books of one run.

    Parameters
    ----------
    cluster : Cluster
    lent : array of bool (N,)
        Nodes on loan.
    may_grow : array of bool (n,)
        Jobs that may have further workers.
    """

    def __init__(self, cluster: Cluster, lent: NDArray[np.bool_], may_grow: NDArray[np.bool_]) -> None:
        self.cluster, self.lent, self.may_grow = cluster, lent, may_grow
        self.base: dict[int, Spot] = {}
        """Where each running job has the GPUs that it asks for."""
        self.elastic: dict[int, None] = {}
        """Running jobs that may grow, in the order in which they started."""
        self.workers: dict[int, list[Spot]] = {}
        """Places of its extra workers, the first to arrive first."""
        self.extra = np.zeros(cluster.nodes, np.int64)
        """GPUs of such workers on each node (N,)."""
        self.free = cluster.gpus.astype(np.int64)
        """Free GPUs of each node now (N,)."""
        self.up = np.ones(cluster.nodes, np.bool_)
        """Whether each node is present (N,)."""
        self._gone: NDArray[np.bool_] | None = None
        self._there: NDArray[np.int64] | None = None
        self.left = _NO_NODES
        """Servers on loan that have left since the last plan."""
        self.changed = False
        """Whether any node has arrived or left since the last plan."""
        self.fixed: set[int] = set()
        """Jobs whose workers cannot be taken from them, as they run on nodes that left too."""
        self.gave = False
        """Whether a worker left in this plan to make room for a gang."""
        self.stopped: set[int] = set()
        """Jobs stopped in this plan."""
        self.ended = False
        """Whether any job has ended since the last plan."""
        self.turn = np.arange(cluster.nodes)
        """Which node has the changes that the cluster says of each (N,)."""
        self._alike = _kinds_of_nodes(cluster)
        self._was: dict[int, Spot | None] = {}
        """Where jobs that changed in this plan were before."""

    def begin(self, view: View, running: NDArray[np.int64]) -> None:
        """Begin a plan."""
        self._was, self.stopped, self.gave = {}, set(), False
        self.ended = len(running) < len(self.base)
        if self.ended:
            for job in set(self.base) - set(running.tolist()):
                del self.base[job]
                self.elastic.pop(job, None)
                for spot in self.workers.pop(job, ()):
                    self._note(spot, -1)
        self.free = view.node_free.astype(np.int64)
        there = view.node_gpus
        self.changed = there is not self._there
        self.left = _NO_NODES
        if self.changed:
            self._there = there
            up = there > 0
            self.left = np.flatnonzero(self.lent & self.up & ~up)
            self.up = up
            gone = ~up & ~self.lent
            self._gone = gone if gone.any() else None
        self.fixed = set()
        if self._gone is not None:
            self.fixed = {job for job, workers in self.workers.items() if workers and self.is_fixed(job)}

    def is_fixed(self, job: int) -> bool:
        """Return whether a job runs on a node that left though it is not on loan: it goes on there as it is."""
        gone = self._gone
        return gone is not None and any(gone[s.nodes].any() for s in (self.base[job], *self.workers.get(job, ())))

    def loose(self) -> NDArray[np.int64]:
        """Return the GPUs of each node that would be free without further workers (N,)."""
        found = self.free + np.where(self.up, self.extra, 0)
        for job in self.fixed:
            for spot in self.workers.get(job, ()):
                for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
                    found[node] -= gpus * int(self.up[node])
        return found

    def where(self, job: int) -> Spot:
        """Return all GPUs of a running job."""
        total: dict[int, int] = {}
        for spot in (self.base[job], *self.workers.get(job, ())):
            for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
                total[node] = total.get(node, 0) + gpus
        return Spot(list(total), list(total.values()))

    def start(self, job: int, spot: Spot, view: View) -> None:
        """Let a job have GPUs that are free, or become so as further workers of others go."""
        self._changes_now(job)
        self.base[job] = spot
        if self.may_grow[job]:
            self.elastic[job] = None
        self._take(spot, 1)
        for node in spot.nodes:
            while self.free[node] < 0:
                self._drop_cheapest(node, view)

    def forget(self, job: int) -> None:
        """Take a job that has no further workers off its GPUs."""
        self._changes_now(job)
        self._take(self.base.pop(job), -1)
        self.elastic.pop(job, None)

    def add(self, job: int, spot: Spot) -> None:
        """Let a job have a further worker on free GPUs."""
        self._changes_now(job)
        self.workers.setdefault(job, []).append(spot)
        self._note(spot, 1)
        self._take(spot, 1)

    def drop(self, job: int, place: int = -1) -> None:
        """Take a further worker from a job."""
        self._changes_now(job)
        spot = self.workers[job].pop(place)
        self._note(spot, -1)
        self._take(spot, -1)

    def reclaim(self) -> None:
        """Clear the servers on loan that have left: extra workers go, and jobs whose gangs run there are stopped."""
        if not len(self.left):
            return
        gone = np.zeros(len(self.up), np.bool_)
        gone[self.left] = True
        for job in list(self.base):
            for place in range(len(self.workers.get(job, ())) - 1, -1, -1):
                if gone[self.workers[job][place].nodes].any():
                    self.drop(job, place)
            if gone[self.base[job].nodes].any() or (job in self.fixed and job in self._was):
                while self.workers.get(job):
                    self.drop(job)
                self.forget(job)
                self.stopped.add(job)

    def borrows(self) -> bool:
        """Return whether a server on loan is present."""
        return bool((self.lent & self.up).any())

    def exchange(self, due_ms: int) -> NDArray[np.int64] | None:
        """Return the nodes to exchange, so the servers that cost least leave; None for none.

        One after the other that server goes whose loss costs least: the sum over the gangs on it of one over the
        servers that each gang has. Gangs on a server that goes count on no other any more.
        """
        change = self.cluster
        rows = (change.change_ms == due_ms) & (change.change_up == 0)
        named = [n for n in self.turn[change.change_node[rows]].tolist() if self.lent[n] and self.up[n]]
        on: dict[int, set[int]] = {}
        for job, spot in self.base.items():
            for node in spot.nodes:
                if self.lent[node]:
                    on.setdefault(node, set()).add(job)
        pairs: list[tuple[int, int]] = []
        alike = self._alike
        for kind in sorted({int(alike[n]) for n in named}):
            leaving = {n for n in named if alike[n] == kind}
            some = np.flatnonzero(self.lent & self.up & (alike == kind)).tolist()
            chosen = self._cheapest(some, len(leaving), on, leaving)
            pairs += zip(sorted(leaving - chosen), sorted(chosen - leaving), strict=True)
        for one, other in pairs:
            mine, theirs = self.turn == one, self.turn == other
            self.turn[mine], self.turn[theirs] = other, one
        return np.array(pairs, np.int64) if pairs else None

    def _cheapest(self, some: list[int], count: int, on: dict[int, set[int]], named: set[int]) -> set[int]:
        """Return this many of some servers; among equals those with fewer workers, then the named ones."""
        server = np.array(some, np.int64)
        cost = np.array([sum(1 / len(self.base[j].nodes) for j in on.get(n, ())) for n in some], np.float64)
        unnamed = np.array([n not in named for n in some])
        chosen: set[int] = set()
        over: set[int] = set()
        order: list[int] = []
        while len(chosen) < count:
            if not order:
                order = np.lexsort((server, unnamed, self.extra[server], cost.round(9)))[::-1].tolist()
            place = order.pop()
            node = some[place]
            cost[place] = np.inf
            chosen.add(node)
            for job in sorted(on.get(node, set()) - over):
                over.add(job)
                spared = np.isin(server, self.base[job].nodes)
                cost[spared] -= 1 / len(self.base[job].nodes)
                order = []
        return chosen

    def changes(self) -> list[tuple[int, Spot]]:
        """Return the current places of jobs that have moved since before the plan; those without GPUs first."""
        found = []
        for job, was in self._was.items():
            now = self.where(job) if job in self.base else None
            if now is None and was is None:
                continue
            if now is None or was is None or sorted(zip(*now, strict=True)) != sorted(zip(*was, strict=True)):
                found.append((job, now or Spot([], [])))
        return sorted(found, key=lambda row: len(row[1].nodes) > 0)

    def _changes_now(self, job: int) -> None:
        if job not in self._was:
            self._was[job] = self.where(job) if job in self.base else None

    def _take(self, spot: Spot, sign: int) -> None:
        for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
            if self.up[node]:
                self.free[node] -= sign * gpus

    def _note(self, spot: Spot, sign: int) -> None:
        for node, gpus in zip(spot.nodes, spot.gpus, strict=True):
            self.extra[node] += sign * gpus

    def _drop_cheapest(self, node: int, view: View) -> None:
        """Take the worker of a node from the job that has least left to do."""
        there = [
            (int(view.table["remaining"][job]), job, place)
            for job, workers in self.workers.items()
            if job not in self.fixed
            for place, spot in enumerate(workers)
            if node in spot.nodes
        ]
        _, job, place = min(there)
        self.drop(job, place)
        self.gave = True


def _kinds_of_nodes(cluster: Cluster) -> NDArray[np.int64]:
    """Return equal numbers for nodes of one domain, GPU model and rack with equally many GPUs (N,)."""
    columns = np.stack([cluster.domain, cluster.model, cluster.rack, cluster.gpus], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
