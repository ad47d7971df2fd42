"""After Heet, as far as its rule is known: prices decide GPU types, job sizes and trades."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.resizing import GAP, RESIZE, Sizes, Wish
from tracekit.policies.parameters import overhead
from tracekit.policies.plans import Planned
from tracekit.policies.pools import pool_fits, pool_speeds
from tracekit.replay.assumptions.speeds import PPM, elastic_ppm

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


def match_types(price: Floats, gpus: Ints, free: Ints) -> Ints:
    """Match as many jobs to pools as possible, at the lowest total price. Return each job's pool, or -1 for none.

    The number of places in a pool is the number of its smallest jobs that would fit. Matched jobs get their GPUs in
    order of price while GPUs last. The others are matched again to the remaining GPUs.

    Parameters
    ----------
    price : array (m, P)
        Price for each job in each pool, infinite if the job may not run there.
    gpus : array (m,)
        GPUs of each job.
    free : array (P,)
        Free GPUs of each pool, reduced by the GPUs taken.
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
            # With only one pool, the cheapest jobs are optimal.
            row = np.flatnonzero(able[:, pools[0]])
            row = row[np.argsort(price[rest[row], pools[0]], kind="stable")]
            pairs = np.column_stack([row, np.full(len(row), pools[0])])
        else:
            # This price exceeds that of any matching, so the cheapest matchings avoid it.
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
    """Jobs with GPUs. m jobs, P pools. The price of a job with n GPUs is its price on one GPU times `factor[n]`.

    If the job must leave its pool, `toll[n]` is added.
    """

    price: Floats
    """Price of each job on one GPU of each pool, infinite if the job may not run there (m, P)."""
    factor: Floats
    """Factor of the price for 0, 1, ... GPUs, which first falls, then rises."""
    toll: Floats
    """Extra price of moving to another pool with 0, 1, ... GPUs."""
    before: Ints
    """Pool that each job would have to leave, or -1 for none (m,)."""
    low: Ints
    """Minimum GPUs of each job (m,)."""
    high: Ints
    """Maximum GPUs of each job (m,)."""
    gpus: Ints
    """GPUs of each job, which are overwritten (m,)."""
    pool: Ints
    """Pool of each job, which is overwritten (m,)."""
    margin: float
    """Share of the traders' prices that a trade must exceed in savings [0..1]."""

    def prices(self, gpus: Ints) -> Floats:
        """Return each job's price in each pool (m, P) with these GPUs, given as (m, 1) or (m, P)."""
        leaves = (self.before[:, None] >= 0) & (self.before[:, None] != np.arange(self.price.shape[1]))
        return self.price * self.factor[gpus] + np.where(leaves, self.toll[gpus], 0.0)


