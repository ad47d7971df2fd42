"""Interference-greedy: what a learned placement such as Harmony's would come near to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.residents import Demand
from tracekit.policies.scored_seats import Company, ScoredSeats
from tracekit.replay.mechanisms import Planner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["InterferenceGreedy"]


class _Seats(ScoredSeats):
    """Least sum of completions, or to wait."""

    idle_first = True

    def __init__(self, demand: Demand, residents: int, key: NDArray[np.int64] | None, *, waits: bool) -> None:
        super().__init__(demand, residents, key)
        self.waits = waits

    def score(self, job: int, company: Company) -> NDArray[np.float64]:
        found: NDArray[np.float64] = company.own_s / company.speed + company.harm_s
        if not self.waits:
            return found
        # Who waits goes alone to the first GPU that becomes idle.
        ends = (company.left_s / company.before).max(axis=1, initial=0.0)
        return np.where(company.idle | (found < ends.min(initial=np.inf) + company.own_s), found, np.inf)


class InterferenceGreedy(Policy):
    """Least delay of all concerned."""

    card: ClassVar[Card] = Card(
        name="interference-greedy",
        title="jobs of one GPU where they and those there end soonest together, or wait: a bound for learned placement",
        rule=(
            "Jobs are taken in the order of key; one that cannot start is passed over, with all that are alike. A job "
            "of one GPU may take an idle one, on the node with the fewest, or join a GPU with fewer than residents "
            "jobs and memory left. It goes where its run time left over its speed there, plus the delay of those "
            "there if all stayed as it is then, is least; with wait=on only if that is less than its run time left "
            "plus the time until the first of the GPUs that it could join is empty. Gangs have idle GPUs in one "
            "place. Nobody is stopped. Run times and interference are known exactly. Utilization and memory count in "
            "whole percent."
        ),
        parameters=(
            Parameter("residents", 2, "jobs that a GPU may have", minimum=1, maximum=8),
            Parameter("key", "fifo", "order: by submission, or by run time", ("fifo", "sjf")),
            Parameter("wait", True, "a job waits where that is foreseen to be better than to share"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
        equal_to=(
            "With residents=1: fifo,scan=skip, or with key=sjf sjf,scan=skip.",
            "Without interference (c = 0): wait=on is wait=off.",
        ),
        sources=(
            (
                "A bound of our own for systems whose placement is learned from interference: Bao et al., Harmony "
                "(INFOCOM'19), and the like. It knows what those learn, looks at one job at a time, and is never their "
                "result; it overstates harm, as neighbours recover when one ends."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        key = jobs.work_ms if p["key"] == "sjf" else None
        seats = _Seats(Demand(jobs, cluster, models), p["residents"], key, waits=p["wait"])
        return Planner(seats.plan, scope=0, names_nodes=True, share=max(p["residents"], 2))
