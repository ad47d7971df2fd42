"""One run of Gandiva: homes, turns and pairs."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.pools import make_pools
from tracekit.policies.turns import next_slice
from tracekit.replay.assumptions.of_jobs import memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm, interference_ppm
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.mechanisms import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View


# Homes: the nodes on which jobs take turns. A job that waits for its turn returns to the same GPUs.


class Homes:
    """The home of each job of one run, and the load of the nodes.

    A job that fits a node lives on one. A wider gang lives on several of one pool, and takes its turn on all at once.

    Parameters
    ----------
    jobs, cluster
        The parameters as a policy gets them.
    depth : float
        GPUs that the jobs of a node may ask for together, relative to the GPUs of the node.
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
        """GPUs of the node's earliest job, while it has any: the node's class (N,)."""
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
        """Find a home for a job: with room for it now, or, unless `within`, where it must take turns."""
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
        """Return the least loaded of some nodes: first one of the job's class, then an empty one; -1 none."""
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


class GandivaRun:
    """Homes, turns and pairs of one run; `p` are the parameters of the policy."""

    def __init__(self, p: Mapping[str, Any], jobs: Jobs, cluster: Cluster, models: Models, view: View) -> None:
        n = len(jobs)
        self.view, self.models = view, models
        self.slice_ms = max(round(p["quantum"] * 1000), 1)
        self.slices, self.pack, self.migrate, self.grow = p["slices"], p["pack"], p["migrate"], p["grow"]
        self.homes = Homes(jobs, cluster, p["depth"] if self.slices else 1.0)
        self.busy = utilization_ppm(models, jobs)
        self.memory = memory_ppm(models, jobs)
        _, self.most = elastic_bounds(models, self.homes.asks)
        self.turn: NDArray[np.int64] = np.arange(n, dtype=np.int64)
        """Whose turn is first: the place in the circle, larger after each turn (n,)."""
        self.turns = n
        self.host: NDArray[np.int64] = np.full(n, -1, np.int64)
        """The job whose GPUs a job shares; -1 none (n,)."""
        self.guest: NDArray[np.int64] = np.full(n, -1, np.int64)
        """The job that shares a job's GPUs; -1 none (n,)."""
        self.pairs = 0
        """How many sit on the GPUs of another."""
        self.changed: set[int] = set()
        """Jobs that join another job's GPUs, or leave it."""
        self.parted: list[int] = []
        """Guests that leave, to have GPUs of their own."""
        self.nodes: NDArray[np.int64] | None = None
        self.queue: list[tuple[int, int]] = []
        self.known = 0
        self.active = np.zeros(0, np.int64)

    def plan(self, view: View) -> Plan:
        """Return which jobs run until the next slice or event."""
        job, held = view.job, view.held
        self.changed, self.parted = set(), []
        freed = self._forget(view)
        if view.node_gpus is not self.nodes:
            freed = True
            self._follow_nodes(view, job, held)
        self._settle_new(view, job)
        if freed and self.queue:
            self._settle_queue()
        waits = (held == 0) & (self.homes.rows[job] > 0)
        some = bool(waits.any())
        if freed and self.migrate and some:
            self._move(job[waits & (self.host[job] < 0)])
        ticks = self.slices and view.now_ms % self.slice_ms == 0 and some
        if ticks:
            self._turn(job[held > 0])
            if self.pack:
                self._pack(job[self.homes.rows[job] > 0])
        if freed and self.pack and self.pairs:
            self._part(job[self.host[job] >= 0])
        if not (ticks or self.grow or self.changed or some):
            return Plan(np.zeros(0, np.int64), np.zeros(0, np.int64), keep=True)
        if ticks or self.grow:
            gpus = self._chosen(view, job, held, ticks=ticks)
            changed = np.isin(job, list(self.changed)) if self.changed else np.zeros(len(job), np.bool_)
            named = np.flatnonzero((gpus != held) | (changed & (gpus > 0)))
            job, gpus, held = job[named], gpus[named], gpus
        else:
            job, gpus, held = self._filled(view, job, held, waits)
        wake = bool(self.slices and ((held == 0) & (self.homes.rows[view.job] > 0)).any())
        return self._plan(job, gpus, next_slice(view.now_ms, self.slice_ms) if wake else -1)

    def _forget(self, view: View) -> bool:
        """Take jobs that ended off their homes; return whether there were any."""
        from tracekit.replay.kernel import DONE

        ended = self.active[view.table["status"][self.active] == DONE]
        for j in ended.tolist():
            host, guest = int(self.host[j]), int(self.guest[j])
            if host >= 0:
                self._split(j, host)
                continue
            if self.homes.rows[j]:
                self.homes.drop(j)
            if guest >= 0:
                # The guest keeps the GPUs.
                self._split(guest, j)
                self.homes.carry(guest)
            self.changed.discard(j)
        self.changed.difference_update(ended.tolist())
        return len(ended) > 0

    def _split(self, guest: int, host: int) -> None:
        self.guest[host], self.host[guest] = -1, -1
        self.pairs -= 1
        self.changed.update((guest, host))

    def _follow_nodes(self, view: View, job: NDArray[np.int64], held: NDArray[np.int64]) -> None:
        """Let jobs that wait for their turn on nodes that left look for other homes."""
        self.nodes = view.node_gpus
        self.homes.there = self.nodes.astype(np.int64)
        for j in job[(held == 0) & (self.homes.rows[job] > 0)].tolist():
            if (self.homes.there[self.homes.at(j)] == 0).any():
                host, guest = int(self.host[j]), int(self.guest[j])
                if host >= 0:
                    self._split(j, host)
                else:
                    self.homes.drop(j)
                if guest >= 0:
                    self._split(guest, j)
                    self.homes.carry(guest)
                self.homes.rows[j] = 0
                heapq.heappush(self.queue, (j, j))

    def _settle_new(self, view: View, job: NDArray[np.int64]) -> None:
        """Give new jobs homes; a job that finds none waits for one."""
        for j in job[np.searchsorted(job, self.known) :].tolist():
            if not self.homes.settle(j, within=False):
                heapq.heappush(self.queue, (j, j))
        self.known, self.active = view.submitted, job

    def _settle_queue(self) -> None:
        """Give jobs without a home one, in the order of submission; a kind that finds none is not tried again."""
        failed: set[int] = set()
        again = []
        left = self.homes.depth * self.homes.there - self.homes.load
        most = left.max(initial=0)
        while self.queue and most > 0:
            entry = heapq.heappop(self.queue)
            kind = int(self.homes.kind[entry[1]])
            if kind in failed or not self.homes.settle(entry[1], within=False):
                failed.add(kind)
                again.append(entry)
                if len(failed) >= len(self.homes.may):
                    break
        for entry in again:
            heapq.heappush(self.queue, entry)

    def _crowded(self, jobs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which single-node jobs must take turns there (k,)."""
        node = self.homes.single(jobs)
        over = self.homes.load > self.homes.there
        return (node >= 0) & over[node]

    def _move(self, waiting: NDArray[np.int64]) -> None:
        """Move jobs that wait for their turn to nodes with room, the longest wait first."""
        some = waiting[self._crowded(waiting)]
        some = some[np.argsort(self.turn[some], kind="stable")]
        room = self.homes.there - self.homes.load
        while len(some) and (room > 0).any():
            some = some[self.homes.asks[some] <= room.max()]
            if not len(some):
                return
            j = int(some[0])
            guest = int(self.guest[j])
            self.homes.drop(j)
            if not self.homes.settle(j, within=True):
                self.homes.carry(j)
                some = some[self.homes.kind[some] != self.homes.kind[j]]
                continue
            if guest >= 0:
                # A pair separates: the job that moves goes alone.
                self._split(guest, j)
                self.homes.carry(guest)
            some = some[1:]
            room = self.homes.there - self.homes.load

    def _turn(self, ran: NDArray[np.int64]) -> None:
        """Put the jobs that ran at the end of the circle, in their order."""
        order = ran[np.argsort(self.turn[ran], kind="stable")]
        self.turn[order] = self.turns + np.arange(len(order))
        self.turns += len(order)

    def _pack(self, jobs: NDArray[np.int64]) -> None:
        """Pair two jobs of equal size on each crowded node: the two with the lowest utilization."""
        alone = jobs[(self.host[jobs] < 0) & (self.guest[jobs] < 0)]
        alone = alone[self._crowded(alone)]
        if len(alone) < 2:
            return
        node, asks, busy = self.homes.single(alone), self.homes.asks[alone], self.busy[alone]
        by = np.lexsort((alone, busy, asks, node))
        one, two = alone[by[:-1]], alone[by[1:]]
        same = (node[by[:-1]] == node[by[1:]]) & (asks[by[:-1]] == asks[by[1:]])
        first, second = self._together(one, two)
        same &= (self.memory[one] + self.memory[two] <= PPM) & (first + second > PPM)
        one, two = one[same], two[same]
        at = self.homes.single(one)
        least = np.lexsort((self.busy[one] + self.busy[two], at))
        _, pick = np.unique(at[least], return_index=True)
        for k in least[pick].tolist():
            host, guest = int(one[k]), int(two[k])
            if self.turn[guest] < self.turn[host]:
                host, guest = guest, host
            self.homes.drop(guest)
            self.host[guest], self.guest[host] = host, guest
            self.pairs += 1
            self.changed.update((host, guest))

    def _part(self, guests: NDArray[np.int64]) -> None:
        """Give guests their own GPUs if a node has room, the longest wait first."""
        some = guests[np.argsort(self.turn[guests], kind="stable")]
        while len(some):
            room = (self.homes.there - self.homes.load).max(initial=0)
            some = some[self.homes.asks[some] <= room]
            if not len(some):
                return
            j = int(some[0])
            if not self.homes.settle(j, within=True):
                some = some[self.homes.kind[some] != self.homes.kind[j]]
                continue
            self._split(j, int(self.host[j]))
            self.parted.append(j)
            some = some[1:]

    def _together(self, one: NDArray[np.int64], two: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the speeds of two jobs next to each other [ppm]."""
        a, b = self.busy[one], self.busy[two]
        return interference_ppm(self.models, a, b), interference_ppm(self.models, b, a)

    def _filled(
        self, view: View, job: NDArray[np.int64], held: NDArray[np.int64], waits: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return, between slices, jobs that start or are named for their pair, their GPUs, and the GPUs of all."""
        place = np.flatnonzero(waits & (self.host[job] < 0))
        place = place[self._take(job[place], view.node_free.copy())]
        guests = np.flatnonzero(waits & (self.host[job] >= 0))
        hosts = np.searchsorted(job, self.host[job[guests]])
        after = held.copy()
        after[place] = self.homes.asks[job[place]]
        after[guests] = after[hosts]
        named = np.concatenate([place, guests[after[guests] > 0]])
        if self.changed:
            other = np.searchsorted(job, np.array(sorted(self.changed), np.int64))
            named = np.union1d(named, other[after[other] > 0])
        return job[named], after[named], after

    def _take(self, jobs: NDArray[np.int64], free: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the jobs that run if all are considered in turn; `free` is what is left."""
        from tracekit.replay.kernel import take_homes

        homes = self.homes
        by = np.argsort(self.turn[jobs], kind="stable")
        taken = np.zeros(len(jobs), np.uint8)
        order = np.ascontiguousarray(jobs[by])
        take_homes(order, homes.first, homes.rows, homes.node, homes.gpus, free, taken)
        return by[taken.view(np.bool_)]

    def _chosen(self, view: View, job: NDArray[np.int64], held: NDArray[np.int64], *, ticks: bool) -> NDArray[np.int64]:
        """Return the GPUs that each job has from now on; between slices the running jobs go first (k,)."""
        homes = self.homes
        free = homes.there.copy()
        chosen = np.zeros(len(job), np.bool_)
        own = (homes.rows[job] > 0) & (self.host[job] < 0)
        if not homes.there.all():
            # Who runs on a node that left stays to its end.
            for i in np.flatnonzero(own & (held > 0)).tolist():
                nodes = homes.at(int(job[i]))
                if (homes.there[nodes] == 0).any():
                    chosen[i], own[i] = True, False
                    low = int(homes.first[job[i]])
                    free[nodes] -= homes.gpus[low : low + len(nodes)]
            free = np.maximum(free, 0)
        parts = (own,) if ticks else (own & (held > 0), own & (held == 0))
        for part in parts:
            place = np.flatnonzero(part)
            chosen[place[self._take(job[place], free)]] = True
        guests = np.flatnonzero(self.host[job] >= 0)
        chosen[guests] = chosen[np.searchsorted(job, self.host[job[guests]])]
        gpus = np.where(chosen, homes.asks[job], 0)
        if self.grow:
            self._grow(job, gpus, free)
        return gpus

    def _plan(self, job: NDArray[np.int64], gpus: NDArray[np.int64], wake_ms: int) -> Plan:
        """Return the plan that names these jobs: stops, then hosts, then guests, larger gangs first."""
        by = np.lexsort((-gpus, self.host[job] >= 0, gpus > 0))
        job, gpus = job[by], gpus[by]
        host, mate = self.host[job], np.maximum(self.host[job], self.guest[job])
        speed = np.full(len(job), PPM)
        if self.grow:
            speed = np.maximum(elastic_ppm(self.models, self.homes.asks[job], gpus), 1)
        pairs = np.flatnonzero(mate >= 0)
        if len(pairs):
            speed[pairs], _ = self._together(job[pairs], mate[pairs])
        sits = (host >= 0) & (gpus > 0)
        own = np.flatnonzero((gpus > 0) & ~sits)
        beside = np.where(sits, host, -1)
        if self.parted:
            parts = own[np.isin(job[own], self.parted)]
            beside[parts] = job[parts]
        return Plan(
            job,
            gpus,
            rate=speed,
            keep=True,
            optional=len(job),
            place=self._rows(job, gpus, own),
            beside=beside if self.pack else None,
            wake_ms=wake_ms,
        )

    def _rows(self, job: NDArray[np.int64], gpus: NDArray[np.int64], own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows (place, node, GPUs) of jobs with their own GPUs."""
        homes = self.homes
        count = homes.rows[job[own]]
        place = np.repeat(own, count)
        start = np.repeat(homes.first[job[own]] - (np.cumsum(count) - count), count)
        at = start + np.arange(len(place))
        part = homes.gpus[at]
        if self.grow:
            part = np.where(homes.rows[job[place]] == 1, gpus[place], part)
        return np.column_stack([place, homes.node[at], part])

    def _grow(self, job: NDArray[np.int64], gpus: NDArray[np.int64], free: NDArray[np.int64]) -> None:
        """Give the GPUs that a node has left over to the job of it whose turn is first."""
        able = np.flatnonzero((gpus > 0) & (self.homes.rows[job] == 1) & (self.host[job] < 0) & (self.guest[job] < 0))
        able = able[np.argsort(self.turn[job[able]], kind="stable")]
        node, pick = np.unique(self.homes.single(job[able]), return_index=True)
        some = able[pick]
        room = np.minimum(free[node], self.most[job[some]] - gpus[some])
        gpus[some] += np.where((self.homes.load[node] <= self.homes.there[node]) & (room > 0), room, 0)
