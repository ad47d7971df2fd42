"""Themis: GPUs under leases, auctioned to the jobs whose finish-time fairness is worst."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.auctions import best_bundles, best_sizes
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.turns import Leases, Turns
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import PPM, elastic_bounds, elastic_ppm
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Themis"]

_MINUTE = 60_000


class _Auctions:
    """One run: leases and finish-time fairness."""

    def __init__(self, policy: Themis, jobs: Jobs, cluster: Cluster, models: Models, view: View) -> None:
        p = policy.parameters
        self.view, self.models = view, models
        self.lease_ms = max(round(p["lease"] * 1000), 1)
        self.share = 1 - p["f"]
        self.most, self.nodes, self.gap = p["bidders"], p["limit"], p["gap"]
        self.elastic, self.released = p["form"] == "elastic", p["waiting"] == "released"
        self.turns = Turns(jobs, cluster, models)
        self.leases = Leases(len(jobs))
        self.submit_ms, self.work_ms = jobs.submit_ms, np.maximum(jobs.work_ms, 1)
        low, high = elastic_bounds(models, jobs.devices)
        self.low, self.high = low.astype(np.int64), high.astype(np.int64)
        self.last: NDArray[np.float64] = np.ones(len(jobs))
        """Ratio of each job when it last had GPUs, 1 before (n,)."""
        self.since_ms: NDArray[np.int64] = jobs.submit_ms.copy()
        """When that was [ms] (n,)."""
        self.draws = np.random.default_rng(0)

    def plan(self, view: View) -> Plan:
        """Return who has GPUs until the first of their leases ends."""
        job, held, now = view.job, view.held, view.now_ms
        running = self.turns.running(view)
        age = (now - self.submit_ms[job]).astype(np.float64)
        expected = age + view.remaining_ms + view.overhead_ms
        rho = expected / self.work_ms[job]
        runs = running >= 0
        self.last[job[runs]], self.since_ms[job[runs]] = rho[runs], now
        if self.released:
            waited = (now - self.since_ms[job[~runs]]) / _MINUTE
            rho[~runs] = self.last[job[~runs]] * (waited + 1)
        bound = runs & ~self.leases.over(job, now)
        free = self.turns.capacity(view, running) - self.turns.pools.used(running[bound], held[bound])
        asked = np.flatnonzero(~bound)
        order = asked[np.lexsort((asked, -rho[asked]))]
        chosen = np.where(bound, running, -1)
        size = np.where(bound, held, 0)
        gpus = self.turns.gpus[job]
        if self.elastic:
            self._elastic(job, order, running, free, chosen, size)
        else:
            if len(order) and not self._room_for_all(order, job, gpus, free):
                bidders = self._bidders(order, rho)
                gain = np.log1p(self.lease_ms / np.maximum(expected[bidders], 1))
                may = self.turns.speed[self.turns.pools.kind[job[bidders]]] > 0
                # A job that runs bids for its own pool alone, so that nobody moves without need.
                own = np.arange(len(free)) == running[bidders][:, None]
                may &= own | (running[bidders] < 0)[:, None]
                won = best_bundles(gain, gpus[bidders], may, free, self.nodes, self.gap)
                chosen[bidders] = won
                free -= np.bincount(won[won >= 0], gpus[bidders[won >= 0]], len(free)).astype(np.int64)
                order = order[chosen[order] < 0]
            # What bidders leave goes to the others, the worst ratio first.
            if len(order) and (free > 0).any():
                chosen[order] = self.turns.choose(job, order, running, free)[order]
            size = np.where(chosen >= 0, gpus, 0)
        granted = job[~bound & (chosen >= 0)]
        self.leases.grant(granted, now + self.lease_ms)
        waits = bool((chosen < 0).any()) or self.elastic
        wake = self.leases.next_end(job[chosen >= 0], now) if waits else -1
        return self._plan(job, held, running, chosen, size, wake)

    def _room_for_all(
        self, order: NDArray[np.int64], job: NDArray[np.int64], gpus: NDArray[np.int64], free: NDArray[np.int64]
    ) -> bool:
        if len(free) > 1:
            return False
        return int(gpus[order].sum()) <= int(free.sum())

    def _bidders(self, order: NDArray[np.int64], rho: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return those with the worst ratio, drawn by lot between equals."""
        count = min(max(int(round(self.share * len(order), 9)), 1), self.most, len(order))
        lots = self.draws.random(len(order))
        return order[np.lexsort((lots, -rho[order]))][:count]

    def _elastic(
        self,
        job: NDArray[np.int64],
        order: NDArray[np.int64],
        running: NDArray[np.int64],
        free: NDArray[np.int64],
        chosen: NDArray[np.int64],
        size: NDArray[np.int64],
    ) -> None:
        """Let bidders have sizes whose speeds have the largest product; then the others, the worst ratio first."""
        count = min(max(int(round(self.share * len(order), 9)), 1), self.most)
        kind = self.turns.pools.kind[job]
        left = free.astype(np.float64)
        mine: dict[int, list[int]] = {}
        for i in order.tolist():
            may = (self.turns.speed[kind[i]] > 0) & (left >= self.low[job[i]])
            if not may.any():
                continue
            pool = int(running[i])
            if pool < 0 or not may[pool]:
                pool = int(np.where(may, left, -np.inf).argmax())
            chosen[i] = pool
            left[pool] -= self.low[job[i]]
            mine.setdefault(pool, []).append(i)
        first = set(order[:count].tolist())
        sigma = self.models.elastic.sigma

        def speed(n: int) -> float:
            return n / (1 + sigma * (n - 1))

        for pool, places in mine.items():
            rest = int(free[pool])
            for part in ([i for i in places if i in first], [i for i in places if i not in first]):
                low, high = self.low[job[part]].tolist(), self.high[job[part]].tolist()
                sizes, rest = best_sizes(low, high, rest, lambda _, n: speed(n))
                size[part] = sizes
        chosen[size == 0] = -1

    def _plan(
        self,
        job: NDArray[np.int64],
        held: NDArray[np.int64],
        running: NDArray[np.int64],
        chosen: NDArray[np.int64],
        size: NDArray[np.int64],
        wake_ms: int,
    ) -> Plan:
        if not self.elastic:
            return self.turns.plan(job, running, chosen, wake_ms)
        named = np.flatnonzero((size != held) | (chosen != running))
        named = named[np.argsort(-size[named], kind="stable")]
        pool = np.maximum(chosen[named], 0)
        rate = elastic_ppm(self.models, self.turns.gpus[job[named]], size[named])
        rate = rate * self.turns.speed[self.turns.pools.kind[job[named]], pool] // PPM
        return Plan(
            job[named],
            size[named],
            rate=np.maximum(rate, 1),
            model=np.where(size[named] > 0, self.turns.pools.model[pool], -1),
            keep=True,
            optional=len(named),
            wake_ms=wake_ms,
        )


