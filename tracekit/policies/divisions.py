"""Divisions of GPUs among jobs, drawn at random, for searches: how many GPUs each job may have, and how many exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Bounds"]


@dataclass(frozen=True)
class Bounds:
    """The GPUs that k jobs may have of P pools."""

    least: NDArray[np.int64]
    """Guaranteed GPUs of each: its minimum, or none (k,)."""
    low: NDArray[np.int64]
    """Minimum; a job has no GPU or at least this many (k,)."""
    high: NDArray[np.int64]
    """Maximum (k,)."""
    pool: NDArray[np.int64]
    """Pool of each (k,)."""
    free: NDArray[np.int64]
    """GPUs of each pool beyond `least` (P,)."""

    def drawn(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """Return this many divisions; every number of GPUs of a job is equally likely, whatever fits (count, k)."""
        gpus = random.integers(self.low - 1, self.high + 1, (count, len(self.low)))
        return np.where(gpus < self.low, self.least, gpus)

    def within(self, gpus: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
        """Return divisions that fit: jobs drawn too late get what is left, or `least` (m, k)."""
        found = np.broadcast_to(self.least, gpus.shape).copy()
        for pool in np.unique(self.pool).tolist():
            mine = np.flatnonzero(self.pool == pool)
            order = mine[np.argsort(random.random((len(gpus), len(mine))), axis=1)]
            extra = np.take_along_axis(gpus, order, axis=1) - self.least[order]
            before = np.cumsum(extra, axis=1) - extra
            given = np.clip(self.free[pool] - before, 0, extra)
            given = np.where(self.least[order] + given >= self.low[order], given, 0)
            np.put_along_axis(found, order, self.least[order] + given, axis=1)
        return found

    def in_order(self, order: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the division in which jobs have their minimum in an order, until the next one's is not there (k,)."""
        found = self.least.copy()
        for pool in np.unique(self.pool).tolist():
            mine = order[self.pool[order] == pool]
            fits = np.cumsum(self.low[mine] - self.least[mine]) <= self.free[pool]
            found[mine[fits]] = self.low[mine[fits]]
        return found
