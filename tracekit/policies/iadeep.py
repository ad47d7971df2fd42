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
        title="an idle GPU at once, else where jobs interfere least with each other",
        rule=(
            "Jobs are taken by submission; one that cannot start is passed over, with all that are alike. A job of one "
            "GPU takes an idle one, on the node with the fewest; else, of the GPUs with fewer than residents jobs, "
            "whose utilizations in sum and whose memory are both below cap, on which it fits and whose jobs are not "
            "being tuned, the one on which the resulting set interferes least: the sum over its jobs of their "
            "slowdown less 1. A set is tuned for tune seconds, in which nobody joins it; then what exceeds 1 in each "
            "slowdown is kappa times as much. Gangs have idle GPUs in one place. Nobody is stopped. Utilization and "
            "memory count in whole percent."
        ),
        parameters=(
            Parameter("residents", 3, "jobs that a GPU may have", minimum=1, maximum=8),
            Parameter("cap", 0.99, "utilization and memory from which nobody joins a GPU [0..1]", maximum=8.0),
            Parameter("kappa", 1.0, "what tuning leaves of a slowdown; 1 it changes nothing [0..1]", maximum=1.0),
            Parameter("tune", 60.0, "time that tuning takes, 0 none [s]"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
        equal_to=(
            "With residents=1: fifo,scan=skip.",
            "With residents=2, tune=0 and where nobody waits for a seat: sjf-ffs by submission, other partners.",
        ),
        sources=(
            "Chen et al., IADeep (SC'23), and released code: idle first, the limit of 99 %, least interference.",
            (
                "Own choices: interference from M1 in place of the regression over past records; tuning as a factor "
                "(kappa=0.8 is a guess of what it gains); the node of an idle GPU; gangs alone."
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
