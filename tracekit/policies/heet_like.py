"""Heet, as far as its rule is known: elastic jobs matched with GPU types by a price, grown by it, and traded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.pools import pool_fits, pool_speeds
from tracekit.policies.resizing import GAP, RESIZE, Sizes, Wish
from tracekit.policies.type_trades import Traders, change_places, match_types, move_to_idle
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["HeetLike"]


class _Prices:
    """Plans by the prices of types and sizes."""

    def __init__(self, policy: HeetLike, jobs: Jobs, cluster: Cluster, models: Models) -> None:
        p = policy.parameters
        self.balance, self.candidates = p["balance"], p["candidates"]
        self.margin = p["margin"] if p["trade"] else np.inf
        if not p["elastic"]:
            models = replace(models, elastic=replace(models.elastic, rigid=True))
        self.models, self.rigid = models, models.elastic.rigid
        self.sizes = Sizes(jobs, cluster, models, "place")
        most = int(self.sizes.high.max(initial=1))
        self.cost_ms = overhead_ms(models, p["overhead"], np.arange(most + 1))
        self.pools = self.sizes.pools
        fits = pool_fits(self.pools, jobs, cluster) if self.rigid else True
        self.speed = np.where(fits, pool_speeds(self.pools, jobs, cluster, models), 0)
        """Speed of each kind in each pool with the GPUs it asks for; 0 where it may not run [ppm] (K, P)."""
        power = np.arange(most + 1) ** self.balance
        scale = np.ones(most + 1) if self.rigid else np.maximum(self.sizes.speed, 1.0)
        self.on_one = scale[self.sizes.requested]
        """Run time of each job on one GPU, in units of that on those it asks for (n,)."""
        self.factor = power / scale
        self.factor[0] = np.inf
        """What 0, 1, ... GPUs do to the price of a job, which is its time on one GPU (most + 1,)."""
        self.toll = power * self.cost_ms
        price = self._on_one(np.arange(len(jobs)), jobs.work_ms.astype(np.float64))
        self.least = (price * self.factor[self.sizes.low][:, None]).min(axis=1, initial=np.inf)
        """Least price of each job at its minimum, before it runs (n,)."""

    def plan(self, view: View) -> Plan:
        """Return what each job has until something happens."""
        wish, left = self.sizes.begin(view), view.remaining_ms.astype(np.float64)
        job, before = wish.job, wish.before
        runs = np.flatnonzero(before >= 0)
        least = self.sizes.low[job]
        wish.gpus[runs] = least[runs]
        wish.free -= np.bincount(before[runs], least[runs], len(wish.free)).astype(np.int64)
        rows, price = self._waiting(wish, least), np.zeros((0, len(wish.free)))
        if len(rows):
            price = self._on_one(job[rows], left[rows]) * self.factor[least[rows]][:, None]
            order = np.argsort(price.min(axis=1), kind="stable")
            rows, price = rows[order], price[order]
            wish.pool[rows] = match_types(price, least[rows], wish.free)
            wish.gpus[rows] = np.where(wish.pool[rows] >= 0, least[rows], 0)
        self._grow(wish, left)
        if self.margin < np.inf and len(wish.free) > 1:
            self._trade(wish, left + view.overhead_ms)
            self._grow(wish, left)
        return self._named(wish, rows, price)

    def _on_one(self, job: NDArray[np.int64], left_ms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the time of jobs on one GPU of each pool; infinite where they may not run [ms] (m, P)."""
        speed = self.speed[self.pools.kind[job]] / PPM
        time = np.full(speed.shape, np.inf)
        np.divide((left_ms * self.on_one[job])[:, None], speed, out=time, where=speed > 0)
        return time

    def _waiting(self, wish: Wish, least: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of the jobs that are matched: of those for which there is room the cheapest."""
        rows = np.flatnonzero((wish.before < 0) & (least <= wish.free.max(initial=0)))
        kind = self.pools.kind[wish.job[rows]]
        if len(wish.free) > 1:
            fits = ((least[rows, None] <= wish.free) & (self.speed[kind] > 0)).any(axis=1)
            rows, kind = rows[fits], kind[fits]
        return rows[self.pools.best(-self.least[wish.job[rows]], kind, self.candidates)]

    def _grow(self, wish: Wish, left_ms: NDArray[np.float64]) -> None:
        """Give jobs GPUs one by one, where that lowers a price most."""
        if self.rigid:
            return
        place, gpus = self.sizes.steps(wish)
        job = wish.job[place]
        speed = self.speed[self.pools.kind[job], wish.pool[place]] / PPM
        time = left_ms[place] * self.on_one[job] / np.maximum(speed, 1 / PPM)
        self.sizes.grow(wish, place, time * (self.factor[gpus] - self.factor[gpus + 1]))

    def _trade(self, wish: Wish, left_ms: NDArray[np.float64]) -> None:
        """Let jobs of as many GPUs change places, and move to idle ones, where that saves enough."""
        has = np.flatnonzero(wish.gpus > 0)
        job = wish.job[has]
        traders = Traders(
            price=self._on_one(job, left_ms[has]),
            factor=self.factor,
            toll=self.toll,
            before=wish.before[has],
            low=self.sizes.low[job],
            high=self.sizes.high[job],
            gpus=wish.gpus[has],
            pool=wish.pool[has],
            margin=self.margin,
        )
        change_places(traders)
        move_to_idle(traders, wish.free)
        wish.pool[has], wish.gpus[has] = traders.pool, traders.gpus

    def _named(self, wish: Wish, rows: NDArray[np.int64], price: NDArray[np.float64]) -> Plan:
        """Return the plan: running jobs that change, then those that were matched, the cheapest first."""
        changes = (wish.gpus != wish.held) | (wish.pool != wish.before)
        moved = np.flatnonzero(changes & (wish.before >= 0))
        starts = rows[wish.gpus[rows] > 0]
        # Gangs on the fewest nodes may find no place: those after them may then have theirs.
        late = rows[wish.gpus[rows] == 0] if self.rigid else rows[:0]
        pool = wish.pool.copy()
        if len(late):
            pool[rows] = np.where(wish.gpus[rows] > 0, pool[rows], price.argmin(axis=1))
        line = np.concatenate([moved, starts, late])
        job = wish.job[line]
        gpus = np.where(wish.gpus[line] > 0, wish.gpus[line], self.sizes.low[job])
        rate = self.speed[self.pools.kind[job], pool[line]] * elastic_ppm(self.models, self.sizes.requested[job], gpus)
        return Plan(
            job,
            gpus,
            rate=np.maximum(rate // PPM, 1),
            model=self.pools.model[pool[line]],
            keep=True,
            optional=len(line),
        )


class HeetLike(Policy):
    """Elastic jobs on several types."""

    card: ClassVar[Card] = Card(
        name="heet-like",
        title="elastic jobs matched with GPU types by a price, grown by it, and traded between types (after Heet)",
        rule=(
            "When a job came or ended, at most once in gap seconds, all GPUs are divided anew. A price weighs how soon "
            "a job ends against what its GPUs are used for: its time to the end with n GPUs of a type, times n to the "
            "power of balance, so that 0 looks at the time alone and 1 at the GPU time. Running jobs keep the least "
            "number of GPUs that they can run on, on their type. Waiting jobs are matched with the types, each with "
            "the least number: as many as can be have places, for the least sum of prices. A type has as many "
            "places as the smallest of them would find there; those matched start in the order of their prices, as "
            "long as there are GPUs, and the others are matched again with what is left. Then one GPU after the other "
            "goes to the job whose price it lowers most, up to its maximum, and to nobody where no price falls. Last, "
            "jobs with as many GPUs on different types change places, and jobs move to as many idle GPUs of another "
            "type as suit them, where that lowers their prices by at least margin, the cost of moving included; what "
            "they leave goes to those whose prices it lowers. Gangs may be spread over nodes of a type. With "
            "elastic=off, or where no job is elastic (rigid), jobs have the GPUs they ask for, on the fewest nodes."
        ),
        parameters=(
            Parameter("balance", 0.5, "power of the number of GPUs in the price [0..1]", maximum=1),
            Parameter("trade", True, "running jobs may change places with others, or move to idle GPUs"),
            Parameter("margin", 0.1, "part of the prices of those who trade that has to be saved [0..1]", maximum=1),
            Parameter("elastic", True, "jobs run on other numbers of GPUs than they ask for"),
            Parameter(
                "candidates",
                100,
                "waiting jobs that a plan looks at, in each part of a divided cluster those of least price",
                minimum=1,
                maximum=1000,
            ),
            GAP,
            RESIZE,
            Parameter("overhead", "voda", "preset of what each preemption and migration costs (M9)"),
        ),
        assumptions=("D1", "D3", "D6", "M4", "M8", "M9"),
        equal_to=(
            "With one type, elastic=off, gap=0 and balance=1: ssf,scan=skip; with balance=0: sjf,scan=skip.",
            "With one type: trade=off is trade=on.",
            "With balance=1 and room for the minimum of all: every job has its minimum.",
            "With one type, balance=0 and room for the maximum of all: every job has its maximum.",
        ),
        sources=(
            (
                "Mo et al., Heet (ASPLOS'24), abstract: scaling efficiency by type, a price that weighs scaling "
                "against scheduling efficiency, minimum-weight full bipartite matching, opportunistic trading."
            ),
            (
                "Own choices: the price itself; scaling and speeds known, the same curve on all types (M8, D6), in "
                "place of a profile filled in by collaborative filtering; matchings at the minimum, then growth by "
                "steps; places by the smallest job; who trades; run times left are known; a type that a job does not "
                "name is used where its speed is known."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans after events."""
        prices = _Prices(self, jobs, cluster, models)
        return Planner(
            prices.plan,
            gap_ms=round(self.parameters["gap"] * 1000),
            any_model=True,
            scope=0 if prices.rigid else 2,
            overhead_ms=prices.cost_ms,
            resize_ms=round(self.parameters["resize"] * 1000),
        )
