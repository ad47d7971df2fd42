"""Policies that place gangs one by one, by tiers and links, and never stop them. Includes delay scheduling."""

from __future__ import annotations

import math
from collections import deque
from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.network_tiers import ANYWHERE, FEWEST, RACK, Network, Places, Spot
from tracekit.policies.parameters import NOISE, believed, scan
from tracekit.policies.plans import Planned, Plans
from tracekit.replay.assumptions.speeds import PPM, spread_ppm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.array_types import Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


GAP = Parameter("gap", 60.0, "minimum time between two plans triggered by events [s]")

LINKS = Parameter("links", True, "derive speeds from tiers and link traffic (M36 to M38); if off, from M4 alone")


Key: TypeAlias = tuple[int, ...]


class Waits:
    """The latest waits by key, such as (GPU model, tier).

    Parameters
    ----------
    length : int
        Number of waits kept for each key.
    """

    def __init__(self, length: int = 20) -> None:
        self._length = length
        self._of: dict[Key, deque[float]] = {}

    def add(self, key: Key, wait_ms: float) -> None:
        """Record a wait [ms]."""
        self._of.setdefault(key, deque(maxlen=self._length)).append(wait_ms)

    def mean(self, key: Key, least: int, otherwise: float) -> float:
        """Return the mean wait [ms], or `otherwise` if fewer than `least` waits are known."""
        known = self._of.get(key, ())
        return sum(known) / len(known) if len(known) >= max(least, 1) else otherwise

    def upper(self, key: Key, least: int, otherwise: float) -> float:
        """Return the mean wait plus a standard deviation [ms], or `otherwise` if fewer than `least` waits are known."""
        known = self._of.get(key, ())
        if len(known) < max(least, 1):
            return otherwise
        mean = sum(known) / len(known)
        return mean + sqrt(sum((wait - mean) ** 2 for wait in known) / len(known))


_CHUNK = 256
"""Number of jobs after which to check again which jobs still fit."""


