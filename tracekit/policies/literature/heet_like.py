"""Heet, as far as its rule is known: elastic jobs matched to GPU types by a price, grown by it, and traded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.literature.resizing import GAP, RESIZE, Sizes, Wish
from tracekit.policies.parameters import overheads
from tracekit.policies.pools import pool_fits, pool_speeds
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan, Planner, View


# Jobs between GPU types: a matching by price, and trades that lower the sum of the prices.


def match_types(price: Floats, gpus: Ints, free: Ints) -> Ints:
    """Return the pool of each job, -1 none: matchings that place as many jobs as possible, for the lowest sum.

    A pool has as many places as its smallest job would find in it. Matched jobs get their GPUs in the order of their
    prices while GPUs last; the others are matched again to what is left.

    Parameters
    ----------
    price : array (m, P)
        Price for each job in each pool; infinite if it may not run there.
    gpus : array (m,)
        GPUs of each job.
    free : array (P,)
        Free GPUs of each pool; reduced by the GPUs taken.
    """
    from scipy.optimize import linear_sum_assignment

    found = np.full(len(gpus), -1)
    rest = np.arange(len(gpus))
    while len(rest):
        able = np.isfinite(price[rest]) & (gpus[rest, None] <= free)
        rest, able = rest[able.any(axis=1)], able[able.any(axis=1)]
        if not len(rest):
            break
        least = np.min(np.broadcast_to(gpus[rest, None], able.shape), axis=0, initial=2**62, where=able)
        pools = np.repeat(np.arange(len(free)), np.minimum(free // least, len(rest)))
        if pools[0] == pools[-1]:
            # With one column for all, the cheapest are the best.
            row = np.flatnonzero(able[:, pools[0]])
            row = row[np.argsort(price[rest[row], pools[0]], kind="stable")]
            pairs = np.column_stack([row, np.full(len(row), pools[0])])
        else:
            # A price that no matching reaches, so matchings with the fewest such prices are cheapest.
            highest = float(price[rest][able].max())
            cost = np.where(able, price[rest], (highest + 1.0) * (len(rest) + 1))
            row, column = linear_sum_assignment(cost[:, pools])
            pairs = np.column_stack([row, pools[column]])
            pairs = pairs[able[row, pools[column]]]
            pairs = pairs[np.argsort(price[rest[pairs[:, 0]], pairs[:, 1]], kind="stable")]
        for row, pool in pairs.tolist():
            job = rest[row]
            if gpus[job] <= free[pool]:
                found[job], free[pool] = pool, free[pool] - gpus[job]
        rest = rest[found[rest] < 0]
    return found


@dataclass
class Traders:
    """Jobs with GPUs; m jobs, P pools. The price of a job with n GPUs is that of one GPU times `factor[n]`.

    If it must leave a pool for that, `toll[n]` is added.
    """

    price: Floats
    """Price of each on one GPU of each pool; infinite if it may not run there (m, P)."""
    factor: Floats
    """Factor of a price by 0, 1, ... GPUs; it falls, and then rises."""
    toll: Floats
    """Price of leaving a pool with 0, 1, ... GPUs."""
    before: Ints
    """Pool that a job would have to leave; -1 none (m,)."""
    low: Ints
    """Fewest GPUs (m,)."""
    high: Ints
    """Most GPUs (m,)."""
    gpus: Ints
    """GPUs of each; overwritten (m,)."""
    pool: Ints
    """Where each is; overwritten (m,)."""
    margin: float
    """Share of the traders' prices that a trade must save, and more [0..1]."""

    def prices(self, gpus: Ints) -> Floats:
        """Return the prices with this many GPUs (m, 1) or (m, P) in each pool (m, P)."""
        leaves = (self.before[:, None] >= 0) & (self.before[:, None] != np.arange(self.price.shape[1]))
        return self.price * self.factor[gpus] + np.where(leaves, self.toll[gpus], 0.0)


def change_places(traders: Traders) -> None:
    """Let jobs of two pools with equal numbers of GPUs swap places, while that saves enough.

    Between two pools the jobs that gain most by moving change first, the most with the most; that is the least sum of
    prices that jobs of one size reach between them.
    """
    price = traders.prices(traders.gpus[:, None])
    here = price[np.arange(len(price)), traders.pool]
    # If two jobs save a share of their prices together, one of them saves at least that share of its own.
    if not (price.min(axis=1, initial=np.inf) < (1 - traders.margin) * here).any():
        return
    for one, other in combinations(range(price.shape[1]), 2):
        sides = [
            np.flatnonzero((traders.pool == a) & np.isfinite(price[:, b])) for a, b in ((one, other), (other, one))
        ]
        gains = [price[jobs, b] - price[jobs, a] for jobs, a, b in zip(sides, (one, other), (other, one), strict=True)]
        best = np.full((2, len(traders.factor)), np.inf)
        for row, jobs, gain in zip(best, sides, gains, strict=True):
            np.minimum.at(row, traders.gpus[jobs], gain)
        for size in np.flatnonzero(best.sum(axis=0) < 0).tolist():
            line = []
            for jobs, gain in zip(sides, gains, strict=True):
                same = np.flatnonzero(traders.gpus[jobs] == size)
                same = same[np.argsort(gain[same], kind="stable")]
                line.append((jobs[same], gain[same]))
            (ours, first), (theirs, second) = line
            pairs = min(len(ours), len(theirs))
            ours, theirs = ours[:pairs], theirs[:pairs]
            saves = first[:pairs] + second[:pairs] < -traders.margin * (price[ours, one] + price[theirs, other])
            # No later pair saves more.
            last = pairs if saves.all() else int(saves.argmin())
            traders.pool[ours[:last]], traders.pool[theirs[:last]] = other, one