def change_places(traders: Traders) -> None:
    """Swap the pools of jobs with equal numbers of GPUs as long as that saves enough.

    Between two pools, the jobs that gain most on each side swap first. For jobs of one size, this gives the lowest sum
    of prices.
    """
    price = traders.prices(traders.gpus[:, None])
    here = price[np.arange(len(price)), traders.pool]
    # If two jobs together save a share of their prices, at least one of them saves that share of its own price.
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
    """Move jobs to a suitable number of idle GPUs of another type as long as that saves enough, largest saving first.

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


class _Prices(Sizes):
    """Plans based on the prices of GPU types and sizes."""

    def set_up(self) -> None:
        """Compute the speeds and prices of the jobs."""
        super().set_up()
        p, jobs = self.p, self.jobs
        self.margin = p["margin"] if p["trade"] else np.inf
        self.rigid = self.models.elastic.rigid
        self.settings.update(any_model=True, scope=0 if self.rigid else 2)
        fits = pool_fits(self.pools, jobs, self.cluster) if self.rigid else True
        self.speed = np.where(fits, pool_speeds(self.pools, jobs, self.cluster, self.models), 0)
        """Speed of each kind in each pool with the requested GPUs, or 0 if the kind may not run there [ppm] (K, P)."""
        power = np.arange(len(self.overhead_ms)) ** p["balance"]
        scale = np.ones(len(power)) if self.rigid else np.maximum(self.relative, 1.0)
        self.on_one = scale[self.gpus]
        """Run time of each job on one GPU, relative to its run time on the requested GPUs (n,)."""
        self.factor = power / scale
        self.factor[0] = np.inf
        """Ratio of a job's price with 0, 1, ... GPUs to its time on one GPU (most + 1,)."""
        self.toll = power * self.overhead_ms
        price = self._on_one(np.arange(len(jobs)), jobs.work_ms.astype(np.float64))
        self.least = (price * self.factor[self.low][:, None]).min(axis=1, initial=np.inf)
        """Lowest price of each job at its minimum, before it runs (n,)."""

    def plan(self, view: View) -> Plan:
        """Return the plan: the GPUs of each job until the next event."""
        wish, left = self.wish(view), view.remaining_ms.astype(np.float64)
        job, before = wish.job, wish.before
        runs = np.flatnonzero(before >= 0)
        least = self.low[job]
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
        """Return the jobs' time on one GPU of each pool, infinite if they may not run there [ms] (m, P)."""
        speed = self.speed[self.pools.kind[job]] / PPM
        time = np.full(speed.shape, np.inf)
        np.divide((left_ms * self.on_one[job])[:, None], speed, out=time, where=speed > 0)
        return time

    def _waiting(self, wish: Wish, least: Ints) -> Ints:
        """Return the indices of the jobs to match: the cheapest waiting jobs that fit."""
        rows = np.flatnonzero((wish.before < 0) & (least <= wish.free.max(initial=0)))
        kind = self.pools.kind[wish.job[rows]]
        if len(wish.free) > 1:
            fits = ((least[rows, None] <= wish.free) & (self.speed[kind] > 0)).any(axis=1)
            rows, kind = rows[fits], kind[fits]
        return rows[self.pools.best(-self.least[wish.job[rows]], kind, self.p["candidates"])]

    def _grow(self, wish: Wish, left_ms: Floats) -> None:
        """Hand out GPUs one by one, each to the job whose price it lowers most."""
        if self.rigid:
            return
        place, gpus = self.steps(wish)
        job = wish.job[place]
        speed = self.speed[self.pools.kind[job], wish.pool[place]] / PPM
        time = left_ms[place] * self.on_one[job] / np.maximum(speed, 1 / PPM)
        self.grow(wish, place, time * (self.factor[gpus] - self.factor[gpus + 1]))

    def _trade(self, wish: Wish, left_ms: Floats) -> None:
        """Swap jobs with equal numbers of GPUs, or move jobs to idle GPUs, if that saves enough."""
        has = np.flatnonzero(wish.gpus > 0)
        job = wish.job[has]
        traders = Traders(
            price=self._on_one(job, left_ms[has]),
            factor=self.factor,
            toll=self.toll,
            before=wish.before[has],
            low=self.low[job],
            high=self.most[job],
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
        # Gangs that need the fewest nodes may not fit. Later jobs may then get their GPUs.
        late = rows[wish.gpus[rows] == 0] if self.rigid else rows[:0]
        pool = wish.pool.copy()
        if len(late):
            pool[rows] = np.where(wish.gpus[rows] > 0, pool[rows], price.argmin(axis=1))
        line = np.concatenate([moved, starts, late])
        job = wish.job[line]
        gpus = np.where(wish.gpus[line] > 0, wish.gpus[line], self.low[job])
        rate = self.speed[self.pools.kind[job], pool[line]] * elastic_ppm(self.models, self.gpus[job], gpus)
        return self.pools.plan(job, gpus, pool[line], rate // PPM)


class HeetLike(Planned):
    """Prices decide the GPU types and sizes of elastic jobs, and their trades between types (after Heet).

    When a job arrives or ends, but at most once every `gap` seconds, all GPUs are divided anew. A price weighs a job's
    end against the GPUs that it uses: the remaining time on n GPUs of a type, times n to the power of `balance`. With
    balance=0, the price is the time, and with balance=1, the GPU time. Running jobs keep their minimum number of GPUs,
    on their type. Waiting jobs are matched to types at their minimum: as many jobs as possible get places, at the
    lowest sum of prices. A type has as many places as the number of its smallest jobs that would fit there. The matched
    jobs start in order of price while GPUs last, and the others are matched again to the remaining GPUs. Then the GPUs
    go, one at a time, to the job whose price falls most, up to its maximum. GPUs that lower no price stay idle.
    Finally, jobs with the same number of GPUs on different types swap places, and jobs move to the same number of idle
    GPUs of another type, if that lowers their prices by at least `margin`, including the cost of moving. The GPUs that
    they leave go to jobs whose prices they lower. Gangs may be spread over nodes of a type. With elastic=off, or if no
    job is elastic (rigid), jobs get the GPUs that they request, on the fewest nodes.

    Equal to
    --------
    - With one type, elastic=off, gap=0 and balance=1, the policy equals ssf,scan=skip. With balance=0, it equals
      sjf,scan=skip.
    - With one type, trade=off equals trade=on.
    - With balance=1, if the minima of all jobs fit, every job gets its minimum.
    - With one type and balance=0, if the maxima of all jobs fit, every job gets its maximum.

    Sources
    -------
    - Mo et al., Heet (ASPLOS'24), abstract: scaling efficiency by type, a price that weighs scaling against scheduling
      efficiency, minimum-weight full bipartite matching, opportunistic trading.
    - Our choices: the price itself; known scaling and speeds, with the same curve on all types (M8, D6), instead of a
      profile filled in by collaborative filtering; matchings at the minimum, then growth by steps; places counted by
      the smallest job; which jobs trade; remaining run times are known; a job also runs on types that it did not
      request if its speed there is known.
    """

    plans = _Prices
    card = Card(
        name="heet-like",
        parameters=(
            Parameter("balance", 0.5, "exponent of the number of GPUs in the price [0..1]", maximum=1),
            Parameter("trade", True, "whether running jobs may swap GPUs with other jobs, or move to idle GPUs"),
            Parameter("margin", 0.1, "share of the traders' prices that a trade must save [0..1]", maximum=1),
            Parameter("elastic", True, "whether jobs may run on more or fewer GPUs than they request"),
            Parameter(
                "candidates",
                100,
                "number of waiting jobs that a plan considers in each part of a divided cluster, the lowest prices "
                "first",
                minimum=1,
                maximum=1000,
            ),
            GAP,
            RESIZE,
            overhead("voda"),
        ),
        assumptions=("D1", "D3", "D6", "M4", "M8", "M9"),
    )
