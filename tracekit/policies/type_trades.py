"""Jobs between GPU types: a matching by price, and trades that lower the sum of the prices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Traders", "change_places", "match_types", "move_to_idle"]


def match_types(price: NDArray[np.float64], gpus: NDArray[np.int64], free: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pool of each job, -1 none: matchings in which as many jobs as can be have places, for the least sum.

    A pool has as many places as the smallest of the jobs would find in it. Those that are matched have their GPUs in
    the order of their prices, as long as there are enough; the others are matched with what is left, again and again.

    Parameters
    ----------
    price : array (m, P)
        Price for each job in each pool; infinite where it may not run.
    gpus : array (m,)
        GPUs of each job.
    free : array (P,)
        Free GPUs of each pool; lowered by those taken.
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
            # With one column for all the cheapest are the best.
            row = np.flatnonzero(able[:, pools[0]])
            row = row[np.argsort(price[rest[row], pools[0]], kind="stable")]
            pairs = np.column_stack([row, np.full(len(row), pools[0])])
        else:
            # A price that no matching reaches, so that those with as few such as can be are cheapest.
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

    Where it has to leave a pool for that, `toll[n]` is added.
    """

    price: NDArray[np.float64]
    """Price of each on one GPU of each pool; infinite where it may not run (m, P)."""
    factor: NDArray[np.float64]
    """What 0, 1, ... GPUs do to a price; it falls, and then rises."""
    toll: NDArray[np.float64]
    """Price of leaving a pool with 0, 1, ... GPUs."""
    before: NDArray[np.int64]
    """Pool that a job would have to leave; -1 none (m,)."""
    low: NDArray[np.int64]
    """Fewest GPUs (m,)."""
    high: NDArray[np.int64]
    """Most GPUs (m,)."""
    gpus: NDArray[np.int64]
    """GPUs of each; overwritten (m,)."""
    pool: NDArray[np.int64]
    """Where each is; overwritten (m,)."""
    margin: float
    """Part of the prices of those who trade that a trade has to save, and more [0..1]."""

    def prices(self, gpus: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the prices with so many GPUs (m, 1) or (m, P) in each pool (m, P)."""
        leaves = (self.before[:, None] >= 0) & (self.before[:, None] != np.arange(self.price.shape[1]))
        return self.price * self.factor[gpus] + np.where(leaves, self.toll[gpus], 0.0)


def change_places(traders: Traders) -> None:
    """Let jobs of two pools with as many GPUs change places, while that saves enough.

    Between two pools the jobs that gain most by moving change first, the most with the most; that is the least sum of
    prices that jobs of one size reach between them.
    """
    price = traders.prices(traders.gpus[:, None])
    here = price[np.arange(len(price)), traders.pool]
    # Of two who save a part of their prices together, one saves as large a part of its own.
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


def move_to_idle(traders: Traders, free: NDArray[np.int64]) -> None:
    """Let jobs move to idle GPUs of another type, as many as suit them, while that saves enough: the most first.

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
