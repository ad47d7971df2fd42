"""Interference-greedy: the target that a learned placement such as Harmony's would approach."""

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
        title="one-GPU jobs where they and their neighbours end soonest together, or wait: a bound for learned "
        "placement",
        rule=(
            "Jobs are taken in the order of key. A job that cannot start is skipped, and so are all identical "
            "jobs. A one-GPU job may take an idle GPU, on the node with the fewest, or join a GPU with fewer than "
            "residents jobs and enough memory left. It goes where its remaining run time over its speed there, "
            "plus the delay of the jobs there if all stay as they are, is smallest. With wait=on it starts only "
            "if that is less than its remaining run time plus the time until the first of the GPUs that it could "
            "join is empty. Gangs get idle GPUs in one place. No job is stopped. Run times and interference are "
            "known exactly. Utilization and memory are counted in whole percent."
        ),
        parameters=(
            Parameter("residents", 2, "most jobs on a GPU", minimum=1, maximum=8),
            Parameter("key", "fifo", "order: by submission, or by run time", ("fifo", "sjf")),
            Parameter("wait", True, "a job waits if that is expected to be better than sharing"),
        ),
        assumptions=("D1", "M1", "M2", "M4"),
        equal_to=(
            "With residents=1: fifo,scan=skip, or with key=sjf sjf,scan=skip.",
            "Without interference (c = 0): wait=on is wait=off.",
        ),
        sources=(
            (
                "Our own bound for systems that learn placement from interference: Bao et al., Harmony "
                "(INFOCOM'19), and similar ones. It knows what those systems learn and considers one job at a "
                "time. It is not their result. It overstates harm, because neighbours recover when one job ends."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans that name the GPUs of every job."""
        p = self.parameters
        key = jobs.work_ms if p["key"] == "sjf" else None
        seats = _Seats(Demand(jobs, cluster, models), p["residents"], key, waits=p["wait"])
        return Planner(seats.plan, scope=0, names_nodes=True, share=max(p["residents"], 2))