def move_to_idle(traders: Traders, free: Ints) -> None:
    """Let jobs move to suitable idle GPUs of another type while that saves enough: the largest saving first.

    Parameters
    ----------
    traders : Traders
    free : array (P,)
        Idle GPUs of each pool; overwritten.
    """
    suits = int(traders.factor.argmin())
    moved = len(traders.pool) > 0 and len(free) > 1
    while moved:
        moved = False
        most = np.minimum(traders.high[:, None], free)
        gpus = np.clip(suits, traders.low[:, None], np.maximum(most, traders.low[:, None]))
        now = traders.prices(traders.gpus[:, None])[np.arange(len(traders.pool)), traders.pool]
        saving = now[:, None] - traders.prices(gpus)
        able = (most >= traders.low[:, None]) & (saving > traders.margin * now[:, None])
        able &= traders.pool[:, None] != np.arange(len(free))
        job, pool = np.nonzero(able)
        seen = set[int]()
        for at in np.argsort(-saving[job, pool], kind="stable").tolist():
            who, there = int(job[at]), int(pool[at])
            if who not in seen and gpus[who, there] <= free[there]:
                seen.add(who)
                moved = True
                free[traders.pool[who]] += traders.gpus[who]
                free[there] -= gpus[who, there]
                traders.pool[who], traders.gpus[who] = there, gpus[who, there]