class Gangs(Plans):
    """Plans that consider waiting jobs one by one and never preempt.

    By default, jobs start in submission order on the free GPUs that are closest together. Policies override parts of
    this.
    """

    def set_up(self) -> None:
        """Read the parameters links, scan, look and noise, if the policy has them."""
        p, jobs = self.p, self.jobs
        self.links: bool = p.get("links", True)
        """Whether tiers and link traffic determine speeds. If not, the engine slows spread gangs (M4)."""
        self.stop: bool = p.get("scan") == "stop"
        """Whether later jobs of a domain wait behind a job that does not start."""
        self.look: int = p.get("look", 1_000_000_000)
        """Number of failed starts after which a plan stops looking."""
        self.places = Places(jobs, self.cluster)
        self.network = Network(jobs, self.cluster, self.models, self.seed, self.places, priority=self.priority())
        self.arrival_ms = jobs.arrival_ms
        estimate = believed(jobs, self.models, p["noise"], self.seed) if "noise" in p else None
        self.error_ms = np.zeros(len(jobs), np.int64) if estimate is None else estimate - jobs.work_ms
        """Estimated minus true run time of each job [ms] (n,)."""
        self._runs = np.zeros(len(jobs), np.bool_)
        self.settings.update(names_nodes=True, wide=True, spread=not self.links)

    def priority(self) -> Floats | None:
        """Return the priority of each job's traffic (see `Network`) (n,)."""
        return None

    def begin(self, view: View) -> None:
        """Begin a run, in which no gang has GPUs yet."""
        self.view = view
        self.spots: dict[int, Spot] = {}
        """Nodes and GPUs of each running job."""
        self._wake_ms = -1
        self.network.clear()

    def choose(self, job: int) -> Spot | None:
        """Return the spot where a waiting job starts now, or None if it waits."""
        found = (self.places.find(job, tier) for tier in (FEWEST, RACK, ANYWHERE))
        return next((spot for spot in found if spot is not None), None)

    def with_room(self, job: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield each GPU model's nodes if they have enough free GPUs for a job, with their free GPUs."""
        pool = self.places.pools[int(self.places.job_pool[job])]
        for low, high, _ in pool.models:
            nodes = pool.nodes[low:high]
            free = self.places.free[nodes]
            if int(free.sum()) >= self.gpus[job]:
                yield nodes, free

    def order(self, waiting: Ints) -> Ints:
        """Sort waiting jobs, given in submission order, into the order in which the plan considers them."""
        return waiting

    def moves(self) -> dict[int, Spot]:
        """Return running jobs that move and their new spots, and remove the old spots from `places` and `network`."""
        return {}

    def started(self, job: int, spot: Spot) -> None:
        """Handle a job that starts."""

    def ended(self, job: int, spot: Spot) -> None:
        """Handle a job that has ended since the last plan."""

    def left_ms(self, job: int) -> float:
        """Return a job's estimated remaining run time at its recorded speed, at least 1 [ms]."""
        return max(float(self.view.table["remaining"][job]) / PPM + float(self.error_ms[job]), 1.0)

    def speed_on(self, job: int, spot: Spot) -> int:
        """Return a job's speed on a spot if it started there now, given the other jobs' traffic [ppm]."""
        if self.links:
            return self.network.speeds_with(job, spot.nodes)[job]
        least = -(-int(self.gpus[job]) // int(self.places.gpus[spot.nodes].max()))
        return int(spread_ppm(self.models, int(self.gpus[job]), len(spot.nodes), least))

    def cost_ms(self, job: int, spot: Spot) -> float:
        """Return a job's expected remaining time on a spot, plus the delay it causes on shared links [ms].

        All jobs are assumed to keep these speeds.
        """
        then = self.network.speeds_with(job, spot.nodes)
        found = self.left_ms(job) * PPM / then.pop(job)
        for other, speed in then.items():
            found += self.left_ms(other) * (PPM / speed - PPM / self.network.speed(other))
        return found

    def wake(self, time_ms: float) -> None:
        """Request a plan at a later time [ms]."""
        if time_ms < 2**62 and (self._wake_ms < 0 or time_ms < self._wake_ms):
            self._wake_ms = int(np.ceil(time_ms))

    def plan(self, view: View) -> Plan:
        """Return the jobs that start or move now, and the changed speeds."""
        job, running = view.job, view.running
        self._follow(view, job[running])
        changed = self.moves()
        rates = dict.fromkeys(changed, PPM)
        for other in self._candidates(job[~running]):
            spot = self.choose(other)
            if spot is None:
                if self.stop:
                    self._stopped.add(self.places.pools[int(self.places.job_pool[other])].domain)
                continue
            self.places.take(spot)
            self.spots[other] = changed[other] = spot
            rates[other] = PPM
            if self.links:
                self.network.enter(other, spot.nodes)
            self.started(other, spot)
        if self.links:
            changed_speed = self.network.take_changed()
            rates |= zip(changed_speed, self.network.speeds(changed_speed), strict=True)
        return self.written((), rates, changed, self._wake_ms)

    def _follow(self, view: View, running: Ints) -> None:
        """Begin a plan and remove jobs that have ended."""
        self.now_ms, self._wake_ms = view.now_ms, -1
        self._stopped: set[int] = set()
        if len(running) < len(self.spots):
            mine = np.fromiter(self.spots, np.int64, len(self.spots))
            self._runs[running] = True
            ended = mine[~self._runs[mine]].tolist()
            self._runs[running] = False
            for j in ended:
                self.ended(j, self.spots.pop(j))
                self.network.leave(j)
        self.places.renew(view.node_free)

    def _candidates(self, waiting: Ints) -> Iterator[int]:
        """Yield waiting jobs with enough free GPUs, in order, or all of them if a blocked job blocks later ones."""
        places, refused = self.places, 0
        ordered = self.order(waiting if self.stop else self._that_fit(waiting))
        for low in range(0, len(ordered), _CHUNK):
            chunk = ordered[low : low + _CHUNK]
            for job in (chunk if self.stop else self._that_fit(chunk)).tolist():
                if max(places.room) == 0 or refused >= self.look:
                    return
                pool = int(places.job_pool[job])
                if places.pools[pool].domain in self._stopped:
                    continue
                if self.stop or self.gpus[job] <= places.room[pool]:
                    yield job
                    refused += job not in self.spots

    def _that_fit(self, waiting: Ints) -> Ints:
        """Return the jobs for which enough GPUs are free."""
        return waiting[self.gpus[waiting] <= np.array(self.places.room, np.int64)[self.places.job_pool[waiting]]]


_KNOWN = 5
"""Minimum number of known waits for a mean."""


class _Delays(Gangs):
    """Gangs that wait for a tier."""

    def set_up(self) -> None:
        """Read the timers."""
        super().set_up()
        p = self.p
        any_ms = p["any"] * 1000
        self.after_ms, self.cost = (0.0, min(p["rack"] * 1000, any_ms), any_ms), p["cost"]

    def begin(self, view: View) -> None:
        """Begin a run, in which no waits are known yet."""
        super().begin(view)
        self.waits = Waits()

    def order(self, waiting: Ints) -> Ints:
        """Return jobs in submission order, and forget the ends computed for the last plan."""
        self._ends: list[tuple[float, int]] | None = None
        self._release: dict[int, float] = {}
        return waiting

    def choose(self, job: int) -> Spot | None:
        """Return the free GPUs closest together, unless the job waits for closer ones."""
        nearest = self.places.nearest[int(self.places.kind[job])]
        for tier in range(nearest, ANYWHERE + 1):
            spot = self.places.find(job, tier)
            if spot is not None and (tier == nearest or not self._waits(job, spot, tier, nearest)):
                return spot
        return None

    def _waits(self, job: int, spot: Spot, tier: int, nearest: int) -> bool:
        """Return whether a job waits for a closer tier instead of taking this spot."""
        due_ms = float(self.arrival_ms[job]) + self.after_ms[tier]
        if due_ms <= self.now_ms or (self.cost != "off" and not self._pays(job, spot, nearest, due_ms)):
            return False
        self.wake(due_ms)
        return True

    def _pays(self, job: int, spot: Spot, nearest: int, due_ms: float) -> bool:
        """Return whether a spot costs a job more time than the expected wait for its closest tier."""
        lost_ms = self.left_ms(job) * (PPM / self.speed_on(job, spot) - 1)
        kind = int(self.places.kind[job])
        if self.cost == "oracle":
            if kind not in self._release:
                self._release[kind] = self._release_ms(job, nearest)
            return self._release[kind] - self.now_ms < lost_ms
        return self.waits.mean((kind,), _KNOWN, due_ms - self.now_ms) < lost_ms

    def _release_ms(self, job: int, tier: int) -> float:
        """Return when a tier has room if no other job starts and speeds do not change, or inf for never [ms]."""
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
        """Return the ends of running jobs, ascending [ms], excluding jobs that start now."""
        if self._ends is None:
            job, rate, overhead, running = self.view.job, self.view.rate, self.view.overhead_ms, self.view.running
            rows = zip(job[running].tolist(), rate[running].tolist(), overhead[running].tolist(), strict=True)
            self._ends = sorted((self.now_ms + o + self.left_ms(j) * PPM / max(r, 1), j) for j, r, o in rows)
        return self._ends

    def started(self, job: int, spot: Spot) -> None:
        """Record the wait of a gang that got the fewest nodes."""
        if self.cost != "mean":
            return
        kind = int(self.places.kind[job])
        if len(spot.nodes) <= -(-int(self.gpus[job]) // int(self.places.gpus[spot.nodes].max())):
            self.waits.add((kind,), float(self.now_ms - self.arrival_ms[job]))


class DelayScheduling(Planned):
    """Gangs wait for a limited time for GPUs close together (delay scheduling).

    Jobs start in submission order and run to their end. At first a gang accepts only the fewest possible nodes of one
    rack. After `rack` seconds it accepts any nodes of one rack, and after `any` seconds any nodes of one GPU model.
    Until then, later jobs may overtake it (scan=skip) or must wait as well (scan=stop). With cost=mean or cost=oracle,
    a gang waits only while it pays: the expected wait must be shorter than the gang's remaining run time times the
    slowdown of the spot where it could start now. With cost=mean, the expected wait is the mean wait of the last 20
    gangs of its kind that got the fewest nodes. If fewer than five are known, the gang expects to wait until the timer
    ends. With cost=oracle, the expected wait ends when running jobs have freed enough GPUs, if no other job starts. A
    gang that never fits in one rack accepts any nodes at once, and a gang that can never get the fewest nodes accepts
    any nodes of one rack at once. If racks are not known, all nodes count as one rack. Nodes are chosen as under the
    placement consolidate. Speeds depend on the tiers and on other traffic on the same links.

    Equal to
    --------
    - With rack=inf, any=inf and gap=0, the policy equals fifo,scan=skip. With scan=stop, it equals fifo.
    - With rack=T, any=inf, links=off and gap=0, the policy equals fifo,scan=skip,relax=T,relax_to=rack.
    - With rack=0, any=0, links=off, gap=0, one GPU model and no cost of spreading, the policy equals
      fifo,scan=skip,fit=count.
    - With one-GPU jobs, all settings give the same schedule.
    - With links=off and no cost of spreading, cost=oracle equals rack=0,any=0.

    Sources
    -------
    - Zaharia et al., Delay Scheduling (EuroSys'10): a task waits for a nearby place while other tasks start.
    - Our choices: a timer for each gang from its submission to its start, in seconds instead of refused offers; the
      three tiers; the cost test and the expected wait.
    """

    plans = _Delays
    card = Card(
        name="delay-scheduling",
        parameters=(
            Parameter("rack", 600.0, "wait after which a gang accepts any nodes of one rack, or inf for never [s]"),
            Parameter("any", 1800.0, "wait after which a gang accepts any nodes of a GPU model, or inf for never [s]"),
            Parameter(
                "cost",
                "off",
                "whether a gang waits only while it pays, and how its wait is estimated",
                ("off", "mean", "oracle"),
            ),
            scan("skip"),
            NOISE,
            LINKS,
            GAP,
        ),
        assumptions=("D1", "M4", "M11", "M36", "M37", "M38"),
    )
