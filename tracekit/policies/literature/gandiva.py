"""Gandiva: time slices on oversubscribed nodes, with packing, migration, growing and shrinking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.residents import Lines
from tracekit.policies.literature.turns import next_slice
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned, Plans
from tracekit.policies.pools import NOTHING, make_pools
from tracekit.replay.assumptions.of_jobs import memory_ppm, utilization_ppm
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm, interference_ppm
from tracekit.replay.mechanisms import Plan, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Ints
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


class Homes:
    """The home of each job in one run, and the load of the nodes.

    A job that fits on one node has one home node. A larger gang has several home nodes in one pool, and takes its turn
    on all of them at once.

    Parameters
    ----------
    jobs, cluster
        As passed to the policy.
    node_group : array (N,)
        Group of each node.
    depth : float
        Maximum total request of a node's jobs, relative to the node's GPUs.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster, node_group: Ints, depth: float) -> None:
        n, nodes = len(jobs), cluster.nodes
        self.depth = depth
        self.asks: Ints = jobs.devices.astype(np.int64)
        pools = make_pools(jobs, cluster, "place")
        self.kind: Ints = pools.kind.astype(np.int64)
        self.pool: Ints = pools.group_pool[node_group]
        self.may: Bools = pools.accepts[:, self.pool]
        """Whether each kind of demand may use a node (K, N)."""
        self._wide: dict[int, bool] = {}
        """Whether the gangs of a kind need several nodes."""
        self.size: Ints = cluster.gpus.astype(np.int64)
        """GPUs of each node (N,)."""
        self.there: Ints = self.size.copy()
        """GPUs of each node, or 0 while the node is out of service (N,)."""
        self.load: Ints = np.zeros(nodes, np.int64)
        """GPUs requested by the jobs of each node (N,)."""
        self.members: Ints = np.zeros(nodes, np.int64)
        """Number of jobs of each node (N,)."""
        self.sort: Ints = np.zeros(nodes, np.int64)
        """Class of each node with jobs: the GPUs of its first job (N,)."""
        self.first: Ints = np.zeros(n, np.int64)
        self.rows: Ints = np.zeros(n, np.int64)
        """Number of rows of each job, starting at `first`, or 0 if the job has no home (n,)."""
        self.node: Ints = np.zeros(max(2 * n, 64), np.int64)
        self.gpus: Ints = np.zeros(max(2 * n, 64), np.int64)
        self.used = 0

    def at(self, job: int) -> Ints:
        """Return the nodes of a job's home."""
        return self.node[self.first[job] : self.first[job] + self.rows[job]]

    def single(self, jobs: Ints) -> Ints:
        """Return the home node of jobs that have one, or -1 for other jobs (k,)."""
        return np.where(self.rows[jobs] == 1, self.node[self.first[jobs]], -1)

    def take_rows(self, job: int, nodes: Ints, gpus: Ints) -> None:
        """Set a job's home to these nodes."""
        end = self.used + len(nodes)
        if end > len(self.node):
            self.node, self.gpus = np.resize(self.node, 2 * end), np.resize(self.gpus, 2 * end)
        self.node[self.used : end], self.gpus[self.used : end] = nodes, gpus
        self.first[job], self.rows[job], self.used = self.used, len(nodes), end
        self.carry(job)

    def carry(self, job: int) -> None:
        """Count a job in the load of its home."""
        nodes = self.at(job)
        self.sort[nodes] = np.where(self.members[nodes] == 0, self.asks[job], self.sort[nodes])
        self.load[nodes] += self.gpus[self.first[job] : self.first[job] + self.rows[job]]
        self.members[nodes] += 1

    def drop(self, job: int) -> None:
        """Remove a job from the load of its home, because it ended or shares another job's GPUs."""
        nodes = self.at(job)
        self.load[nodes] -= self.gpus[self.first[job] : self.first[job] + self.rows[job]]
        self.members[nodes] -= 1

    def settle(self, job: int, *, within: bool) -> bool:
        """Find a home for a job: nodes with room now or, unless `within`, nodes where it must take turns."""
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

    def _narrow(self, gpus: int, room: Bools) -> int:
        """Return the least loaded of the given nodes, preferring the job's class, then empty nodes, or -1 for none."""
        if not room.any():
            return -1
        share = self.load / np.maximum(self.there, 1)
        tier = np.where(self.members == 0, 1, np.where(self.sort == gpus, 0, 2))
        score = np.where(room, tier * (self.depth + 2) + share, np.inf)
        return int(score.argmin())

    def _settle_wide(self, job: int, gpus: int, may: Bools, *, within: bool) -> bool:
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


