"""Shares by tickets: how many GPUs each tenant is entitled to, on which GPU type, after trading."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fill_segments", "fill_shares", "trade"]

_SLACK = 1e-9


def fill_segments(
    segment: NDArray[np.int64],
    limit: NDArray[np.float64],
    weight: NDArray[np.float64],
    capacity: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return shares in proportion to weights, none above its limit, what that leaves going to the others.

    Parameters
    ----------
    segment : array (k,)
        Whose capacity each shares in.
    limit : array (k,)
        Most that each can use.
    weight : array (k,)
        Above 0.
    capacity : array (S,)
        What each segment has to give.
    """
    if not len(segment):
        return np.zeros(0)
    need = limit / weight
    by = np.lexsort((need, segment))
    seg, most, worth = segment[by], limit[by], weight[by]
    start = np.flatnonzero(np.concatenate([[True], seg[1:] != seg[:-1]]))
    count = np.diff(np.append(start, len(seg)))
    # Before each: what those with less need have taken, and the weight that is left from here on.
    taken = np.cumsum(most) - most
    taken -= np.repeat(taken[start], count)
    passed = np.cumsum(worth) - worth
    passed -= np.repeat(passed[start], count)
    total = np.repeat(np.add.reduceat(worth, start), count)
    level = (capacity[seg] - taken) / (total - passed)
    short = need[by] > level
    # The level of a segment is that at its first place whose need is above it; endless where none is.
    first = np.full(len(capacity), np.inf)
    first[seg[short][::-1]] = level[short][::-1]
    found = np.empty(len(seg))
    found[by] = np.minimum(most, np.maximum(worth * first[seg], 0.0))
    return found


def fill_shares(limit: NDArray[np.float64], weight: NDArray[np.float64], capacity: float) -> NDArray[np.float64]:
    """Return the same for one segment."""
    return fill_segments(np.zeros(len(limit), np.int64), limit, weight, np.array([capacity]))


def trade(have: NDArray[np.float64], speedup: NDArray[np.float64], margin: float) -> tuple[NDArray[np.float64], int]:
    """Return what tenants have on each type after trading fast GPUs for slow ones, and how many deals there were.

    For each pair of types, most different first, the tenant with the largest speedup from the slow to the fast one
    buys from the one with the smallest, at the second-largest speedup in slow GPUs for a fast one, as long as the
    largest is at least 1 + margin times the smallest. Nobody is worse off: the seller gets at least its own speedup,
    and the buyer pays at most its own.

    Parameters
    ----------
    have : array (T, J)
        GPUs of each tenant on each type.
    speedup : array (T, J)
        Speed of the tenant's jobs on each type; 0 where they do not run.
    margin : float
        Least gain for which a deal is made.
    """
    have = have.copy()
    deals = 0
    tenants, types = have.shape
    mean = np.array([speedup[speedup[:, j] > 0, j].mean() if (speedup[:, j] > 0).any() else 0.0 for j in range(types)])
    pairs = [
        (f, s)
        for f in range(types)
        for s in range(types)
        if f != s and mean[f] >= mean[s] > 0 and (f < s or mean[f] > mean[s])
    ]
    pairs.sort(key=lambda p: (-mean[p[0]] / mean[p[1]], p))
    for fast, slow in pairs:
        able = (speedup[:, fast] > 0) & (speedup[:, slow] > 0)
        ratio = np.where(able, speedup[:, fast] / np.where(able, speedup[:, slow], 1.0), 0.0)
        order = [int(t) for t in np.lexsort((np.arange(tenants), -ratio)) if able[t]]
        buyers, sellers = list(order), list(reversed(order))
        while buyers and sellers:
            buyer, seller = buyers[0], sellers[0]
            if buyer == seller or ratio[buyer] < ratio[seller] * (1 + margin):
                break
            rest = [ratio[t] for t in order if t != buyer]
            price = min(max(rest), ratio[buyer])
            amount = min(have[seller, fast], have[buyer, slow] / price)
            if amount > _SLACK:
                have[buyer, fast] += amount
                have[seller, fast] -= amount
                have[buyer, slow] -= amount * price
                have[seller, slow] += amount * price
                deals += 1
            if have[buyer, slow] <= _SLACK:
                buyers.pop(0)
            elif have[seller, fast] <= _SLACK:
                sellers.pop(0)
            else:
                break
    return np.maximum(have, 0.0), deals
