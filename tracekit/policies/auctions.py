"""Auctions of GPUs: which bids win, so that the product of the bidders' values is largest."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["best_bundles", "best_sizes"]


def best_bundles(
    gain: NDArray[np.float64],
    gpus: NDArray[np.int64],
    may: NDArray[np.bool_],
    free: NDArray[np.int64],
    nodes: int = 0,
    gap: float = 0.0,
) -> NDArray[np.int64]:
    """Return the pool that each bidder gets its GPUs in, so that the sum of gains is largest; -1 none (k,).

    By a program of whole numbers (HiGHS); of bidders alike in what they ask for only those with most gain can win, so
    that no more of them than there is room for are looked at. The best found within the limit counts; that
    is one of nodes, not of time, so that the same comes out on every machine.

    Parameters
    ----------
    gain : array (k,)
        What each adds when it wins, 0 or more.
    gpus : array (k,)
        GPUs that each asks for: all or none.
    may : array (k, P)
        In which pools.
    free : array (P,)
        GPUs to be had.
    nodes : int
        Most nodes of the program's search tree; 0 any number.
    gap : float
        What may be missing of the largest sum [1]. Where those with most gain for a GPU, as long as they fit, come as
        near as that to the sum if gangs could be divided, they win without a program.
    """
    won = np.full(len(gain), -1, np.int64)
    may = may & (gpus[:, None] <= free) & (gain > 0)[:, None]
    alike: dict[tuple[int, bytes], list[int]] = {}
    for i in np.lexsort((np.arange(len(gain)), -gain)).tolist():
        if may[i].any():
            same = alike.setdefault((int(gpus[i]), may[i].tobytes()), [])
            if len(same) < int((free[may[i]] // gpus[i]).sum()):
                same.append(i)
    some = np.array(sorted(i for same in alike.values() for i in same), np.int64)
    if not len(some):
        return won
    row, pool = np.nonzero(may[some])
    if len(alike) == 1 and len(np.unique(pool)) == 1:
        # One size and one pool: those with most gain, no more than there is room for.
        won[some] = pool[0]
        return won
    bids = _Bids(gain[some][row], gpus[some][row], row, pool, free)
    taken, enough = bids.densest(gap)
    if not enough:
        found = bids.solve(nodes, gap)
        taken = taken if found is None else found
    for i in taken:
        won[some[row[i]]] = pool[i]
    return won


@dataclass(frozen=True)
class _Bids:
    """Bids of bidders for pools."""

    gain: NDArray[np.float64]
    gpus: NDArray[np.int64]
    row: NDArray[np.int64]
    """The bidder of each bid."""
    pool: NDArray[np.int64]
    free: NDArray[np.int64]
    """GPUs of each pool."""

    def densest(self, gap: float) -> tuple[list[int], bool]:
        """Return the bids that fit, most gain for a GPU first, and whether that is near enough to the most there is."""
        left, total, bound = self.free.tolist(), float(self.free.sum()), 0.0
        had: set[int] = set()
        seen: set[int] = set()
        taken = []
        for i in np.lexsort((self.pool, -self.gain / self.gpus)).tolist():
            gpus, row, pool = int(self.gpus[i]), int(self.row[i]), int(self.pool[i])
            if row not in seen:
                seen.add(row)
                bound += float(self.gain[i]) * min(1.0, total / gpus)
                total = max(total - gpus, 0.0)
            if row not in had and gpus <= left[pool]:
                had.add(row)
                left[pool] -= gpus
                taken.append(i)
        return taken, float(self.gain[taken].sum()) >= bound * (1 - gap) - 1e-12

    def solve(self, nodes: int, gap: float) -> list[int] | None:
        """Return the bids that win by the program; None where it found none within the limit."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        bids, bidders = len(self.row), int(self.row.max()) + 1
        at = np.arange(bids)
        rows, data = np.concatenate([self.row, bidders + self.pool]), np.concatenate([np.ones(bids), self.gpus])
        shape = (bidders + len(self.free), bids)
        matrix: Any = csr_array((data.astype(np.float64), (rows, np.concatenate([at, at]))), shape=shape)
        most = np.concatenate([np.ones(bidders), self.free.astype(np.float64)])
        options: Any = {"mip_rel_gap": gap}
        if nodes:
            options["node_limit"] = nodes
        limits = LinearConstraint(matrix, ub=most)
        whole = np.ones(bids, np.int64)
        found = milp(-self.gain, integrality=whole, bounds=Bounds(0, 1), constraints=limits, options=options)
        return None if found.x is None else np.flatnonzero(np.asarray(found.x) > 0.5).tolist()


def best_sizes(low: list[int], high: list[int], free: int, value: Callable[[int, int], float]) -> tuple[list[int], int]:
    """Return GPUs for bidders in their order, and what is left: first the least of each that fits, then one by one.

    Each GPU goes where the logarithm of the value grows most, so that the product of the values is largest, as long as
    the logarithm grows less with every GPU. A bidder whose least does not fit gets none.

    Parameters
    ----------
    low, high : list of int
        Least and most GPUs of each.
    free : int
        GPUs to be had.
    value : callable
        Value of bidder i with n GPUs, above 0.
    """
    size = [0] * len(low)
    heap: list[tuple[float, int]] = []

    def offer(i: int) -> None:
        if size[i] < high[i]:
            heapq.heappush(heap, (math.log(value(i, size[i])) - math.log(value(i, size[i] + 1)), i))

    for i, least in enumerate(low):
        if least <= free:
            size[i], free = least, free - least
            offer(i)
    while heap and free > 0:
        loss, i = heapq.heappop(heap)
        if loss >= 0:
            break
        size[i], free = size[i] + 1, free - 1
        offer(i)
    return size, free