class _Circles(Plans):
    """Plans based on homes, turns and pairs."""

    def set_up(self) -> None:
        """Compute the jobs' utilization, memory and maximum number of GPUs."""
        p, jobs, models = self.p, self.jobs, self.models
        self.slice_ms = max(round(p["quantum"] * 1000), 1)
        self.slices, self.pack, self.migrate, self.grow = p["slices"], p["pack"], p["migrate"], p["grow"]
        self.depth = p["depth"] if self.slices else 1.0
        self.busy = utilization_ppm(models, jobs)
        self.memory = memory_ppm(models, jobs)
        _, self.most = elastic_bounds(models, self.gpus)
        self.settings.update(names_nodes=True, share=2 if self.pack else 1)

    def begin(self, view: View) -> None:
        """Begin a run, in which no job has a home yet."""
        n = len(self.jobs)
        self.homes = Homes(self.jobs, self.cluster, view.node_group, self.depth)
        self.turn: Ints = np.arange(n, dtype=np.int64)
        """Position of each job in the circle, which grows after each turn. The smallest goes first (n,)."""
        self.turns = n
        self.host: Ints = np.full(n, -1, np.int64)
        """Host of each job, whose GPUs it shares, or -1 for none (n,)."""
        self.guest: Ints = np.full(n, -1, np.int64)
        """Guest of each job, which shares its GPUs, or -1 for none (n,)."""
        self.pairs = 0
        """Number of jobs that share another job's GPUs."""
        self.changed: set[int] = set()
        """Jobs that join or leave a pair."""
        self.parted: list[int] = []
        """Guests that leave their pair and get their own GPUs."""
        self.nodes: Ints | None = None
        self.queue = Lines(self.homes.kind.tolist())
        """Jobs that wait for a home."""
        self.known = 0
        self.active = np.zeros(0, np.int64)

    def plan(self, view: View) -> Plan:
        """Return the plan until the next slice or event."""
        job, held = view.job, view.held
        self.changed, self.parted = set(), []
        freed = self._forget(view)
        if view.node_gpus is not self.nodes:
            freed = True
            self._follow_nodes(view, job, held)
        self._settle_new(view, job)
        if freed:
            self.queue.start(lambda j: self.homes.settle(j, within=False))
        waits = (held == 0) & (self.homes.rows[job] > 0)
        some = bool(waits.any())
        if freed and self.migrate and some:
            self._move(job[waits & (self.host[job] < 0)])
        ticks = self.slices and view.now_ms % self.slice_ms == 0 and some
        if ticks:
            # The jobs that ran move to the end of the circle and keep their order.
            ran = job[held > 0]
            self.turn[ran[np.argsort(self.turn[ran], kind="stable")]] = self.turns + np.arange(len(ran))
            self.turns += len(ran)
            if self.pack:
                self._pack(job[self.homes.rows[job] > 0])
        if freed and self.pack and self.pairs:
            self._part(job[self.host[job] >= 0])
        if not (ticks or self.grow or self.changed or some):
            return NOTHING
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
        """Remove ended jobs from their homes. Return whether there were any."""
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

    def _follow_nodes(self, view: View, job: Ints, held: Ints) -> None:
        """Find new homes for jobs that wait for their turn on nodes that left."""
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
                self.queue.add(j)

    def _settle_new(self, view: View, job: Ints) -> None:
        """Give homes to new jobs. A job without a home waits for one."""
        for j in job[np.searchsorted(job, self.known) :].tolist():
            if not self.homes.settle(j, within=False):
                self.queue.add(j)
        self.known, self.active = view.submitted, job

    def _crowded(self, jobs: Ints) -> Bools:
        """Return which single-node jobs must take turns on their node (k,)."""
        node = self.homes.single(jobs)
        over = self.homes.load > self.homes.there
        return (node >= 0) & over[node]

    def _move(self, waiting: Ints) -> None:
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
                # If one job of a pair moves, the pair separates.
                self._split(guest, j)
                self.homes.carry(guest)
            some = some[1:]
            room = self.homes.there - self.homes.load

    def _pack(self, jobs: Ints) -> None:
        """On each oversubscribed node, pair the two jobs of equal size with the lowest utilization."""
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

    def _part(self, guests: Ints) -> None:
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

    def _together(self, one: Ints, two: Ints) -> tuple[Ints, Ints]:
        """Return the speeds of two jobs that share GPUs [ppm]."""
        a, b = self.busy[one], self.busy[two]
        return interference_ppm(self.models, a, b), interference_ppm(self.models, b, a)

    def _filled(self, view: View, job: Ints, held: Ints, waits: Bools) -> tuple[Ints, Ints, Ints]:
        """Return the jobs that start or change partners between slices, with their GPUs, and the GPUs of all jobs."""
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

    def _take(self, jobs: Ints, free: Ints) -> Ints:
        """Consider all jobs in the order of their turns. Return the indices of those that run, and reduce `free`."""
        from tracekit.replay.kernel import take_homes

        homes = self.homes
        by = np.argsort(self.turn[jobs], kind="stable")
        taken = np.zeros(len(jobs), np.uint8)
        order = np.ascontiguousarray(jobs[by])
        take_homes(order, homes.first, homes.rows, homes.node, homes.gpus, free, taken)
        return by[taken.view(np.bool_)]

    def _chosen(self, view: View, job: Ints, held: Ints, *, ticks: bool) -> Ints:
        """Return the GPUs of each job from now on. Between slices, running jobs go first (k,)."""
        homes = self.homes
        free = homes.there.copy()
        chosen = np.zeros(len(job), np.bool_)
        own = (homes.rows[job] > 0) & (self.host[job] < 0)
        if not homes.there.all():
            # A job that runs on a node that left stays there until it ends.
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

    def _plan(self, job: Ints, gpus: Ints, wake_ms: int) -> Plan:
        """Return the plan for these jobs: stops, then hosts, then guests, larger gangs first."""
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

    def _rows(self, job: Ints, gpus: Ints, own: Ints) -> Ints:
        """Return the rows (place, node, GPUs) of jobs that have their own GPUs."""
        homes = self.homes
        count = homes.rows[job[own]]
        place = np.repeat(own, count)
        start = np.repeat(homes.first[job[own]] - (np.cumsum(count) - count), count)
        at = start + np.arange(len(place))
        part = homes.gpus[at]
        if self.grow:
            part = np.where(homes.rows[job[place]] == 1, gpus[place], part)
        return np.column_stack([place, homes.node[at], part])

    def _grow(self, job: Ints, gpus: Ints, free: Ints) -> None:
        """Give a node's spare GPUs to its job with the first turn."""
        able = np.flatnonzero((gpus > 0) & (self.homes.rows[job] == 1) & (self.host[job] < 0) & (self.guest[job] < 0))
        able = able[np.argsort(self.turn[job[able]], kind="stable")]
        node, pick = np.unique(self.homes.single(job[able]), return_index=True)
        some = able[pick]
        room = np.minimum(free[node], self.most[job[some]] - gpus[some])
        gpus[some] += np.where((self.homes.load[node] <= self.homes.there[node]) & (room > 0), room, 0)


