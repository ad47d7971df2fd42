"""IADeep: an idle GPU at once, else the set of jobs that interfere least, tuned together."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.residents import FULL, Demand
from tracekit.policies.scored_seats import Company, ScoredSeats
from tracekit.replay.mechanisms import Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["IaDeep"]


class _Seats(ScoredSeats):
    """Least interference of the resulting set."""

    idle_first = True

    def __init__(self, demand: Demand, residents: int, *, cap: float, kappa: float, tune_ms: int) -> None:
        super().__init__(demand, residents)
        self.cap, self.kappa, self.tune_ms = round(cap * FULL), kappa, tune_ms

    def begin(self, view: View) -> None:
        super().begin(view)
        self.tuning: dict[int, int] = {}
        """When the tuning of a GPU's jobs ends [ms]."""
        self.load = np.zeros(len(self.demand.node), np.int64)
        self.mine: dict[int, int] = {}

    def allowed(self, job: int, gpus: NDArray[np.int64]) -> NDArray[np.bool_]:
        books = self.books
        load = self.load[gpus]
        below = (load < self.cap) & (books.memory[gpus] < self.cap)
        tuned = ~np.isin(gpus, list(self.tuning)) if self.tuning else np.ones(len(gpus), np.bool_)
        return below & tuned & (books.memory[gpus] + self.demand.memory[job] <= FULL)

    def score(self, job: int, company: Company) -> NDArray[np.float64]:
        there = company.left_s > 0
        interference = 1 / company.speed - 1 + np.where(there, 1 / company.after - 1, 0).sum(axis=1)
        return np.where(company.idle, -1.0, interference)

    def seated(self, job: int, gpu: int) -> None:
        self.mine[job] = gpu
        self.load[gpu] += self.demand.used[job]
        if len(self.books.on[gpu]) > 1 and self.tune_ms:
            self.tuning[gpu] = self.books.view.now_ms + self.tune_ms

    def left_seat(self, job: int) -> None:
        if job in self.mine:
            self.load[self.mine.pop(job)] -= self.demand.used[job]

    def due(self, now_ms: int) -> None:
        ready = [gpu for gpu, until in self.tuning.items() if until <= now_ms]
        for gpu in ready:
            del self.tuning[gpu]
        self.books.touch(ready)

    def wake(self, now_ms: int) -> int:
        return min(self.tuning.values(), default=-1)

    def speed(self, job: int, gpu: int) -> int:
        found = super().speed(job, gpu)
        if self.kappa == 1 or found == FULL or gpu in self.tuning:
            return found
        return max(round(FULL / (1 + (FULL / found - 1) * self.kappa)), 1)


class IaDeep(Policy):
    """Least interference."""

    card: ClassVar[Card] = Card(
        name="iadeep",
        title="an idle GPU at once, otherwise the GPU where jobs interfere least",
        rule=(
            "Jobs are taken by submission. A job that cannot start is skipped, and so are all identical jobs. A "
            "one-GPU job takes an idle GPU, on the node with the fewest. If there is none, it joins a GPU with "
            "fewer than residents jobs, where the sum of their utilizations and their memory are both below cap, "
            "where it fits and whose jobs are not being tuned. Of these GPUs it takes the one where the resulting "
            "set interferes least: the sum over its jobs of their slowdown less 1. A set is tuned for tune "
            "seconds, during which no job joins it; after that, the part of each slowdown above 1 is multiplied "
            "by kappa. Gangs get idle GPUs in one place. No job is stopped. Utilization and memory are counted in "
            "whole percent."
        ),
        parameters=(
            Parameter("residents", 3, "most jobs on a GPU", minimum=1, maximum=8),
            Parameter("cap", 0.99, "at this utilization or memory, no job joins a GPU [0..1]", maximum=8.0),
            Parameter(
                "kappa", 1.0, "factor by which tuning multiplies a slowdown; 1 changes nothing [0..1]", maximum=1.0
            ),
            Parameter("tune", 60.0, "time that tuning takes; 0: none [s]"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
        equal_to=(
            "With residents=1: fifo,scan=skip.",
            "With residents=2, tune=0 and if no job waits for a seat: sjf-ffs by submission, with other partners.",
        ),
        sources=(
            (
                "Chen et al., IADeep (SC'23), and its released code: idle GPUs first, the limit of 99 %, least "
                "interference."
            ),
            (
                "Own choices: interference from M1 instead of the regression over past records; tuning as a "
                "factor (kappa=0.8 is a guess of its gain); the node of an idle GPU; gangs run alone."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        seats = _Seats(
            Demand(jobs, cluster, models),
            p["residents"],
            cap=p["cap"],
            kappa=p["kappa"],
            tune_ms=round(p["tune"] * 1000),
        )
        return Planner(seats.plan, scope=0, names_nodes=True, share=max(p["residents"], 2))
