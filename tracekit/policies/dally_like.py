"""Dally, as far as its rule is known: waits for tiers with self-tuning timers, and moves to nearer GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.gangs import Gangs
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.links import NODE, RACKS, SPINE
from tracekit.policies.network_parameters import GAP, LINKS, gangs_and_links
from tracekit.policies.parameters import overheads
from tracekit.policies.places import ANYWHERE, FEWEST, Places, Spot
from tracekit.policies.waits import Waits
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.policies.links import Network
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Planner

__all__ = ["DallyLike"]

_REFERENCE = 0.3
"""Slowdown from one tier to the next from which on a gang waits for the whole timer."""
_KNOWN = 5
"""Number of known waits that tuning a timer needs."""


class _Tiers(Gangs):
    """Gangs that wait for tiers, and move to nearer ones."""

    def __init__(
        self,
        jobs: Jobs,
        places: Places,
        network: Network,
        models: Models,
        parameters: dict[str, object],
        move_ms: NDArray[np.int64],
    ) -> None:
        p = {name: float(value) * 1000 for name, value in parameters.items() if isinstance(value, float)}
        super().__init__(jobs, places, network if parameters["links"] else None, models)
        self.tier_of = network.tier_of
        self.timer_ms = (p["node"], p["rack"])
        self.most_ms, self.quantum_ms, self.move_ms = p["most"], p["quantum"], move_ms
        self.tune, self.migrate = bool(parameters["tune"]), bool(parameters["migrate"])
        self.best = network.best
        alone = network.alone_s
        slower = np.stack([alone[:, RACKS] / alone[:, NODE], alone[:, SPINE] / alone[:, RACKS]], axis=1) - 1
        if not parameters["links"]:
            slower[:] = models.spread.b
        self.patience = np.minimum(slower / _REFERENCE, 1.0)
        self.arrival_ms = jobs.arrival_ms
        self.waits, self.moved_ms = Waits(), dict[int, int]()

    def reset(self) -> None:
        """Forget the waits of gangs and their moves."""
        self.waits, self.moved_ms = Waits(), {}

    def _timer_ms(self, job: int, tier: int) -> float:
        """Return how long a job waits for a tier before it takes the next one [ms]."""
        patience = float(self.patience[job, tier])
        if patience <= 0:
            return 0.0
        timer = self.timer_ms[tier]
        if self.tune:
            known = self.waits.upper((int(self.jobs.model[job]), tier), _KNOWN, timer)
            timer = min(known, self.most_ms)
        return timer * patience

    def choose(self, job: int) -> Spot | None:
        """Return the nearest GPUs of a tier for which the job has waited long enough."""
        best = int(self.best[job])
        due = float(self.arrival_ms[job])
        dues = [due, due, due]
        for tier in range(best, SPINE):
            due += self._timer_ms(job, tier)
            dues[tier + 1] = due
        for near in range(FEWEST, ANYWHERE + 1):
            spot = self.places.find(job, near)
            if spot is None:
                continue
            due = dues[self.tier_of(spot.nodes)]
            if due <= self.now_ms:
                return spot
            self.wake(due)
        return None

    def started(self, job: int, spot: Spot) -> None:
        """Note how long a gang waited for its tier; jobs of one GPU have nothing to wait for."""
        if self.tune and self.gpus[job] > 1:
            wait = float(self.now_ms - self.arrival_ms[job])
            self.waits.add((int(self.jobs.model[job]), self.tier_of(spot.nodes)), wait)

    def moves(self) -> dict[int, Spot]:
        """Return the gangs that move to a nearer tier, those with the least work done for their time first."""
        if not self.migrate:
            return {}
        far = [j for j, spot in self.spots.items() if len(spot.nodes) > 1 and self.tier_of(spot.nodes) > self.best[j]]
        table = self.view.table
        found: dict[int, Spot] = {}
        for job in sorted(far, key=lambda j: (self._progress(table, j), j)):
            if self.now_ms - self.moved_ms.get(job, -(2**62)) < self.quantum_ms:
                continue
            new = self._nearer(job, self.spots[job])
            if new is not None:
                found[job] = self.spots[job] = new
                self.moved_ms[job] = self.now_ms
        return found

    def _progress(self, table: NDArray[np.void], job: int) -> float:
        """Return the work that a job has done over the time for which it ran."""
        done = float(self.jobs.work_ms[job]) - float(table["remaining"][job]) / PPM
        return done / max(float(table["ran"][job]), 1.0)

    def _nearer(self, job: int, old: Spot) -> Spot | None:
        """Return the new place of a running gang if a move pays, and move it there."""
        tier = self.tier_of(old.nodes)
        self.places.give(old)
        for near in range(FEWEST, ANYWHERE):
            spot = self.places.find(job, near)
            if spot is None or self.tier_of(spot.nodes) >= tier:
                continue
            now, then = self._speeds(job, old, spot)
            if self.left_ms(job) * (PPM / then - PPM / now) < -float(self.move_ms[self.gpus[job]]):
                self.places.take(spot)
                return spot
            self._stay(job, spot, old)
        self.places.take(old)
        return None

    def _speeds(self, job: int, old: Spot, new: Spot) -> tuple[int, int]:
        """Return the speed of a gang at its place and at a possible new one, where its traffic uses the new links."""
        if self.network is None:
            return self.speed_on(job, old), self.speed_on(job, new)
        now = self.network.speed(job)
        self.network.leave(job)
        self.network.enter(job, new.nodes)
        return now, self.network.speed(job)

    def _stay(self, job: int, new: Spot, old: Spot) -> None:
        if self.network is not None and len(old.nodes) > 1:
            if len(new.nodes) > 1:
                self.network.leave(job)
            self.network.enter(job, old.nodes)


class DallyLike(Policy):
    """Waits for tiers with timers that tune themselves, and migration to nearer ones."""

    card: ClassVar[Card] = Card(
        name="dally-like",
        title="gangs wait for nearby tiers with self-tuning timers, and move closer if that pays (after Dally)",
        rule=(
            "Jobs are considered in the order of their submission, and no job holds up others. A gang takes GPUs "
            "of one node at once, of one rack after `node` seconds, and of any nodes of one GPU model after "
            "another `rack` seconds. A gang wider than a tier begins with the next tier. If racks are not known, "
            "all nodes are in one rack. Timers are multiplied by the gang's slowdown from one tier to the next "
            "over 0.3, at most by 1, so gangs with little communication do not wait. With tune=on a timer is the "
            "mean plus one standard deviation of the last 20 waits of gangs that got its tier and ask for the "
            "same GPU model, once five are known, and at most `most`. With migrate=on running gangs that could "
            "have a closer tier move, those with the least work done for their run time first, if the move saves "
            "more of the remaining time than it costs. A gang that has moved stays for `quantum` seconds. Speeds "
            "depend on the tiers and on other traffic on the same links."
        ),
        parameters=(
            Parameter("node", 600.0, "initial wait for one node, inf forever [s]"),
            Parameter("rack", 1200.0, "initial further wait for one rack, inf forever [s]"),
            Parameter("most", 3600.0, "longest timer that tuning may set [s]"),
            Parameter("tune", True, "timers follow the waits of other gangs"),
            Parameter("migrate", True, "running gangs move to closer GPUs if that pays"),
            Parameter("quantum", 1800.0, "least time between two moves of a gang [s]"),
            Parameter("overhead", "muri", "preset for the cost of each preemption and migration (M9)"),
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M9", "M36", "M37", "M38"),
        equal_to=(
            "With node=0, rack=0, tune=off, migrate=off: delay-scheduling,rack=0,any=0.",
            "If distance slows no job: delay-scheduling,rack=0,any=0.",
            (
                "With node=inf, tune=off, migrate=off and gangs that fit on a node and slow down by 30 % or more: "
                "delay-scheduling,rack=inf,any=inf."
            ),
        ),
        sources=(
            (
                "Sharma et al., Dally (arXiv 2401.16492), abstract: delay scheduling over tiers, "
                "network-sensitive preemption, self-tuning timers."
            ),
            (
                "Own choices, because we could not read the formulas: every number and test above; preemption is "
                "a migration to free GPUs, and no job is stopped for another; a move costs what M9 says."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by timers and moves."""
        p = self.parameters
        places, network = gangs_and_links(jobs, cluster, models, seed)
        move_ms = overheads(models, p["overhead"], jobs)
        return _Tiers(jobs, places, network, models, p, move_ms).planner(p["gap"], move_ms)