class Gandiva(Planned):
    """Time slices on oversubscribed nodes, with packing and migration.

    A job gets a home on arrival. Among the nodes with room, its home is the least loaded node of its class, otherwise
    an empty node, otherwise any node. A node's class is the size of its first job, in GPUs. If no node has room, the
    job goes, in the same order of preference, to a node whose jobs then request at most `depth` times its GPUs, and
    takes turns there. If there is no such node, the job waits, and later jobs may overtake it. A gang too large for one
    node has its home on several nodes. On nodes whose jobs request more GPUs than there are, the jobs that ran go to
    the end of the circle at each multiple of `quantum`. The jobs that fit run next, in the order of the circle, with
    all GPUs of a gang at once. With pack=on, each slice puts the two jobs of one size with the lowest utilization on
    every such node on the same GPUs, if their memory fits and their speeds add up to more than 1. They separate as soon
    as both fit alone. With migrate=on, jobs waiting for their turn move to GPUs that become free, the longest wait
    first. With grow=on, a node's spare GPUs go to one of its jobs, which returns them when another job arrives.

    Equal to
    --------
    - If all jobs fit, every job starts at once and no job is stopped.
    - On one node with slices=off, the policy equals fifo,scan=skip.
    - On one node with jobs of one size, all submitted at once, pack=off and overhead=none, all jobs get equal time, to
      within a slice.
    - With memory level 'single', if no two jobs fit on a GPU, the policy equals pack=off.

    Sources
    -------
    - Xiao et al., Gandiva (OSDI'18): classes of nodes, slices of about a minute, packing only under overload, migration
      to vacated GPUs, and growing into idle GPUs. These come from other people's notes and simulators.
    - Our choices: `depth`, because no trace records host memory; ties go to the lowest node; pairs by M1, which is
      known without trials; one new pair per node and slice; homes of multi-node gangs; a job takes its turn even if
      earlier jobs in the circle do not fit; a migration costs as much as a preemption; nodes are not emptied to undo
      fragmentation.
    """

    plans = _Circles
    card = Card(
        name="gandiva",
        parameters=(
            Parameter("slices", True, "whether nodes are oversubscribed and their jobs take turns"),
            Parameter("quantum", 60.0, "length of a slice [s]", minimum=0.001),
            Parameter(
                "depth",
                4.0,
                "maximum total request of a node's jobs, relative to the node's GPUs",
                minimum=1,
            ),
            Parameter("pack", True, "whether two jobs may share GPUs on an oversubscribed node"),
            Parameter("migrate", True, "whether jobs move to GPUs that become free"),
            Parameter("grow", False, "whether jobs may use the spare GPUs of their node"),
            Parameter("resize", 1.0, "cost of changing the number of GPUs [s]"),
            overhead("gandiva"),
        ),
        assumptions=("D1", "M1", "M2", "M8", "M9", "M4"),
    )
