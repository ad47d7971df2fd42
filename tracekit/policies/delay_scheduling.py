"""Delay scheduling: gangs wait a while for nearby GPUs, or as long as waiting pays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.network_parameters import GAP, LINKS, gang_parts
from tracekit.policies.parameters import NOISE, believed, scan
from tracekit.policies.places import ANYWHERE, Places, Spot
from tracekit.policies.waits import Waits
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["DelayScheduling"]

_KNOWN = 5
"""Number of known waits that a mean needs."""


class _Delays(Gangs):
    """Gangs that wait for a tier."""

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network | None,
        models: Models,
        *,
        after_ms: tuple[float, float, float],
        cost: str,
        stop: bool,
        believed_ms: NDArray[np.int64] | None,
    ) -> None:
        super().__init__(jobs, places, network, models, stop=stop, believed_ms=believed_ms)
        self.after_ms, self.cost = after_ms, cost
        self.arrival_ms = jobs.arrival_ms
        self.waits = Waits()
        self._ends: list[tuple[float, int]] | None = None
        self._release: dict[int, float] = {}

    def reset(self) -> None:
        """Forget the waits of gangs."""
        self.waits = Waits()

    def order(self, waiting: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the order of submission; a new plan knows new ends."""
        self._ends = None
        self._release.clear()
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Return the nearest free GPUs, if the job does not wait for nearer ones."""
        nearest = self.places.nearest[int(self.places.kind[job])]
        for tier in range(nearest, ANYWHERE + 1):
            spot = self.places.find(job, tier)
            if spot is not None and (tier == nearest or not self._waits(job, spot, tier, nearest)):
                return spot
        return None

    def _waits(self, job: int, spot: Spot, tier: int, nearest: int) -> bool:
        """Return whether a job waits for a nearer tier than that of a possible spot."""
        due_ms = float(self.arrival_ms[job]) + self.after_ms[tier]
        if due_ms <= self.now_ms or (self.cost != "off" and not self._pays(job, spot, nearest, due_ms)):
            return False
        self.wake(due_ms)
        return True

    def _pays(self, job: int, spot: Spot, nearest: int, due_ms: float) -> bool:
        """Return whether a job loses more on a spot than it is expected to wait for the nearest tier."""
        lost_ms = self.left_ms(job) * (PPM / self.speed_on(job, spot) - 1)
        kind = int(self.places.kind[job])
        if self.cost == "oracle":
            if kind not in self._release:
                self._release[kind] = self._release_ms(job, nearest)
            return self._release[kind] - self.now_ms < lost_ms
        return self.waits.mean((kind,), _KNOWN, due_ms - self.now_ms) < lost_ms

    def _release_ms(self, job: int, tier: int) -> float:
        """Return when a tier has room if no other job starts and running jobs end at their present speed; inf never."""
        ends = self._ends_of_running()
        low, high = 0, len(ends) + 1
        while high - low > 1:
            middle = (low + high) // 2
            free = self.places.free.copy()
            for _, other in ends[:middle]:
                free[self.spots[other].nodes] += self.spots[other].gpus
            low, high = (low, middle) if self.places.found(job, tier, free) is not None else (middle, high)
        return ends[high - 1][0] if high <= len(ends) else math.inf

    def _ends_of_running(self) -> list[tuple[float, int]]:
        """Return the ends of running jobs, ascending [ms], without those that start now."""
        if self._ends is None:
            job, rate, overhead, running = self.view.job, self.view.rate, self.view.overhead_ms, self.view.running
            rows = zip(job[running].tolist(), rate[running].tolist(), overhead[running].tolist(), strict=True)
            self._ends = sorted((self.now_ms + o + self.left_ms(j) * PPM / max(r, 1), j) for j, r, o in rows)
        return self._ends

    def started(self, job: int, spot: Spot) -> None:
        """Note how long a gang waited for its nearest tier."""
        if self.cost != "mean":
            return
        kind = int(self.places.kind[job])
        if len(spot.nodes) <= -(-int(self.gpus[job]) // int(self.places.gpus[spot.nodes].max())):
            self.waits.add((kind,), float(self.now_ms - self.arrival_ms[job]))


class DelayScheduling(Policy):
    """First in, first out, where gangs wait for nearby GPUs."""

    card: ClassVar[Card] = Card(
        name="delay-scheduling",
        title="gangs wait a while for nearby GPUs (delay scheduling)",
        rule=(
            "Jobs start in the order of their submission and run to their end. A gang takes the fewest nodes of "
            "one rack at once. After `rack` seconds it takes any nodes of one rack, and after `any` seconds any "
            "nodes of one GPU model. Until then later jobs may overtake it (scan=skip) or wait too (scan=stop). "
            "With cost=mean or oracle a gang waits only while that also pays: the expected wait must be shorter "
            "than its remaining run time times the slowdown of the place where it could start now. mean expects "
            "the mean wait of the last 20 gangs of its kind that got the fewest nodes, from the fifth on, and "
            "until then the time to the timer. oracle expects the moment at which running jobs have freed enough "
            "GPUs if no other job starts. A gang that never fits in one rack takes any nodes at once, and a gang "
            "that could never have the fewest nodes starts with one rack. If racks are not known, all nodes are "
            "in one rack. Nodes are chosen as by placement consolidate. Speeds depend on the tiers and on other "
            "traffic on the same links."
        ),
        parameters=(
            Parameter("rack", 600.0, "wait after which a gang takes any nodes of one rack, inf never [s]"),
            Parameter("any", 1800.0, "wait after which it takes any nodes of one GPU model, inf never [s]"),
            Parameter("cost", "off", "whether waiting must pay, and which wait is expected", ("off", "mean", "oracle")),
            scan("skip"),
            NOISE,
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M11", "M36", "M37", "M38"),
        equal_to=(
            "With rack=inf, any=inf, gap=0: fifo,scan=skip; with scan=stop: fifo.",
            "With rack=T, any=inf, links=off, gap=0: fifo,scan=skip,relax=T,relax_to=rack.",
            "With rack=0, any=0, links=off, gap=0, one GPU model and no cost of spreading: fifo,scan=skip,fit=count.",
            "With one-GPU jobs all settings are equal.",
            "With links=off and no cost of spreading, cost=oracle is rack=0, any=0.",
        ),
        sources=(
            "Zaharia et al., Delay Scheduling (EuroSys'10): a task waits for a nearby place while others go on.",
            (
                "Own choices: timers per gang that run from its submission to its start, in seconds instead of "
                "refusals; the three tiers; the cost test and the wait it expects."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by timers."""
        p = self.parameters
        places, network = gang_parts(jobs, cluster, models, seed, links=p["links"])
        any_ms = p["any"] * 1000
        delays = _Delays(
            jobs,
            places,
            network,
            models,
            after_ms=(0.0, min(p["rack"] * 1000, any_ms), any_ms),
            cost=p["cost"],
            stop=p["scan"] == "stop",
            believed_ms=believed(jobs, models, p["noise"], seed),
        )
        return delays.planner(p["gap"])