class Themis(Policy):
    """Leases and partial auctions."""

    card: ClassVar[Card] = Card(
        name="themis",
        title="GPUs under leases, auctioned to the jobs whose finish-time fairness is worst",
        rule=(
            "Who gets GPUs has them for a lease. At most once in interval seconds, when jobs came or ended or leases "
            "are over, the GPUs that no lease holds are auctioned: of the n jobs without a lease the (1 - f) * n with "
            "the largest ratio bid, at least one, by lot between equals. The ratio is the time from submission to the "
            "end expected with the GPUs asked for, over the work; a waiting job's is the one that it had when it lost "
            "its GPUs times the minutes since then plus one (waiting=released), or the same estimate "
            "(waiting=estimate). In the rigid form a bid is for all GPUs that a job asks for; those win whose values "
            "gain most as a product, a value being the inverse of the ratio now, against that after another lease "
            "without GPUs, by a program of whole numbers. In the elastic form each bidder gets its least number of "
            "GPUs, the worst ratio first, and then every GPU goes where the logarithm of the speed grows most; "
            "nothing is paid for a bid. What bidders leave goes to the other jobs, the worst ratio first. A job whose "
            "lease is renewed stays where it is. Gangs may be spread over nodes."
        ),
        parameters=(
            Parameter(
                "form", "rigid", "jobs keep the GPUs that they ask for, or change them by lease", ("rigid", "elastic")
            ),
            Parameter("f", 0.8, "share of the jobs, those with the smallest ratios, that do not bid [1]", maximum=1),
            Parameter("lease", 1200.0, "length of a lease [s]", minimum=0.001),
            Parameter("waiting", "released", "ratio of a waiting job", ("released", "estimate")),
            Parameter("interval", 60.0, "least time between two auctions [s]"),
            Parameter("bidders", 64, "most jobs that bid at once", minimum=1, maximum=10_000),
            Parameter("gap", 0.01, "what the program may miss of the largest product, as a share of its logarithm [1]"),
            Parameter("limit", 1000, "most nodes of the program's search, whose best so far then counts, 0 any number"),
            Parameter("resize", 30.0, "cost of a change in the number of GPUs [s]"),
            Parameter("overhead", "none", "preset of what each preemption and migration costs (M9)"),
        ),
        assumptions=("D1", "M8", "M9", "M4"),
        equal_to=(
            "With room for all, form=rigid: every job starts at the next auction and none is stopped.",
            (
                "With an endless lease, interval=0, and jobs of one GPU alike in work, form=rigid: the ends of "
                "fifo,scan=skip, up to who of those that came together goes first."
            ),
        ),
        sources=(
            (
                "Mahajan et al., Themis (NSDI'20): leases, partial auctions, f; by the first author's released "
                "simulator the ideal time is the work at full size without a factor for contention, a waiting job's "
                "ratio, the number of bidders and the lot, the product of speeds, no payments and no cost of leases."
            ),
            (
                "Own choices: each job is an app; 20 minutes and the minute of a waiting job's ratio, as units are not "
                "stated; the value of a rigid bid; interval, bidders; the released lease test, by which a job spread "
                "over nodes ends its lease sooner, is a fault and left out."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans by auctions."""
        run: _Auctions | None = None

        def plan(view: View) -> Plan:
            nonlocal run
            if run is None or run.view is not view:
                run = _Auctions(self, jobs, cluster, models, view)
            return run.plan(view)

        p = self.parameters
        _, high = elastic_bounds(models, jobs.devices)
        largest = math.ceil(high.max(initial=1))
        return Planner(
            plan,
            gap_ms=round(p["interval"] * 1000),
            overhead_ms=overhead_ms(models, p["overhead"], np.arange(largest + 1)),
            resize_ms=round(p["resize"] * 1000),
        )
