"""SchedTune without its predictors: jobs go where they end soonest, by memory, interference and GPU model."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import overheads
from tracekit.policies.residents import FULL, Demand
from tracekit.policies.scored_seats import Company, ScoredSeats
from tracekit.replay.assumptions.speeds import type_speed_table
from tracekit.replay.mechanisms import Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["SchedTuneLike"]


class _Seats(ScoredSeats):
    """Least completion, including the delay of the jobs there."""

    def __init__(
        self,
        demand: Demand,
        residents: int,
        type_speed: NDArray[np.float64],
        *,
        harm: float,
        margin: float,
        blind: bool,
        crash_ms: int,
    ) -> None:
        super().__init__(demand, residents)
        self.type_speed, self.harm, self.margin = type_speed, harm, margin
        self.blind, self.crash_ms = blind, crash_ms

    def begin(self, view: View) -> None:
        super().begin(view)
        self.known: set[int] = set()
        """Jobs that ran out of memory once."""
        self.crashes: dict[int, int] = {}
        """When jobs that do not fit run out of memory [ms]."""

    def allowed(self, job: int, gpus: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self.blind and job not in self.known:
            return np.ones(len(gpus), np.bool_)
        need = round(self.demand.memory[job] * (1 + self.margin))
        return self.books.memory[gpus] + need <= FULL

    def score(self, job: int, company: Company) -> NDArray[np.float64]:
        of_model = self.type_speed[self.demand.jobs.model[job], self.demand.model[company.gpu]]
        found = company.own_s / (company.speed * of_model) + self.harm * company.harm_s
        # Between equals the GPU with least memory left.
        equal = np.flatnonzero(found == found.min())
        gpu = company.gpu[equal]
        best = equal[np.lexsort((gpu, -self.books.memory[gpu]))[0]]
        return np.where(np.arange(len(found)) == best, 0.0, 1.0)

    def seated(self, job: int, gpu: int) -> None:
        if self.books.memory[gpu] > FULL:
            self.crashes[job] = self.books.view.now_ms + self.crash_ms

    def due(self, now_ms: int) -> None:
        self.crashes = {job: at for job, at in self.crashes.items() if job in self.books.of}
        for job in [job for job, at in self.crashes.items() if at <= now_ms]:
            del self.crashes[job]
            if self.books.memory[self.books.of[job]].max() > FULL:
                self.books.stop(job)
                self.known.add(job)
                self.waiting.add(job)

    def wake(self, now_ms: int) -> int:
        return min(self.crashes.values(), default=-1)


class SchedTuneLike(Policy):
    """Least predicted completion, memory in mind."""

    card: ClassVar[Card] = Card(
        name="schedtune-like",
        title="one-GPU jobs where they end soonest, by memory, interference and GPU model",
        rule=(
            "Jobs are taken by submission. A job that cannot start is skipped, and so are all identical jobs. A "
            "one-GPU job may take an idle GPU, on the node with the fewest, or join a GPU with fewer than "
            "residents jobs where its memory plus margin fits. It goes where its run time over its speed there, "
            "by interference (M1) and GPU model (D6), plus harm times the delay of the jobs there, is smallest; "
            "among equals where the least memory is left. Gangs get idle GPUs in one place. No job is stopped. "
            "With memory=blind memory is ignored: a job that does not fit runs out of memory after crash seconds, "
            "waits again, and from then on is placed where it fits. Utilization and memory are counted in whole "
            "percent."
        ),
        parameters=(
            Parameter("residents", 4, "most jobs on a GPU", minimum=1, maximum=8),
            Parameter("harm", 1.0, "weight of the delay of the jobs there"),
            Parameter("margin", 0.05, "extra memory kept free for a job, as a share of its own [1]"),
            Parameter("memory", "known", "whether the memory of jobs is known in advance", ("known", "blind")),
            Parameter("crash", 60.0, "time after which a job that does not fit runs out of memory [s]", minimum=0.001),
            Parameter("overhead", "none", "preset for the cost of a restart after running out of memory (M9)"),
        ),
        assumptions=("D1", "D6", "M1", "M2", "M4", "M9"),
        equal_to=("With residents=1 and one GPU model: fifo,scan=skip.",),
        sources=(
            (
                "Albahar et al., SchedTune (CCGrid'22), abstract: predictors of memory and completion times drive "
                "placement on GPUs of several types, and out-of-memory failures are avoided."
            ),
            (
                "Own choices, because we had no access to the inner rule: the score and its weight, ties, margin, "
                "gangs run alone; the models' own values instead of learned predictors, so the prediction is "
                "perfect."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        seats = _Seats(
            Demand(jobs, cluster, models),
            p["residents"],
            type_speed_table(models, jobs.models, cluster.models) / FULL,
            harm=p["harm"],
            margin=p["margin"],
            blind=p["memory"] == "blind",
            crash_ms=max(round(p["crash"] * 1000), 1),
        )
        return Planner(
            seats.plan,
            scope=0,
            names_nodes=True,
            share=max(p["residents"], 2),
            overhead_ms=overheads(models, p["overhead"], jobs),
        )