class _Prices:
    """Plans by the prices of types and sizes."""

    def __init__(self, p: dict[str, Any], jobs: Jobs, cluster: Cluster, models: Models) -> None:
        self.balance, self.candidates = p["balance"], p["candidates"]
        self.margin = p["margin"] if p["trade"] else np.inf
        self.sizes = Sizes(jobs, cluster, models, "place", rigid=not p["elastic"])
        self.models, self.rigid = self.sizes.models, self.sizes.models.elastic.rigid
        self.pools = self.sizes.pools
        fits = pool_fits(self.pools, jobs, cluster) if self.rigid else True
        self.speed = np.where(fits, pool_speeds(self.pools, jobs, cluster, models), 0)
        """Speed of each kind in each pool with the GPUs it asks for; 0 if it may not run there [ppm] (K, P)."""
        cost_ms = overheads(models, p["overhead"], self.sizes.high)
        power = np.arange(len(cost_ms)) ** self.balance
        scale = np.ones(len(cost_ms)) if self.rigid else np.maximum(self.sizes.speed, 1.0)
        self.on_one = scale[self.sizes.requested]
        """Run time of each job on one GPU, relative to that on the GPUs it asks for (n,)."""
        self.factor = power / scale
        self.factor[0] = np.inf
        """Factor of a job's price by 0, 1, ... GPUs; the price is its time on one GPU (most + 1,)."""
        self.toll = power * cost_ms
        price = self._on_one(np.arange(len(jobs)), jobs.work_ms.astype(np.float64))
        self.least = (price * self.factor[self.sizes.low][:, None]).min(axis=1, initial=np.inf)
        """Least price of each job at its minimum, before it runs (n,)."""

    def plan(self, view: View) -> Plan:
        """Return the GPUs of each job until the next event."""
        wish, left = self.sizes.wish(view), view.remaining_ms.astype(np.float64)
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

    def _on_one(self, job: Ints, left_ms: Floats) -> Floats:
        """Return the time of jobs on one GPU of each pool; infinite if they may not run there [ms] (m, P)."""
        speed = self.speed[self.pools.kind[job]] / PPM
        time = np.full(speed.shape, np.inf)
        np.divide((left_ms * self.on_one[job])[:, None], speed, out=time, where=speed > 0)
        return time

    def _waiting(self, wish: Wish, least: Ints) -> Ints:
        """Return the places of the jobs to match: of the jobs that fit, the cheapest."""
        rows = np.flatnonzero((wish.before < 0) & (least <= wish.free.max(initial=0)))
        kind = self.pools.kind[wish.job[rows]]
        if len(wish.free) > 1:
            fits = ((least[rows, None] <= wish.free) & (self.speed[kind] > 0)).any(axis=1)
            rows, kind = rows[fits], kind[fits]
        return rows[self.pools.best(-self.least[wish.job[rows]], kind, self.candidates)]

    def _grow(self, wish: Wish, left_ms: Floats) -> None:
        """Give jobs GPUs one by one, where each lowers a price most."""
        if self.rigid:
            return
        place, gpus = self.sizes.steps(wish)
        job = wish.job[place]
        speed = self.speed[self.pools.kind[job], wish.pool[place]] / PPM
        time = left_ms[place] * self.on_one[job] / np.maximum(speed, 1 / PPM)
        self.sizes.grow(wish, place, time * (self.factor[gpus] - self.factor[gpus + 1]))

    def _trade(self, wish: Wish, left_ms: Floats) -> None:
        """Let jobs with equal numbers of GPUs swap places, or move to idle GPUs, if that saves enough."""
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

    def _named(self, wish: Wish, rows: Ints, price: Floats) -> Plan:
        """Return the plan: running jobs that change, then the matched jobs, the cheapest first."""
        changes = (wish.gpus != wish.held) | (wish.pool != wish.before)
        moved = np.flatnonzero(changes & (wish.before >= 0))
        starts = rows[wish.gpus[rows] > 0]
        # Gangs on the fewest nodes may find no place; later jobs may then get theirs.
        late = rows[wish.gpus[rows] == 0] if self.rigid else rows[:0]
        pool = wish.pool.copy()
        if len(late):
            pool[rows] = np.where(wish.gpus[rows] > 0, pool[rows], price.argmin(axis=1))
        line = np.concatenate([moved, starts, late])
        job = wish.job[line]
        gpus = np.where(wish.gpus[line] > 0, wish.gpus[line], self.sizes.low[job])
        rate = self.speed[self.pools.kind[job], pool[line]] * elastic_ppm(self.models, self.sizes.requested[job], gpus)
        return self.pools.plan(job, gpus, pool[line], rate // PPM)


class HeetLike(Policy):
    """Elastic jobs on several types."""

    card: ClassVar[Card] = Card(
        name="heet-like",
        title="elastic jobs matched to GPU types by a price, grown by it, and traded between types (after Heet)",
        rule=(
            "When a job arrives or ends, but at most once every gap seconds, all GPUs are divided anew. A price "
            "weighs how soon a job ends against the GPUs it uses: its time to the end with n GPUs of a type, "
            "times n to the power of balance. With 0 the price considers only the time, with 1 the GPU time. "
            "Running jobs keep the minimum number of GPUs that they can run on, on their type. Waiting jobs are "
            "matched to the types at their minimum: as many jobs as possible get places, for the lowest sum of "
            "prices. A type has as many places as its smallest job would find there. The matched jobs start in "
            "the order of their prices while GPUs last, and the others are matched again to what is left. Then "
            "the GPUs go, one at a time, to the job whose price falls most, up to its maximum, and to no job if "
            "no price falls. Finally, jobs with the same number of GPUs on different types swap places, and jobs "
            "move to the same number of idle GPUs of another type, if that lowers their prices by at least "
            "margin, including the cost of moving. The GPUs they leave go to the jobs whose prices they lower. "
            "Gangs may be spread over nodes of a type. With elastic=off, or if no job is elastic (rigid), jobs "
            "get the GPUs they ask for, on the fewest nodes."
        ),
        parameters=(
            Parameter("balance", 0.5, "exponent of the number of GPUs in the price [0..1]", maximum=1),
            Parameter("trade", True, "running jobs may swap places with others, or move to idle GPUs"),
            Parameter("margin", 0.1, "share of the traders' prices that must be saved [0..1]", maximum=1),
            Parameter("elastic", True, "jobs run on other numbers of GPUs than they ask for"),
            Parameter(
                "candidates",
                100,
                "waiting jobs that a plan considers in each part of a divided cluster, those of lowest price",
                minimum=1,
                maximum=1000,
            ),
            GAP,
            RESIZE,
            Parameter("overhead", "voda", "preset for the cost of each preemption and migration (M9)"),
        ),
        assumptions=("D1", "D3", "D6", "M4", "M8", "M9"),
        equal_to=(
            "With one type, elastic=off, gap=0 and balance=1: ssf,scan=skip; with balance=0: sjf,scan=skip.",
            "With one type: trade=off is trade=on.",
            "With balance=1, if the minima of all jobs fit: every job gets its minimum.",
            "With one type and balance=0, if the maxima of all jobs fit: every job gets its maximum.",
        ),
        sources=(
            (
                "Mo et al., Heet (ASPLOS'24), abstract: scaling efficiency by type, a price that weighs scaling "
                "against scheduling efficiency, minimum-weight full bipartite matching, opportunistic trading."
            ),
            (
                "Own choices: the price itself; known scaling and speeds, with the same curve on all types (M8, "
                "D6), instead of a profile filled in by collaborative filtering; matchings at the minimum, then "
                "growth by steps; places counted by the smallest job; which jobs trade; remaining run times are "
                "known; a type that a job does not name is used if its speed there is known."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans after events."""
        p = self.parameters
        prices = _Prices(p, jobs, cluster, models)
        return prices.sizes.planner(p, prices.plan, any_model=True, scope=0 if prices.rigid else 2)
