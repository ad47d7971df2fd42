"""MuxFlow without its inner rule: offline jobs matched to GPUs of online services, which are never slowed."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.matching import best_assignment
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.policies.residents import FULL, Demand, Lines, Residents
from tracekit.replay.assumptions.of_jobs import online_load, online_phases, online_services
from tracekit.replay.mechanisms import Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, View

__all__ = ["MuxFlowLike"]


class _Pairs:
    """Plans of one replay; of one run at a time."""

    def __init__(
        self,
        demand: Demand,
        online: NDArray[np.bool_],
        phase: NDArray[np.float64],
        *,
        round_ms: int,
        margin: float,
        stop: float,
        evict_ms: int,
        hysteresis: float,
        candidates: int,
    ) -> None:
        self.demand, self.online, self.phase = demand, online.tolist(), phase
        self.used = np.maximum(np.array(demand.used) / FULL, 0.01)
        self.round_ms, self.margin, self.stop, self.evict_ms = round_ms, margin, stop, evict_ms
        self.hysteresis, self.candidates = hysteresis, candidates
        self.view: View | None = None

    def _begin(self, view: View) -> None:
        self.view, self.books = view, Residents(self.demand, view)
        self.services, self.offline = Lines(self.demand.type), Lines(self.demand.type)
        self.waiting: dict[int, None] = {}
        """Offline jobs of one GPU that wait, by submission."""
        self.host: dict[int, int] = {}
        """The online job on each GPU."""
        self.paused: dict[int, int] = {}
        """Since when offline jobs have stood still [ms]."""
        self.where: dict[int, list[int]] = {}
        self.matched_ms = -1

    def plan(self, view: View) -> Plan:
        """Return which jobs start where, and the current speed of every job."""
        if self.view is not view:
            self._begin(view)
        new, ended = self.books.follow(view)
        for job in ended:
            self._left(job)
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

    def _left(self, job: int) -> None:
        self.paused.pop(job, None)
        for gpu in self.where.pop(job):
            if self.host.get(gpu) == job:
                del self.host[gpu]

    def _seat(self, job: int, gpus: list[int]) -> None:
        self.books.put(job, gpus)
        self.where[job] = gpus
        self.waiting.pop(job, None)
        if self.online[job]:
            self.host[gpus[0]] = job

    def _serve(self, job: int) -> bool:
        """Start an online job on an idle GPU, else on one that an offline job of one GPU has alone."""
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
        """Start an offline job on idle GPUs; a job matched since its arrival no longer waits."""
        if self.demand.gpus[job] == 1 and job not in self.waiting:
            return True
        found = self.books.idle_gpus(job)
        if found is None:
            return False
        self._seat(job, found)
        return True

    def _load(self, gpus: list[int]) -> NDArray[np.float64]:
        """Return the load of the online jobs on some GPUs now [0..1]."""
        phases = self.phase[[self.host[gpu] for gpu in gpus]]
        return online_load(self.demand.models, self.books.view.now_ms, phases)

    def _match(self, view: View) -> None:
        """Match offline jobs with GPUs of online ones, and update the existing pairs."""
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
        """Return the offline job on each shared GPU, after jobs that paused too long wait again."""
        pairs = {gpu: self._guest(gpu) for gpu in hosts if len(self.books.on[gpu]) > 1}
        for gpu, job in list(pairs.items()):
            if load[gpu] < self.stop:
                self.paused.pop(job, None)
            elif view.now_ms - self.paused.setdefault(job, view.now_ms) >= self.evict_ms:
                del pairs[gpu]
                self._wait_again(job)
        return pairs

    def _move(self, held: list[int], chosen: list[tuple[int, int]]) -> None:
        """Put jobs where they are matched; moving jobs leave first, so no job finds a GPU taken."""
        place = dict(chosen)
        for job in sorted(held):
            if self.where[job] != [place.get(job, -1)]:
                self._wait_again(job)
        for job, gpu in chosen:
            if job not in self.where:
                self._seat(job, [gpu])

    def _weight(self, job: int, gpu: int, load: float, pairs: dict[int, int]) -> float:
        """Return the value of a pair, 0 if it is impossible."""
        if pairs.get(gpu) == job:
            return self._gain(job, load) * (load < self.stop) + self.hysteresis
        own = self.demand.memory[job]
        host = self.demand.memory[self.host[gpu]]
        if own + host > FULL or not any((part == gpu).any() for part in self.demand.gpus_of(job)):
            return 0.0
        return self._gain(job, load) if load < self.stop else 0.0

    def _gain(self, job: int, load: float) -> float:
        return min(1.0, (1 - load) * (1 - self.margin) / float(self.used[job]))

    def _guest(self, gpu: int) -> int:
        return next(job for job in self.books.on[gpu] if job != self.host[gpu])

    def _wait_again(self, job: int) -> None:
        self.books.stop(job)
        del self.where[job]
        self.paused.pop(job, None)
        self.waiting = dict.fromkeys(sorted([*self.waiting, job]))
        self.offline.add(job)

    def _speed(self, job: int, gpu: int) -> int:
        if self.online[job] or gpu not in self.host:
            return FULL
        load = float(self._load([gpu])[0])
        return max(round(self._gain(job, load) * FULL), 1) if load < self.stop else 1


class MuxFlowLike(Policy):
    """Offline jobs next to online services."""

    card: ClassVar[Card] = Card(
        name="muxflow-like",
        title="offline jobs matched to the GPUs of online services, which they never slow",
        rule=(
            "Online jobs start first, by submission, on an idle GPU, on the node with the fewest, or on a GPU "
            "that a one-GPU offline job has to itself. Offline jobs start on idle GPUs in one place, by "
            "submission. A job that cannot start is skipped, and so are all identical jobs. In rounds, one-GPU "
            "offline jobs that wait or are slowed are matched to GPUs of online jobs with a load below stop and "
            "enough memory for both, one offline job per GPU. The matching maximizes the sum of their speeds; an "
            "existing pair counts hysteresis more. The speed is min(1, (1 - load) * (1 - margin) / u), computed "
            "again in each round. At a load of stop or more the offline job pauses, and after evict seconds of "
            "pause it waits again. Online jobs run as if alone."
        ),
        parameters=(
            Parameter("round", 300.0, "length of a round [s]", minimum=0.001),
            Parameter("margin", 0.1, "share of the free capacity that no offline job gets [0..1]", maximum=0.99),
            Parameter("stop", 0.8, "load from which offline jobs pause [0..1]", maximum=2.0),
            Parameter("evict", 600.0, "time after which a paused job waits again [s]"),
            Parameter("hysteresis", 0.1, "by how much the speed of another pair must be larger [1]"),
            Parameter(
                "candidates", 64, "most waiting jobs, and most slowed jobs, that a matching considers", minimum=1
            ),
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M9", "M10", "M33"),
        equal_to=(
            "Without online jobs, or with only online jobs: fifo,scan=skip.",
            "With stop=0: no offline job ever joins a GPU on which an online job already runs.",
        ),
        sources=(
            (
                "Zhao et al., MuxFlow (arXiv 2303.13803), abstract: offline jobs are matched to GPUs of online "
                "ones, with a share of the GPU that follows the load, and online ones are protected."
            ),
            (
                "Own choices, because we had no access to the inner rule: all thresholds, the speed instead of a "
                "predictor, idle GPUs for any job, candidates; loads are those of M33, because no trace records "
                "them."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        online = online_services(models, jobs, seed)
        pairs = _Pairs(
            Demand(jobs, cluster, models, online.astype(np.int64)),
            online,
            online_phases(jobs, seed),
            round_ms=max(round(p["round"] * 1000), 1),
            margin=p["margin"],
            stop=p["stop"],
            evict_ms=round(p["evict"] * 1000),
            hysteresis=p["hysteresis"],
            candidates=p["candidates"],
        )
        return Planner(
            pairs.plan, scope=0, names_nodes=True, share=2, overhead_ms=overheads(models, p["overhead"], jobs)
        )
