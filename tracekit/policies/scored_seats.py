"""One-GPU jobs that go where a score is lowest, alone or next to others; gangs have their GPUs to themselves."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.residents import FULL, Lines, Residents

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.residents import Demand
    from tracekit.replay.mechanisms import Plan, View

__all__ = ["Company", "ScoredSeats"]

_PERCENT = 10_000
_REMAINING = 1e9
"""Unit in which the engine counts remaining work, per second."""


@dataclass(frozen=True)
class Company:
    """GPUs that a job may join, m of them with at most C jobs each, and the effect of that. An empty seat has zeros."""

    gpu: NDArray[np.int64]
    """The GPUs (m,)."""
    idle: NDArray[np.bool_]
    """Whether it is empty (m,)."""
    speed: NDArray[np.float64]
    """Speed of the job there [0..1] (m,)."""
    left_s: NDArray[np.float64]
    """Run time left of the jobs there, at full speed [s] (m, C)."""
    before: NDArray[np.float64]
    """Their speeds now [0..1] (m, C)."""
    after: NDArray[np.float64]
    """Their speeds with the job [0..1] (m, C)."""
    own_s: float
    """Run time left of the job [s]."""

    @property
    def harm_s(self) -> NDArray[np.float64]:
        """How much later the jobs there would end in total, if all stayed as it is then [s] (m,)."""
        found: NDArray[np.float64] = (self.left_s * (1 / self.after - 1 / self.before)).sum(axis=1)
        return found


class ScoredSeats:
    """Plans of one replay, for one run at a time. A policy gives the value of GPUs."""

    idle_first: ClassVar[bool] = False
    """Whether an idle GPU is never worse than a shared one, so shared ones can be ignored while one is idle."""

    def __init__(self, demand: Demand, residents: int, key: NDArray[np.int64] | None = None) -> None:
        """Take the demand, how many jobs a GPU may have, and the order of waiting jobs, by submission if None."""
        self.demand, self.residents = demand, residents
        self.key = None if key is None else key.tolist()
        self.percent = np.append(np.array(demand.used, np.int64) // _PERCENT, 0)
        """Utilization of each job in percent; the last entry is an empty seat's (n + 1,)."""
        self.pair = demand.pair_speeds()
        self.view: View | None = None

    def begin(self, view: View) -> None:
        """Start a run."""
        self.view, self.books = view, Residents(self.demand, view, self.residents)
        self.waiting = Lines(self.demand.type, self.key)
        self.whole = np.zeros(len(self.demand.node), np.bool_)
        """GPUs that gangs have (T,)."""
        self.gangs: dict[int, list[int]] = {}
        self.nodes: NDArray[np.int64] | None = None
        self.there: dict[int, list[NDArray[np.int64]]] = {}
        """GPUs on present nodes for each kind of demand, by GPU model."""

    def plan(self, view: View) -> Plan:
        """Return which jobs start where, and the current speed of every job."""
        if self.view is not view:
            self.begin(view)
        new, ended = self.books.follow(view)
        for job in ended:
            self.whole[self.gangs.pop(job, [])] = False
            self.left_seat(job)
        for job in new:
            self.waiting.add(job)
        self.due(view.now_ms)
        if len(self.waiting):
            if view.node_gpus is not self.nodes:
                self.nodes, self.there = view.node_gpus, {}
            self.left = view.table["remaining"]
            self.waiting.start(self._begin_job)
        return self.books.plan(self.speed, self.wake(view.now_ms))

    def left_seat(self, job: int) -> None:
        """Note that a job ended."""

    def due(self, now_ms: int) -> None:
        """Do what is due by now."""

    def wake(self, now_ms: int) -> int:
        """Return when to be asked again without any event, -1 not [ms]."""
        return -1

    def seated(self, job: int, gpu: int) -> None:
        """Note that a job of one GPU has it."""

    def speed(self, job: int, gpu: int) -> int:
        """Return the speed of a job on one of its GPUs [ppm]."""
        on = self.books.on[gpu]
        return FULL if len(on) == 1 else self.demand.speed_among(job, [other for other in on if other != job])

    def allowed(self, job: int, gpus: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some GPUs with a seat left a job may join (m,)."""
        return self.books.memory[gpus] + self.demand.memory[job] <= FULL

    def score(self, job: int, company: Company) -> NDArray[np.float64]:
        """Return a score, lowest where a job should go; infinite where it must not (m,)."""
        raise NotImplementedError

    def _begin_job(self, job: int) -> bool:
        if self.demand.gpus[job] > 1:
            found = self.books.idle_gpus(job)
            if found is None:
                return False
            self.books.put(job, found)
            self.gangs[job] = found
            self.whole[found] = True
            return True
        alone = self.books.idle_gpus(job) if self.idle_first else None
        if alone is not None:
            self.books.put(job, alone)
            self.seated(job, alone[0])
            return True
        gpus, idle = self._candidates(job)
        if not len(gpus):
            return False
        company = self._company(job, gpus, idle)
        score = self.score(job, company)
        at = int(score.argmin())
        if not np.isfinite(score[at]):
            return False
        self.books.put(job, [int(gpus[at])])
        self.seated(job, int(gpus[at]))
        return True

    def _candidates(self, job: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the GPUs that a job may join, and whether they are idle: of these one for each model, the first."""
        idle, shared = [], []
        for own in self._accepted(job):
            count = self.books.count[own]
            taken = own[(count > 0) & (count < self.residents) & ~self.whole[own]]
            shared.append(taken[self.allowed(job, taken)])
            empty = own[count == 0]
            if len(empty):
                # As other policies place it: on the node with the fewest idle GPUs.
                idle.append(int(empty[self.books.idle[self.demand.node[empty]].argmin()]))
        gpus = np.concatenate([np.array(idle, np.int64), *shared])
        return gpus, np.arange(len(gpus)) < len(idle)

    def _accepted(self, job: int) -> list[NDArray[np.int64]]:
        """Return the GPUs that a job may use on present nodes, by GPU model."""
        kind, view = self.demand.kind[job], self.books.view
        if kind not in self.there:
            up = (view.node_gpus > 0)[self.demand.node]
            self.there[kind] = [own[up[own]] for own in self.demand.gpus_of(job)]
        return self.there[kind]

    def _company(self, job: int, gpus: NDArray[np.int64], idle: NDArray[np.bool_]) -> Company:
        # Seats that are empty on all of them change nothing.
        width = max(int(self.books.count[gpus].max(initial=0)), 1)
        seat, pair = self.books.seat[gpus, :width], self.pair
        used = self.percent[seat]
        own = int(self.percent[job])
        there = seat >= 0
        before = np.ones(seat.shape)
        for column, other in permutations(range(seat.shape[1]), 2):
            before[:, column] *= pair[used[:, column], used[:, other]]
        left = np.where(there, self.left[np.maximum(seat, 0)], 0) / _REMAINING
        return Company(
            gpu=gpus,
            idle=idle,
            speed=pair[own, used].prod(axis=1),
            left_s=left,
            before=before,
            after=before * pair[used, own],
            own_s=float(self.left[job]) / _REMAINING,
        )
