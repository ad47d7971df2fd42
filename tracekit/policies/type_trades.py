"""Jobs between GPU types: a matching by price, and trades that lower the sum of the prices."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Traders", "match_types", "trade"]


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
    """Jobs that may trade; m jobs, P pools."""

    price: NDArray[np.float64]
    """Price of each in each pool, with the GPUs that it has; infinite where it may not run (m, P)."""
    gpus: NDArray[np.int64]
    """GPUs of each (m,)."""
    pool: NDArray[np.int64]
    """Where each is; overwritten (m,)."""
    domain: NDArray[np.int64]
    """Domain of each pool (P,)."""
    margin: float
    """Part of the prices of those who trade that a trade has to save, and more [0..1]."""


def trade(traders: Traders, free: NDArray[np.int64]) -> None:
    """Let jobs of two pools with as many GPUs change places, or move to idle GPUs, while that saves enough.

    Between two pools the jobs that gain most by moving trade with each other first, the most with the most; that is the
    least sum of prices that trades of this size can reach between them.

    Parameters
    ----------
    traders : Traders
    free : array (P,)
        Idle GPUs of each pool; overwritten.
    """
    for one, other in combinations(range(len(free)), 2):
        if traders.domain[one] != traders.domain[other]:
            continue
        there = (traders.pool == one) | (traders.pool == other)
        there &= np.isfinite(traders.price[:, one]) & np.isfinite(traders.price[:, other])
        # Large gangs first: what they leave has room for small ones.
        for size in np.unique(traders.gpus[there])[::-1].tolist():
            _trade_pair(traders, free, one, other, np.flatnonzero(there & (traders.gpus == size)))


def _trade_pair(traders: Traders, free: NDArray[np.int64], one: int, other: int, jobs: NDArray[np.int64]) -> None:
    """Trade between two pools, among jobs of one size."""
    size = int(traders.gpus[jobs[0]])
    # Idle GPUs gain nothing and cost nothing; more of them than there are jobs on the other side are of no use.
    idle = [min(int(free[pool]) // size, len(jobs)) for pool in (one, other)]
    lines = []
    for here, there, empty in ((one, other, idle[0]), (other, one, idle[1])):
        mine = jobs[traders.pool[jobs] == here]
        now = traders.price[mine, here]
        gains = zip((traders.price[mine, there] - now).tolist(), now.tolist(), mine.tolist(), strict=True)
        lines.append(sorted([*gains, *[(0.0, 0.0, -1)] * empty]))
    for (gain, price, job), (back, paid, partner) in zip(*lines, strict=False):
        if gain + back >= -traders.margin * (price + paid) or (job < 0 and partner < 0):
            break
        for who, here, there in ((job, one, other), (partner, other, one)):
            if who >= 0:
                traders.pool[who] = there
                free[here] += size
                free[there] -= size
