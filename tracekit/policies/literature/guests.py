"""Policies with guests that never slow their hosts: opportunistic jobs (AntMan), offline jobs (MuxFlow)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.literature.optimal import best_assignment
from tracekit.policies.literature.residents import FULL, Demand, Lines, Residents
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.policies.tenants import NO_QUOTA, quotas, tenants
from tracekit.replay.assumptions.of_jobs import classes, online_load, online_phases, online_services
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


# AntMan: guaranteed jobs run within quotas, and opportunistic jobs on the least loaded GPUs.


class _Lodgings:
    """Starts jobs and sets their speeds; holds the state of one run."""

    def __init__(self, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> None:
        tenant = tenants(jobs)
        # Jobs of one line also share class and tenant, because both decide which jobs may start.
        self.demand = Demand(jobs, cluster, models, tenant.astype(np.int64))
        self.guest: list[int] = classes(models, jobs, seed).tolist()
        self.tenant: list[int] = tenant.tolist()
        if p["quota"] == "held" or (p["quota"] == "stated" and cluster.tenants):
            self.quota, self.quota_ms = quotas(jobs, cluster, models)
        else:
            self.quota, self.quota_ms = np.full((1, len(jobs.tenants) + 1), NO_QUOTA, np.int64), np.zeros(1, np.int64)
        self.cap, self.guests, self.least = round(min(p["cap"], 1000.0) * FULL), p["guests"], round(p["least"] * FULL)

    def begin(self, view: View) -> None:
        """Begin a run."""
        demand = self.demand
        self.books = Residents(demand, view)
        self.hosts, self.lodgers = Lines(demand.type), Lines(demand.type)
        self.held = np.zeros(self.quota.shape[1], np.int64)
        size = len(demand.node)
        self.load, self.host = np.zeros(size, np.int64), np.full(size, -1)
        self.room = np.bincount(demand.node, minlength=len(demand.first)).astype(np.int64)
        self.guests_on = np.zeros(size, np.int64)

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, and the current speed of every job."""
        new, ended = self.books.follow(view)
        for job, gpus in ended.items():
            self._count(job, gpus, -1)
        for job in new:
            (self.lodgers if self.guest[job] else self.hosts).add(job)
        row = max(int(np.searchsorted(self.quota_ms, view.now_ms, side="right")) - 1, 0)
        limit = self.quota[row]
        up = view.node_gpus > 0
        if len(self.hosts):
            self.hosts.start(lambda job: self._host(job, limit, np.where(up, self.room, 0)))
        if len(self.lodgers):
            there = up[self.demand.node]
            self.lodgers.start(lambda job: self._lodge(job, there))
        later = self.quota_ms[self.quota_ms > view.now_ms]
        wake = int(later[0]) if len(later) and len(self.hosts) else -1
        return self.books.plan(self._speed, wake)

    def _host(self, job: int, limit: Ints, room: Ints) -> bool:
        """Start a guaranteed job if its tenant's quota allows it and enough GPUs have no guaranteed job."""
        tenant = self.tenant[job]
        if self.held[tenant] + self.demand.gpus[job] > limit[tenant]:
            return False
        found = self.demand.nodes_for(job, room)
        if found is None:
            return False
        gpus = []
        for node, count in found:
            first = int(self.demand.first[node])
            free = [first + at for at in range(int(self.books.view.node_gpus[node])) if self.host[first + at] < 0]
            gpus += sorted(free, key=lambda gpu: (int(self.load[gpu]), gpu))[:count]
        self._seat(job, sorted(gpus))
        return True

    def _lodge(self, job: int, there: Bools) -> bool:
        """Start an opportunistic job on the GPUs with the least load."""
        demand, books, gpus = self.demand, self.books, self.demand.gpus[job]
        best: tuple[int, list[int]] | None = None
        for own in demand.gpus_of(job):
            if len(own) < gpus:
                continue
            fits = there[own] & (self.load[own] < self.cap) & (self.guests_on[own] < self.guests)
            fits &= books.memory[own] + demand.memory[job] <= FULL
            load = np.where(fits, self.load[own], self.cap)
            chosen = np.array([load.argmin()]) if gpus == 1 else np.argsort(load, kind="stable")[:gpus]
            if load[chosen[-1]] < self.cap:
                total = int(load[chosen].sum())
                if best is None or total < best[0]:
                    best = total, sorted(own[chosen].tolist())
        if best is None:
            return False
        self._seat(job, best[1])
        return True

    def _seat(self, job: int, gpus: list[int]) -> None:
        self.books.put(job, gpus)
        self._count(job, gpus, 1)

    def _count(self, job: int, gpus: list[int], sign: int) -> None:
        self.load[gpus] += sign * self.demand.used[job]
        if self.guest[job]:
            self.guests_on[gpus] += sign
            return
        self.held[self.tenant[job]] += sign * len(gpus)
        self.host[gpus] = job if sign > 0 else -1
        for gpu in gpus:
            self.room[self.demand.node[gpu]] -= sign

    def _speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job; guaranteed jobs are never slowed, opportunistic jobs share the rest of the GPU."""
        if not self.guest[job]:
            return FULL
        host = int(self.host[gpu])
        left = FULL if host < 0 else max(FULL - self.demand.used[host], self.least)
        needed = max(self.demand.used[job] * int(self.guests_on[gpu]), 1)
        return max(min(left * FULL // needed, FULL), 1)


class AntMan(Policy):
    """Guaranteed jobs within quotas; opportunistic jobs share the least loaded GPUs.

    Guaranteed jobs start first, in submission order, if their VC's quota allows it and enough GPUs without guaranteed
    jobs are close together. They take the least loaded GPUs of a node, even if opportunistic jobs run there.
    Opportunistic jobs count against no quota. Each of their GPUs must have a load (the sum of the utilizations there)
    below `cap`, enough memory left and fewer than `guests` opportunistic jobs; the least loaded GPUs come first, on any
    nodes. No job is stopped, and a job that cannot start is skipped. A guaranteed job runs as if alone. Opportunistic
    jobs share the rest of the GPU, at least the share `least`, in equal parts. Utilization and memory are counted in
    whole percent.

    Equal to
    --------
    - Without opportunistic jobs: limits; with quota=off: fifo,scan=skip.
    - With cap=0: no opportunistic job ever starts.

    Sources
    -------
    - Xiao et al., AntMan (OSDI'20), and the scheduler plugin that Alibaba released: an opportunistic pod gets exactly
      one GPU, the one with the lowest utilization below 80 %, if it has memory left.
    - Our choices: a job with several GPUs counts as that many pods, placed at once; load is the sum of mean
      utilizations instead of 30 samples, and memory comes from M2 instead of 16 GiB; guaranteed jobs always find
      memory, because other jobs' memory moves to the host; no class 'auto' and no promotion, which are not implemented
      in the plugin either.
    """

    card = Card(
        name="antman",
        parameters=(
            Parameter("cap", 0.8, "load at or above which a GPU accepts no opportunistic job [0..1; inf]"),
            Parameter("guests", 1, "maximum number of opportunistic jobs on a GPU", minimum=1, maximum=8),
            Parameter(
                "least", 0.05, "minimum share of a GPU for opportunistic jobs [0..1]", minimum=0.000001, maximum=1.0
            ),
            Parameter(
                "quota",
                "stated",
                "quotas for guaranteed jobs: the cluster's (stated); the cluster's, or those of D9 if it has none "
                "(held); or none (off)",
                ("stated", "held", "off"),
            ),
            Parameter("gap", 0.0, "minimum time between two decisions [s]"),
        ),
        assumptions=("D1", "D9", "M1", "M2", "M4", "M10"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """True: opportunistic jobs use the nodes of all VCs."""
        return True

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return the planner; its plans list the GPUs of every job.

        Raises
        ------
        UsageError
            quota=held, but there are neither quotas nor recorded starts.
        """
        p = self.parameters
        seats = _Lodgings(p, jobs, cluster, models, seed)
        return Planner(
            seats.plan,
            seats.begin,
            gap_ms=round(p["gap"] * 1000),
            scope=0,
            names_nodes=True,
            share=1 + p["guests"],
        )


# After MuxFlow, without its inner rule: offline jobs are matched to GPUs of online services, which are never slowed.


class _Pairs:
    """Starts jobs and sets their speeds; holds the state of one run."""

    def __init__(self, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> None:
        online = online_services(models, jobs, seed)
        self.online: list[bool] = online.tolist()
        self.phase = online_phases(jobs, seed)
        self.demand = Demand(jobs, cluster, models, online.astype(np.int64))
        self.used = np.maximum(np.array(self.demand.used) / FULL, 0.01)
        self.round_ms, self.evict_ms = max(round(p["round"] * 1000), 1), round(p["evict"] * 1000)
        self.margin: float = p["margin"]
        self.stop: float = p["stop"]
        self.hysteresis: float = p["hysteresis"]
        self.candidates: int = p["candidates"]

    def begin(self, view: View) -> None:
        """Begin a run."""
        self.books = Residents(self.demand, view)
        self.services, self.offline = Lines(self.demand.type), Lines(self.demand.type)
        self.waiting: dict[int, None] = {}
        """Waiting one-GPU offline jobs, in submission order."""
        self.host: dict[int, int] = {}
        """The online job on each GPU."""
        self.paused: dict[int, int] = {}
        """Time since which each paused offline job has been paused [ms]."""
        self.matched_ms = -1

    def plan(self, view: View) -> Plan:
        """Return the plan: jobs that start, their GPUs, and the current speed of every job."""
        new, ended = self.books.follow(view)
        for job, gpus in ended.items():
            self.paused.pop(job, None)
            if self.host.get(gpus[0]) == job:
                del self.host[gpus[0]]
        for job in new:
            (self.services if self.online[job] else self.offline).add(job)
            if not self.online[job] and self.demand.gpus[job] == 1:
                self.waiting[job] = None
        if len(self.services):
            self.services.start(self._serve)
        if len(self.offline):
            self.offline.start(self._alone)
        if self.matched_ms < 0 or view.now_ms >= self.matched_ms + self.round_ms:
            self.matched_ms = view.now_ms // self.round_ms * self.round_ms
            self._match(view)
        shared = self.books.count.max() > 1 and any(len(self.books.on[gpu]) > 1 for gpu in self.host)
        wake = self.matched_ms + self.round_ms if shared or (self.waiting and self.host) else -1
        return self.books.plan(self._speed, wake)

    def _seat(self, job: int, gpus: list[int]) -> None:
        self.books.put(job, gpus)
        self.waiting.pop(job, None)
        if self.online[job]:
            self.host[gpus[0]] = job

    def _serve(self, job: int) -> bool:
        """Start an online job on an idle GPU, else on a GPU used only by a one-GPU offline job."""
        found = self.books.idle_gpus(job)
        if found is None:
            for own in self.demand.gpus_of(job):
                for gpu in own[self.books.count[own] == 1].tolist():
                    if self._joins(job, gpu) and (found is None or self._used(gpu) < self._used(found[0])):
                        found = [gpu]
        if found is None:
            return False
        self._seat(job, found)
        return True

    def _joins(self, job: int, gpu: int) -> bool:
        other, books = self.books.on[gpu][0], self.books
        fits = books.memory[gpu] + self.demand.memory[job] <= FULL and books.view.node_gpus[self.demand.node[gpu]] > 0
        return bool(fits and not self.online[other] and self.demand.gpus[other] == 1)

    def _used(self, gpu: int) -> int:
        return self.demand.used[self.books.on[gpu][0]]

    def _alone(self, job: int) -> bool:
        """Start an offline job on idle GPUs; return True for a job that was already matched."""
        if self.demand.gpus[job] == 1 and job not in self.waiting:
            return True
        found = self.books.idle_gpus(job)
        if found is None:
            return False
        self._seat(job, found)
        return True

    def _load(self, gpus: list[int]) -> Floats:
        """Return the current load of the online jobs on these GPUs [0..1]."""
        phases = self.phase[[self.host[gpu] for gpu in gpus]]
        return online_load(self.demand.models, self.books.view.now_ms, phases)

    def _match(self, view: View) -> None:
        """Match offline jobs to GPUs of online jobs, and update the existing pairs."""
        hosts = sorted(self.host)
        if not hosts:
            return
        load = dict(zip(hosts, self._load(hosts).tolist(), strict=True))
        pairs = self._pairs(view, hosts, load)
        self.books.touch(pairs)
        there = view.node_gpus > 0
        free = [gpu for gpu in hosts if gpu not in pairs and load[gpu] < self.stop and there[self.demand.node[gpu]]]
        free = sorted(free, key=lambda gpu: (load[gpu], gpu))[: 2 * self.candidates]
        gain = {gpu: self._gain(job, load[gpu]) for gpu, job in pairs.items()}
        slow = [gpu for gpu in sorted(gain, key=lambda gpu: (gain[gpu], gpu)) if gain[gpu] < 1][: self.candidates]
        held = [pairs[gpu] for gpu in slow]
        jobs = [*held, *islice(self.waiting, self.candidates)]
        if jobs and free:
            gpus = [*slow, *free]
            weight = np.array([[self._weight(job, gpu, load[gpu], pairs) for gpu in gpus] for job in jobs])
            self._move(held, [(jobs[row], gpus[column]) for row, column in best_assignment(weight)])

    def _pairs(self, view: View, hosts: list[int], load: dict[int, float]) -> dict[int, int]:
        """Return the offline job on each shared GPU; first stop jobs that have paused too long, so they wait again."""
        on, host = self.books.on, self.host
        pairs = {gpu: next(job for job in on[gpu] if job != host[gpu]) for gpu in hosts if len(on[gpu]) > 1}
        for gpu, job in list(pairs.items()):
            if load[gpu] < self.stop:
                self.paused.pop(job, None)
            elif view.now_ms - self.paused.setdefault(job, view.now_ms) >= self.evict_ms:
                del pairs[gpu]
                self._wait_again(job)
        return pairs

    def _move(self, held: list[int], chosen: list[tuple[int, int]]) -> None:
        """Move jobs to their matched GPUs; moving jobs leave first, so every GPU is free when needed."""
        place = dict(chosen)
        for job in sorted(held):
            if self.books.of[job] != [place.get(job, -1)]:
                self._wait_again(job)
        for job, gpu in chosen:
            if job not in self.books.of:
                self._seat(job, [gpu])

    def _weight(self, job: int, gpu: int, load: float, pairs: dict[int, int]) -> float:
        """Return the value of a pair; 0 if it is impossible."""
        if pairs.get(gpu) == job:
            return self._gain(job, load) * (load < self.stop) + self.hysteresis
        own = self.demand.memory[job]
        host = self.demand.memory[self.host[gpu]]
        if own + host > FULL or not any((part == gpu).any() for part in self.demand.gpus_of(job)):
            return 0.0
        return self._gain(job, load) if load < self.stop else 0.0

    def _gain(self, job: int, load: float) -> float:
        return min(1.0, (1 - load) * (1 - self.margin) / float(self.used[job]))

    def _wait_again(self, job: int) -> None:
        self.books.stop(job)
        self.paused.pop(job, None)
        self.waiting = dict.fromkeys(sorted([*self.waiting, job]))
        self.offline.add(job)

    def _speed(self, job: int, gpu: int) -> int:
        if self.online[job] or gpu not in self.host:
            return FULL
        load = float(self._load([gpu])[0])
        return max(round(self._gain(job, load) * FULL), 1) if load < self.stop else 1


class MuxFlowLike(Policy):
    """Offline jobs share the GPUs of online services, which they never slow.

    Online jobs start first, in submission order, on an idle GPU, on the node with the fewest, or on a GPU used only by
    a one-GPU offline job. Offline jobs start on idle GPUs close together, in submission order. A job that cannot start
    is skipped, and so are all identical jobs. In rounds, one-GPU offline jobs that wait or are slowed are matched to
    GPUs of online jobs with a load below stop and enough memory for both, one offline job per GPU. The matching
    maximizes the sum of their speeds, plus hysteresis for each existing pair. The speed is min(1, (1 - load) * (1 -
    margin) / u), recomputed in each round. At a load of stop or more the offline job pauses, and after a pause of evict
    seconds it waits again. Online jobs run as if alone.

    Equal to
    --------
    - Without online jobs, or with only online jobs: fifo,scan=skip.
    - With stop=0: no offline job ever joins a GPU on which an online job already runs.

    Sources
    -------
    - Zhao et al., MuxFlow (arXiv 2303.13803), abstract: offline jobs are matched to GPUs of online jobs, with a share
      of the GPU that follows the load, and online jobs are protected.
    - Our choices, because we had no access to the inner rule: all thresholds, the speed instead of a predictor, idle
      GPUs for any job, candidates; loads come from M33, because no trace records them.
    """

    card = Card(
        name="muxflow-like",
        parameters=(
            Parameter("round", 300.0, "length of a round [s]", minimum=0.001),
            Parameter("margin", 0.1, "share of the free capacity that no offline job gets [0..1]", maximum=0.99),
            Parameter("stop", 0.8, "load at or above which offline jobs pause [0..1]", maximum=2.0),
            Parameter("evict", 600.0, "time after which a paused job waits again [s]"),
            Parameter("hysteresis", 0.1, "by how much a new pair's speed must exceed an existing pair's [1]"),
            Parameter("candidates", 64, "maximum number of waiting jobs, and of slowed jobs, in a matching", minimum=1),
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M9", "M10", "M33"),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return the planner; its plans list the GPUs of every job."""
        p = self.parameters
        pairs = _Pairs(p, jobs, cluster, models, seed)
        return Planner(
            pairs.plan,
            pairs.begin,
            scope=0,
            names_nodes=True,
            share=2,
            overhead_ms=overheads(models, p["overhead"], jobs.devices),
        )
