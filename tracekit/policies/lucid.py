"""Lucid: small jobs are profiled first, then jobs are packed in pairs that hardly hurt each other."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import NOISE, OVERHEAD, believed, overheads
from tracekit.policies.residents import FULL, Demand, Lines, Residents
from tracekit.replay.assumptions.of_jobs import sharing_class
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Lucid"]

_CHECK_MS = 100_000
"""Time between two looks at the arrivals."""
_WINDOW_MS = 600_000
"""Arrivals to consider."""
_WIDEST = 8
"""GPUs of the largest jobs that are packed."""


class _Packing:
    """Plans of one replay; of one run at a time."""

    def __init__(
        self, jobs: Jobs, cluster: Cluster, demand: Demand, estimate: list[int], score: list[int], p: dict[str, Any]
    ) -> None:
        self.demand, self.score, self.p = demand, score, p
        self.value = [e * g for e, g in zip(estimate, demand.gpus, strict=True)]
        self.submit: list[int] = jobs.submit_ms.tolist()
        self.profile_ms = round(p["time"] * 1000)
        self.nodes = _profiler(cluster, p["profile"])
        per_node = int(cluster.gpus.max(initial=1))
        # As in the released code: on two nodes of 8 GPUs and a factor of 4, jobs of up to 8 GPUs.
        self.small = min(p["profile"] * p["factor"], per_node) if self.nodes.any() else 0
        self.view: View | None = None

    def _begin(self, view: View) -> None:
        demand = self.demand
        self.view, self.books = view, Residents(demand, view)
        # In the profiler the smallest jobs come first, then the earliest.
        self.fresh = Lines([g << 32 | t for g, t in zip(demand.gpus, demand.type, strict=True)], demand.gpus)
        self.main = Lines(demand.type, self.value)
        self.profiled: dict[int, int] = {}
        """Until when each job is in the profiler [ms]."""
        self.partner: dict[int, int] = {}
        self.alone: dict[tuple[int, int], dict[int, None]] = {}
        """Jobs that run alone, in the order of their starts, by kind of place and GPUs."""
        self.listed: dict[int, tuple[int, int]] = {}
        """The key under which each is filed."""
        self.fits: dict[int, bool] = {}
        """Whether jobs of a kind fit on the profiler's present nodes."""
        self.there: NDArray[np.int64] | None = None
        self.packing, self.checked_ms = False, -1

    def plan(self, view: View) -> Plan:
        """Return which jobs start, and the speed of pairs."""
        if self.view is not view:
            self._begin(view)
        new, ended = self.books.follow(view)
        for job in ended:
            self._left(job)
        for job in [job for job, until in self.profiled.items() if until <= view.now_ms]:
            self.books.stop(job)
            del self.profiled[job]
            self.main.add(job)
        for job in new:
            (self.fresh if self._profiles(job) else self.main).add(job)
        if len(self.fresh):
            self.fresh.start(self._profile, skip=False)
        self._look(view)
        if len(self.main):
            self.main.start(self._start, skip=self.packing)
        wakes = list(self.profiled.values())
        if self.p["pack"] == "auto" and len(self.main):
            wakes.append(self.checked_ms + _CHECK_MS)
        return self.books.plan(self._speed, min(wakes, default=-1))

    def _look(self, view: View) -> None:
        """Decide whether jobs are packed."""
        if self.p["pack"] != "auto":
            self.packing = self.p["pack"] == "on"
        elif self.checked_ms < 0 or view.now_ms >= self.checked_ms + _CHECK_MS:
            self.checked_ms = view.now_ms
            since = bisect_left(self.submit, view.now_ms - _WINDOW_MS)
            self.packing = view.submitted - since > self.p["calm"]

    def _profiles(self, job: int) -> bool:
        """Return whether a job is short of GPUs enough for the profiler, and may use its nodes."""
        if self.demand.gpus[job] > self.small:
            return False
        there, kind = self.books.view.node_gpus, self.demand.kind[job]
        if there is not self.there:
            self.there, self.fits = there, {}
        if kind not in self.fits:
            self.fits[kind] = self.demand.nodes_for(job, np.where(self.nodes, there, 0)) is not None
        return self.fits[kind]

    def _room(self, *, profiler: bool) -> NDArray[np.int64]:
        there = self.nodes if profiler else ~self.nodes
        return np.where(there & (self.books.view.node_gpus > 0), self.books.idle, 0)

    def _profile(self, job: int) -> bool:
        found = self.demand.nodes_for(job, self._room(profiler=True))
        if found is None:
            return False
        self.books.put(job, self.books.lowest(found))
        self.profiled[job] = self.books.view.now_ms + self.profile_ms
        return True

    def _start(self, job: int) -> bool:
        """Start a job next to another, or alone."""
        tries = (self._alone, self._beside) if self.p["idle_first"] else (self._beside, self._alone)
        return any(attempt(job) for attempt in tries)

    def _alone(self, job: int) -> bool:
        found = self.demand.nodes_for(job, self._room(profiler=False))
        if found is None:
            return False
        self.books.put(job, self.books.lowest(found))
        self._list(job)
        return True

    def _list(self, job: int) -> None:
        gpu = self.books.of[job][0]
        self.listed[job] = int(self.demand.group[gpu]), self.demand.gpus[job]
        self.alone.setdefault(self.listed[job], {})[job] = None

    def _beside(self, job: int) -> bool:
        demand, gpus = self.demand, self.demand.gpus[job]
        if not self.packing or gpus > _WIDEST:
            return False
        most, ratio = self.p["score"], self.p["ratio"]
        for group in demand.groups_of(job):
            for other in self.alone.get((group, gpus), ()):
                if (
                    self.score[job] + self.score[other] <= most
                    and demand.memory[job] + demand.memory[other] <= FULL
                    and self.value[job] <= ratio * self.value[other]
                    and all(self.books.view.node_gpus[demand.node[gpu]] > 0 for gpu in self.books.of[other])
                ):
                    self.books.put(job, self.books.of[other])
                    self.partner[job], self.partner[other] = other, job
                    del self.alone[self.listed.pop(other)][other]
                    return True
        return False

    def _left(self, job: int) -> None:
        """Note that a job ended; its partner is alone again."""
        if self.profiled.pop(job, None) is not None:
            return
        other = self.partner.pop(job, -1)
        if other >= 0:
            del self.partner[other]
            if other in self.books.of:
                self._list(other)
            return
        if job in self.listed:
            del self.alone[self.listed.pop(job)][job]

    def _speed(self, job: int, gpu: int) -> int:
        other = self.partner.get(job, -1)
        return FULL if other < 0 else self.demand.speed_beside(job, other)


