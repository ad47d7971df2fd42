"""The placement that costs least at the moment, or waiting: the target of a policy that learns contention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, gangs_and_links
from tracekit.policies.places import ANYWHERE, FEWEST, RACK, Places, Spot, gathered
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["ContentionGreedy"]


class _Greedy(Gangs):
    """Place gangs where they cost least at the moment."""

    def __init__(
        self, jobs: Jobs, places: Places, network: Network, models: Models, *, wait: bool, shortest: bool, look: int
    ) -> None:
        super().__init__(jobs, places, network, models, look=look)
        self.links, self.waits, self.shortest = network, wait, shortest
        self._next_ms = -1.0

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return waiting jobs by submission or run time; a new plan has another next end."""
        self._next_ms = -1.0
        if self.shortest:
            return waiting[np.argsort(self.jobs.work_ms[waiting], kind="stable")]
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Return the cheapest of some placements, None if waiting for the next end is cheaper."""
        least, best = math.inf, None
        alone = self.left_ms(job)
        for spot in self._spots(job):
            cost = alone if len(spot.nodes) == 1 else self.cost_ms(job, spot)
            if cost < least:
                least, best = cost, spot
            if least <= alone:
                break
        if best is not None and self.waits and least > alone and self._next_end_ms() - self.now_ms + alone < least:
            return None
        return best

    def _spots(self, job: int) -> list[Spot]:
        """Return the placements that are compared: of each tier, and by the least traffic."""
        found = [spot for tier in (FEWEST, RACK, ANYWHERE) if (spot := self.places.find(job, tier)) is not None]
        if not found or len(found[0].nodes) == 1:
            return found[:1]
        pool, gpus = self.places.pools[int(self.places.job_pool[job])], int(self.gpus[job])
        for low, high, _ in (*pool.racks, *pool.models):
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) >= gpus:
                found.append(gathered(nodes, free, np.lexsort((-free, self.links.load[nodes])), gpus))
        return found

    def _next_end_ms(self) -> float:
        """Return when the first job that ran before this plan ends at its present speed; inf if there was none."""
        if self._next_ms < 0:
            running, left = self.view.running, self.view.remaining_ms.astype(np.float64)
            ends = self.view.overhead_ms + left * PPM / np.maximum(self.view.rate, 1)
            self._next_ms = self.now_ms + float(ends[running].min(initial=math.inf))
        return self._next_ms


class ContentionGreedy(Policy):
    """The least cost of the moment."""

    card: ClassVar[Card] = Card(
        name="contention-greedy",
        title="place a gang where it delays itself and others least, or let it wait (a bound for learned contention)",
        rule=(
            "Jobs are considered by submission, or with order=shortest by run time. A job that does not start is "
            "skipped, and no job is stopped. For a gang that fits on no single node, these placements are "
            "compared: the fewest nodes of a rack, any nodes of one rack, any nodes of one GPU model, and in each "
            "rack and model the nodes whose links carry the fewest gangs. The cost of a placement is the gang's "
            "run time there plus the time by which it delays the gangs that share its links, over all their "
            "remaining work at the current speeds. With wait=on a gang waits if it would finish sooner by "
            "starting at the next end of a running job, as close together as possible. Run times are known. A "
            "policy that learns contention is trained towards this target; this is not such a policy. It "
            "overstates delays, because the other gangs recover when one ends. Gangs wider than a tier send "
            "beyond it. If racks are not known, all nodes are in one rack."
        ),
        parameters=(
            Parameter("wait", True, "gangs may wait for the next end if that costs less"),
            Parameter("order", "arrival", "which job is considered first", ("arrival", "shortest")),
            Parameter("look", 30, "a plan stops after this many jobs that wait by choice", minimum=1),
            GAP,
        ),
        assumptions=("D1", "M36", "M37", "M38"),
        equal_to=(
            "With one-GPU jobs and gap=0: fifo,scan=skip; with order=shortest: sjf,scan=skip.",
            "With one GPU model and links that slow no job: the waits of delay-scheduling,rack=0,any=0.",
        ),
        sources=(
            (
                "Ryu and Eo, arXiv 2310.20209 (ICPADS'23), abstract: a learned policy that knows how sensitive "
                "jobs are to contention; a log is not enough to replay its network."
            ),
            "Own choices: the placements compared, their cost, and the test for waiting.",
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by cost."""
        p = self.parameters
        places, network = gangs_and_links(jobs, cluster, models, seed)
        greedy = _Greedy(
            jobs,
            places,
            network,
            models,
            wait=p["wait"],
            shortest=p["order"] == "shortest",
            look=p["look"],
        )
        return greedy.planner(p["gap"])
