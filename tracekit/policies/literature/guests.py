"""Policies with guests that never slow their hosts: opportunistic jobs (AntMan) and offline jobs (MuxFlow)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.optimal import best_assignment
from tracekit.policies.literature.residents import FULL, Lines, Residents
from tracekit.policies.parameters import OVERHEAD
from tracekit.policies.plans import Planned
from tracekit.policies.tenants import NO_QUOTA, quotas, tenants
from tracekit.replay.assumptions.of_jobs import classes, online_load, online_phases, online_services

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import View


class _Lodgings(Residents):
    """Starts guaranteed jobs within quotas, and opportunistic jobs where there is room."""

    def set_up(self) -> None:
        """Determine each job's class and quota."""
        super().set_up()
        p, jobs = self.p, self.jobs
        self.guest: list[int] = classes(self.models, jobs, self.seed).tolist()
        self.tenant: list[int] = tenants(jobs).tolist()
        if p["quota"] == "held" or (p["quota"] == "stated" and self.cluster.tenants):
            self.quota, self.quota_ms = quotas(jobs, self.cluster, self.models)
        else:
            self.quota, self.quota_ms = np.full((1, len(jobs.tenants) + 1), NO_QUOTA, np.int64), np.zeros(1, np.int64)
        self.cap, self.guests, self.least = round(min(p["cap"], 1000.0) * FULL), p["guests"], round(p["least"] * FULL)
        self.settings["share"] = 1 + self.guests

    def extra(self) -> Ints:
        """Return the tenants, as jobs in one line have the same class and tenant: both decide which jobs may start."""
        return tenants(self.jobs).astype(np.int64)

    def begin(self, view: View) -> None:
        super().begin(view)
        demand = self.demand
        self.hosts = Lines(demand.type)
        self.held = np.zeros(self.quota.shape[1], np.int64)
        size = len(demand.node)
        self.load, self.host = np.zeros(size, np.int64), np.full(size, -1)
        self.room = np.bincount(demand.node, minlength=len(demand.first)).astype(np.int64)
        self.guests_on = np.zeros(size, np.int64)

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job on these GPUs has ended."""
        self._count(job, gpus, -1)

    def add(self, job: int) -> None:
        """Make a job wait with the jobs of its class."""
        (self.waiting if self.guest[job] else self.hosts).add(job)

    def start(self, view: View) -> None:
        """Start guaranteed jobs, then opportunistic jobs."""
        limit = self.quota[max(int(np.searchsorted(self.quota_ms, view.now_ms, side="right")) - 1, 0)]
        up = view.node_gpus > 0
        there = up[self.demand.node]
        self.hosts.start(lambda job: self._host(job, limit, np.where(up, self.room, 0)))
        self.waiting.start(lambda job: self._lodge(job, there))

    def wake(self, now_ms: int) -> int:
        """Return the time of the next quota change, if guaranteed jobs wait."""
        later = self.quota_ms[self.quota_ms > now_ms]
        return int(later[0]) if len(later) and len(self.hosts) else -1

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
            free = [first + at for at in range(int(self.view.node_gpus[node])) if self.host[first + at] < 0]
            gpus += sorted(free, key=lambda gpu: (int(self.load[gpu]), gpu))[:count]
        self._seat(job, sorted(gpus))
        return True

    def _lodge(self, job: int, there: Bools) -> bool:
        """Start an opportunistic job on the GPUs with the least load."""
        demand, gpus = self.demand, self.demand.gpus[job]
        best: tuple[int, list[int]] | None = None
        for own in demand.gpus_of(job):
            if len(own) < gpus:
                continue
            fits = there[own] & (self.load[own] < self.cap) & (self.guests_on[own] < self.guests)
            fits &= self.memory[own] + demand.memory[job] <= FULL
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
        self.put(job, gpus)
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

    def speed(self, job: int, gpu: int) -> int:
        """Return a job's speed. Guaranteed jobs are never slowed, and opportunistic jobs share the rest of the GPU."""
        if not self.guest[job]:
            return FULL
        host = int(self.host[gpu])
        left = FULL if host < 0 else max(FULL - self.demand.used[host], self.least)
        needed = max(self.demand.used[job] * int(self.guests_on[gpu]), 1)
        return max(min(left * FULL // needed, FULL), 1)


class AntMan(Planned):
    """Guaranteed jobs run within quotas, and opportunistic jobs share the least loaded GPUs.

    Guaranteed jobs start first, in submission order, if their VC's quota allows it and enough GPUs without guaranteed
    jobs are close together. They take the least loaded GPUs of a node, even if opportunistic jobs run there.
    Opportunistic jobs count against no quota. Each of their GPUs must have a load (the sum of the utilizations there)
    below `cap`, enough memory left, and fewer than `guests` opportunistic jobs. The least loaded GPUs come first, on
    any nodes. No job is stopped, and a job that cannot start is skipped. A guaranteed job runs as if it were alone.
    Opportunistic jobs share the rest of the GPU equally, at least the share `least`. Utilization and memory are counted
    in whole percent.

    Equal to
    --------
    - Without opportunistic jobs, the policy equals limits. With quota=off, it equals fifo,scan=skip.
    - With cap=0, no opportunistic job ever starts.

    Sources
    -------
    - Xiao et al., AntMan (OSDI'20), and the scheduler plugin that Alibaba released: an opportunistic pod gets exactly
      one GPU: the GPU with the lowest utilization below 80 %, if it has memory left.
    - Our choices: a job with several GPUs counts as that many pods, placed at once; load is the sum of mean
      utilizations instead of 30 samples, and memory comes from M2 instead of 16 GiB; guaranteed jobs always find
      memory, because other jobs' memory moves to the host; no class 'auto' and no promotion, neither of which the
      plugin implements.
    """

    plans = _Lodgings
    card = Card(
        name="antman",
        parameters=(
            Parameter("cap", 0.8, "load at or above which a GPU accepts no opportunistic job [0..1 or inf]"),
            Parameter("guests", 1, "maximum number of opportunistic jobs on a GPU", minimum=1, maximum=8),
            Parameter(
                "least", 0.05, "minimum share of a GPU for opportunistic jobs [0..1]", minimum=0.000001, maximum=1.0
            ),
            Parameter(
                "quota",
                "stated",
                "quotas for guaranteed jobs: the cluster's (stated), the cluster's or else those of D9 (held), or none "
                "(off)",
                ("stated", "held", "off"),
            ),
            Parameter("gap", 0.0, "minimum time between two decisions [s]"),
        ),
        assumptions=("D1", "D9", "M1", "M2", "M4", "M10"),
        quotas=True,
    )

    @property
    def lends(self) -> bool:
        """True, because opportunistic jobs use the nodes of all VCs."""
        return True


class _Pairs(Residents):
    """Starts jobs, and in rounds, matches offline jobs to online jobs."""

    def set_up(self) -> None:
        """Determine the online jobs."""
        super().set_up()
        p = self.p
        self.online: list[bool] = online_services(self.models, self.jobs, self.seed).tolist()
        self.phase = online_phases(self.jobs, self.seed)
        self.used = np.maximum(np.array(self.demand.used) / FULL, 0.01)
        self.round_ms, self.evict_ms = max(round(p["round"] * 1000), 1), round(p["evict"] * 1000)
        self.most_load: float = p["stop"]
        self.margin: float = p["margin"]
        self.hysteresis: float = p["hysteresis"]
        self.candidates: int = p["candidates"]

    def extra(self) -> Ints:
        """Return whether each job is online."""
        return online_services(self.models, self.jobs, self.seed).astype(np.int64)

    def begin(self, view: View) -> None:
        super().begin(view)
        self.services = Lines(self.demand.type)
        self.singles: dict[int, None] = {}
        """Waiting one-GPU offline jobs, in submission order."""
        self.host: dict[int, int] = {}
        """The online job on each GPU."""
        self.paused: dict[int, int] = {}
        """Time at which each paused offline job was paused [ms]."""
        self.matched_ms = -1

    def left(self, job: int, gpus: list[int]) -> None:
        """Record that a job on these GPUs has ended."""
        self.paused.pop(job, None)
        if self.host.get(gpus[0]) == job:
            del self.host[gpus[0]]

    def add(self, job: int) -> None:
        """Make a job wait with the jobs of its class."""
        (self.services if self.online[job] else self.waiting).add(job)
        if not self.online[job] and self.demand.gpus[job] == 1:
            self.singles[job] = None

    def start(self, view: View) -> None:
        """Start online jobs, then offline jobs. At the start of a round, match offline jobs to online jobs."""
        self.services.start(self._serve)
        self.waiting.start(self._alone)
        if self.matched_ms < 0 or view.now_ms >= self.matched_ms + self.round_ms:
            self.matched_ms = view.now_ms // self.round_ms * self.round_ms
            self._match(view)

    def wake(self, now_ms: int) -> int:
        """Return the start of the next round if jobs can be matched then."""
        shared = self.count.max() > 1 and any(len(self.on[gpu]) > 1 for gpu in self.host)
        return self.matched_ms + self.round_ms if shared or (self.singles and self.host) else -1

    def _seat(self, job: int, gpus: list[int]) -> None:
        self.put(job, gpus)
        self.singles.pop(job, None)
        if self.online[job]:
            self.host[gpus[0]] = job

    def _serve(self, job: int) -> bool:
        """Start an online job on an idle GPU, or else on a GPU that only a one-GPU offline job uses."""
        found = self.idle_gpus(job)
        if found is None:
            for own in self.demand.gpus_of(job):
                for gpu in own[self.count[own] == 1].tolist():
                    if self._joins(job, gpu) and (found is None or self._used(gpu) < self._used(found[0])):
                        found = [gpu]
        if found is None:
            return False
        self._seat(job, found)
        return True

    def _joins(self, job: int, gpu: int) -> bool:
        other = self.on[gpu][0]
        fits = self.memory[gpu] + self.demand.memory[job] <= FULL and self.view.node_gpus[self.demand.node[gpu]] > 0
        return bool(fits and not self.online[other] and self.demand.gpus[other] == 1)

    def _used(self, gpu: int) -> int:
        return self.demand.used[self.on[gpu][0]]

    def _alone(self, job: int) -> bool:
        """Start an offline job on idle GPUs. Return True for a job that was already matched."""
        if self.demand.gpus[job] == 1 and job not in self.singles:
            return True
        found = self.idle_gpus(job)
        if found is None:
            return False
        self._seat(job, found)
        return True

    def _load(self, gpus: list[int]) -> Floats:
        """Return the current load that online jobs put on these GPUs [0..1]."""
        phases = self.phase[[self.host[gpu] for gpu in gpus]]
        return online_load(self.models, self.view.now_ms, phases)

    def _match(self, view: View) -> None:
        """Match offline jobs to GPUs of online jobs, and update the existing pairs."""
        hosts = sorted(self.host)
        if not hosts:
            return
        load = dict(zip(hosts, self._load(hosts).tolist(), strict=True))
        pairs = self._pairs(view, hosts, load)
        self.touch(pairs)
        there = view.node_gpus > 0
        free = [
            gpu for gpu in hosts if gpu not in pairs and load[gpu] < self.most_load and there[self.demand.node[gpu]]
        ]
        free = sorted(free, key=lambda gpu: (load[gpu], gpu))[: 2 * self.candidates]
        gain = {gpu: self._gain(job, load[gpu]) for gpu, job in pairs.items()}
        slow = [gpu for gpu in sorted(gain, key=lambda gpu: (gain[gpu], gpu)) if gain[gpu] < 1][: self.candidates]
        held = [pairs[gpu] for gpu in slow]
        jobs = [*held, *islice(self.singles, self.candidates)]
        if jobs and free:
            gpus = [*slow, *free]
            weight = np.array([[self._weight(job, gpu, load[gpu], pairs) for gpu in gpus] for job in jobs])
            self._move(held, [(jobs[row], gpus[column]) for row, column in best_assignment(weight)])

    def _pairs(self, view: View, hosts: list[int], load: dict[int, float]) -> dict[int, int]:
        """Return the offline job on each shared GPU. Jobs that paused too long wait again."""
        on, host = self.on, self.host
        pairs = {gpu: next(job for job in on[gpu] if job != host[gpu]) for gpu in hosts if len(on[gpu]) > 1}
        for gpu, job in list(pairs.items()):
            if load[gpu] < self.most_load:
                self.paused.pop(job, None)
            elif view.now_ms - self.paused.setdefault(job, view.now_ms) >= self.evict_ms:
                del pairs[gpu]
                self._wait_again(job)
        return pairs

    def _move(self, held: list[int], chosen: list[tuple[int, int]]) -> None:
        """Move jobs to their matched GPUs. All jobs leave first, so every GPU is free in time."""
        place = dict(chosen)
        for job in sorted(held):
            if self.of[job] != [place.get(job, -1)]:
                self._wait_again(job)
        for job, gpu in chosen:
            if job not in self.of:
                self._seat(job, [gpu])

    def _weight(self, job: int, gpu: int, load: float, pairs: dict[int, int]) -> float:
        """Return the value of a pair, or 0 if it is impossible."""
        if pairs.get(gpu) == job:
            return self._gain(job, load) * (load < self.most_load) + self.hysteresis
        own = self.demand.memory[job]
        host = self.demand.memory[self.host[gpu]]
        if own + host > FULL or not any((part == gpu).any() for part in self.demand.gpus_of(job)):
            return 0.0
        return self._gain(job, load) if load < self.most_load else 0.0

    def _gain(self, job: int, load: float) -> float:
        return min(1.0, (1 - load) * (1 - self.margin) / float(self.used[job]))

    def _wait_again(self, job: int) -> None:
        self.stop(job)
        self.paused.pop(job, None)
        self.singles = dict.fromkeys(sorted([*self.singles, job]))
        self.waiting.add(job)

    def speed(self, job: int, gpu: int) -> int:
        if self.online[job] or gpu not in self.host:
            return FULL
        load = float(self._load([gpu])[0])
        return max(round(self._gain(job, load) * FULL), 1) if load < self.most_load else 1


class MuxFlowLike(Planned):
    """Offline jobs share the GPUs of online services, which they never slow.

    Online jobs start first, in submission order, on an idle GPU of the node with the fewest idle GPUs, or else on a GPU
    that only a one-GPU offline job uses. Offline jobs start on idle GPUs close together, in submission order. A job
    that cannot start is skipped, and so are all identical jobs. In rounds, one-GPU offline jobs that wait or are slowed
    are matched to GPUs of online jobs with a load below `stop` and enough memory for both, one offline job per GPU. The
    matching maximizes the sum of their speeds, plus `hysteresis` for each existing pair. The speed is min(1, (1 - load)
    * (1 - `margin`) / u), recomputed in each round. At a load of `stop` or more, the offline job pauses, and after a
    pause of `evict` seconds it waits again. Online jobs run as if they were alone.

    Equal to
    --------
    - Without online jobs, or with only online jobs, the policy equals fifo,scan=skip.
    - With stop=0, no offline job ever joins a GPU on which an online job already runs.

    Sources
    -------
    - Zhao et al., MuxFlow (arXiv 2303.13803), abstract: offline jobs are matched to GPUs of online jobs and get a share
      of the GPU that follows the load, and online jobs are protected.
    - Our choices, because we had no access to the inner rule: all thresholds, the speed instead of a predictor, idle
      GPUs for any job, and `candidates`. Loads come from M33, because no trace records them.
    """

    plans = _Pairs
    card = Card(
        name="muxflow-like",
        parameters=(
            Parameter("round", 300.0, "length of a round [s]", minimum=0.001),
            Parameter("margin", 0.1, "share of the free capacity that no offline job gets [0..1]", maximum=0.99),
            Parameter("stop", 0.8, "load at or above which offline jobs pause [0..1]", maximum=2.0),
            Parameter("evict", 600.0, "time after which a paused job waits again [s]"),
            Parameter("hysteresis", 0.1, "minimum excess of a new pair's speed over an existing pair's [1]"),
            Parameter("candidates", 64, "maximum number of waiting jobs, and of slowed jobs, in a matching", minimum=1),
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M9", "M10", "M33"),
    )