def _profiler(cluster: Cluster, nodes: int) -> NDArray[np.bool_]:
    """Return the profiler's nodes: this many of the largest of each domain, at most a quarter of all (N,)."""
    found = np.zeros(cluster.nodes, np.bool_)
    for domain in np.unique(cluster.domain).tolist():
        own = np.flatnonzero(cluster.domain == domain)
        own = own[np.argsort(-cluster.gpus[own], kind="stable")]
        found[own[: min(nodes, len(own) // 4)]] = True
    return found


class Lucid(Policy):
    """Profile, order by expected GPU time, pack in pairs."""

    card: ClassVar[Card] = Card(
        name="lucid",
        title="profile jobs first, then least expected GPU time first, in pairs that slow each other little",
        rule=(
            "Jobs with few GPUs begin on the profiler: profile nodes of the largest of each domain, or a quarter "
            "of its nodes if that is less. There the fewest GPUs go first, then by submission, up to the first "
            "job that does not fit; a job that has not ended after time seconds leaves the profiler. All other "
            "jobs wait for the other nodes, the least expected run time times GPUs first. While jobs are packed, "
            "a job of at most 8 GPUs shares with the first job that runs alone on the same number of GPUs, if "
            "their scores add up to at most score, both fit in memory, and its expected GPU time is at most ratio "
            "times the other's. Otherwise it takes idle GPUs in one place, or it is skipped. While jobs are not "
            "packed, no job overtakes the first job that does not fit. The score is 0, 1 or 2 by utilization. "
            "Both jobs of a pair are slowed by M1, and the one that is left recovers. Jobs are stopped only in "
            "the profiler. Utilization and memory are counted in whole percent."
        ),
        parameters=(
            Parameter("profile", 2, "nodes of the profiler; 0: none"),
            Parameter("time", 200.0, "most time in the profiler [s]", minimum=0.001),
            Parameter("factor", 4, "jobs of up to profile * factor GPUs are profiled, on one node", minimum=1),
            Parameter(
                "pack",
                "auto",
                "pack jobs: always, never, or while more than calm jobs arrived in the last ten minutes",
                ("auto", "on", "off"),
            ),
            Parameter("calm", 2.0, "with pack=auto, no job is packed up to this many arrivals in ten minutes [jobs]"),
            Parameter("score", 2, "largest sum of the scores of a pair", maximum=4),
            Parameter("ratio", 2.0, "largest expected GPU time relative to that of the partner"),
            Parameter("idle_first", False, "look for idle GPUs before a partner"),
            NOISE,
            OVERHEAD,
        ),
        assumptions=("D1", "M1", "M2", "M4", "M9", "M11"),
        equal_to=(
            "With pack=off, profile=0: ssf.",
            "With pack=on, profile=0 and no two jobs that fit in memory: ssf,scan=skip.",
        ),
        sources=(
            (
                "Hu et al., Lucid (ASPLOS'23), and its released simulator: profiler, order, partners, thresholds, two "
                "modes."
            ),
            (
                "Own choices: work done in the profiler counts, while the released simulator repeats all of it in "
                "addition; the expected arrivals are those of the last ten minutes; the first partner is the job "
                "that has been alone for longest; overhead is charged to jobs that leave the profiler."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        estimate = believed(jobs, models, p["noise"], seed)
        demand = Demand(jobs, cluster, models)
        score = sharing_class(models, demand.used).tolist()
        work = jobs.work_ms if estimate is None else estimate
        packing = _Packing(jobs, cluster, demand, work.tolist(), score, p)
        return Planner(
            packing.plan,
            scope=0,
            names_nodes=True,
            share=2,
            overhead_ms=overheads(models, p["overhead"], jobs),
        )
