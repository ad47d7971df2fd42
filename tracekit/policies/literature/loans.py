"""Inference servers on loan: when they join and leave, and which jobs use their GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.network_tiers import Spot
from tracekit.replay.assumptions.costs import HOUR_MS
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster, scaled_number
from tracekit.replay.jobs import naive_utc

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View


ON_LOAN = "on loan"
"""Name of the rack of nodes on loan. If a cluster has such a rack, it defines when these nodes join and leave."""

_MOST_HOURS = 200_000
"""Number of hours after which no server is lent."""


def loaned(cluster: Cluster) -> Bools:
    """Return whether each node is on loan when in service (N,)."""
    if ON_LOAN not in cluster.racks:
        return np.zeros(cluster.nodes, np.bool_)
    return np.asarray(cluster.rack == cluster.racks.index(ON_LOAN))


def without_loans(cluster: Cluster) -> Cluster:
    """Return the cluster without the nodes on loan."""
    lent = loaned(cluster)
    if not lent.any():
        return cluster
    kept = [node for node, gone in zip(cluster.as_nodes(), lent.tolist(), strict=True) if not gone]
    return _made(cluster, kept, f"{cluster.origin}, without loans")


def with_loans(cluster: Cluster, jobs: Jobs, models: Models, min_loan_ms: int) -> Cluster:
    """Return the cluster with the servers that M42 leaves free, in a separate rack.

    Among equal servers, the last to join leaves first, so loans are as long as possible. Servers are lent until the
    jobs could have run four times over; then all are returned.

    Parameters
    ----------
    cluster : Cluster
        The cluster. If it already has nodes on loan, it stays as it is.
    jobs : Jobs
        The jobs; the first submission is time 0.
    models : Models
        Assumptions (M42).
    min_loan_ms : int
        Shortest time for which a server must be free to be borrowed [ms].
    """
    if loaned(cluster).any():
        return cluster
    level = _levels(cluster, jobs, models)
    nodes, taken = cluster.as_nodes(), set(cluster.node_id)
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
    return _made(cluster, [*nodes, *lent], f"{cluster.origin}; {len(lent):,} inference servers on loan at times")


def _levels(cluster: Cluster, jobs: Jobs, models: Models) -> Floats:
    """Return the share of servers that are free in each hour, from time 0 on [0..1] (H,)."""
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


def _spans(free: Ints, servers: int, min_loan_ms: int) -> list[list[tuple[int, int]]]:
    """Return the times at which each server is lent, given the number of free servers in each hour [ms]."""
    found: list[list[tuple[int, int]]] = []
    for server in range(servers):
        lent = np.concatenate([[0], free > server, [0]])
        step = np.diff(lent)
        begin, end = np.flatnonzero(step > 0) * HOUR_MS, np.flatnonzero(step < 0) * HOUR_MS
        long = end - begin >= min_loan_ms
        found.append(list(zip(begin[long].tolist(), end[long].tolist(), strict=True)))
    return found


def _made(cluster: Cluster, nodes: list[Node], origin: str) -> Cluster:
    quotas = QuotaTable(cluster.tenants, cluster.quota_ms, cluster.quota)
    made = make_cluster(nodes, quotas, origin)
    return replace(made, lendable=cluster.lendable, without_gpus=cluster.without_gpus)


_NO_NODES = np.zeros(0, np.int64)


class Servers:
    """Tracks the GPUs of jobs and of servers in one run.

    Parameters
    ----------
    cluster : Cluster
    lent : array of bool (N,)
        Nodes on loan.
    may_grow : array of bool (n,)
        Jobs that may get extra workers.
    """

    def __init__(self, cluster: Cluster, lent: Bools, may_grow: Bools) -> None:
        self.cluster, self.lent, self.may_grow = cluster, lent, may_grow
        self.base: dict[int, Spot] = {}
        """Spot of each running job's requested GPUs."""
        self.elastic: dict[int, None] = {}
        """Running jobs that may grow, in the order of their starts."""
        self.workers: dict[int, list[Spot]] = {}
        """Spots of each job's extra workers, the oldest worker first."""
        self.extra = np.zeros(cluster.nodes, np.int64)
        """GPUs that extra workers use on each node (N,)."""
        self.free = cluster.gpus.astype(np.int64)
        """Free GPUs of each node (N,)."""
        self.up = np.ones(cluster.nodes, np.bool_)
        """Whether each node is in service (N,)."""
        self._gone: Bools | None = None
        self._there: Ints | None = None
        self.left = _NO_NODES
        """Servers on loan that have left since the last plan."""
        self.changed = False
        """Whether any node has arrived or left since the last plan."""
        self.fixed: set[int] = set()
        """Jobs that keep their workers, because they also run on nodes that left."""
        self.gave = False
        """Whether a worker was removed in this plan to make room for a gang."""
        self.stopped: set[int] = set()
        """Jobs stopped in this plan."""
        self.ended = False
        """Whether any job has ended since the last plan."""
        self.turn = np.arange(cluster.nodes)
        """For each node in the cluster's list of changes, the node that its changes now apply to (N,)."""
        self._alike = _kinds_of_nodes(cluster)
        self._was: dict[int, Spot | None] = {}
        """Previous spots of the jobs that changed in this plan."""

    def begin(self, view: View, running: Ints) -> None:
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
        """Return whether a job runs on a node that left but was not on loan. Such a job continues there unchanged."""
        gone = self._gone
        return gone is not None and any(gone[s.nodes].any() for s in (self.base[job], *self.workers.get(job, ())))

    def loose(self) -> Ints:
        """Return the GPUs that would be free on each node without extra workers (N,)."""
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
        """Start a job on GPUs that are free, or that become free when other jobs' extra workers are removed."""
        self._changes_now(job)
        self.base[job] = spot
        if self.may_grow[job]:
            self.elastic[job] = None
        self._take(spot, 1)
        for node in spot.nodes:
            while self.free[node] < 0:
                self._drop_cheapest(node, view)

    def forget(self, job: int) -> None:
        """Remove a job without extra workers from its GPUs."""
        self._changes_now(job)
        self._take(self.base.pop(job), -1)
        self.elastic.pop(job, None)

    def add(self, job: int, spot: Spot) -> None:
        """Give a job an extra worker on free GPUs."""
        self._changes_now(job)
        self.workers.setdefault(job, []).append(spot)
        self._note(spot, 1)
        self._take(spot, 1)

    def drop(self, job: int, place: int = -1) -> None:
        """Remove an extra worker of a job."""
        self._changes_now(job)
        spot = self.workers[job].pop(place)
        self._note(spot, -1)
        self._take(spot, -1)

    def reclaim(self) -> None:
        """Clear the returned servers by removing extra workers and stopping gangs on them."""
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
        """Return whether a server on loan is in service."""
        return bool((self.lent & self.up).any())

    def exchange(self, due_ms: int) -> Ints | None:
        """Return pairs of nodes to exchange so that the cheapest servers leave, or None if they leave anyway.

        Servers are chosen one by one by the least cost. The cost of losing a server is, for each gang on it, one
        divided by the gang's number of servers. Gangs on a chosen server no longer count on other servers.
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
        """Return the `count` cheapest servers, and among equals those with fewer workers, then the named servers."""
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
        """Return the current spots of jobs that this plan has changed, jobs without GPUs first."""
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
        """Remove a worker from a node, that of the job with the least remaining work."""
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


def _kinds_of_nodes(cluster: Cluster) -> Ints:
    """Return a number per node, equal for nodes with the same domain, GPU model, partitions, rack and GPUs (N,)."""
    columns = np.stack([cluster.domain, cluster.model, cluster.serves, cluster.rack, cluster.gpus], axis=1)
    return np.unique(columns, axis=0, return_inverse=True)[1].ravel().astype(np.int64)
