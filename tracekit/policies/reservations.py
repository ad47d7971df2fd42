"""Leases to come, and the GPUs that are promised in each: reserved as late as possible, moved, or by a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["Need", "Reservations"]


class Need(NamedTuple):
    """What a job needs before its deadline."""

    job: int
    pool: int
    gpus: int
    leases: int
    """Leases of all its GPUs."""
    end: int
    """The lease that it must not use any more."""


class Reservations:
    """Promised GPUs by pool and lease.

    Parameters
    ----------
    pools : int
        Number of pools.
    """

    def __init__(self, pools: int) -> None:
        self.of: dict[int, tuple[Need, NDArray[np.int64]]] = {}
        """By job what it needed, and its leases, ascending."""
        self._used: NDArray[np.int64] = np.zeros((pools, 1024), np.int64)
        self._first = 0

    def reserve(self, need: Need, low: int, capacity: int) -> bool:
        """Give a job its leases from `low` on, as late as possible; False, and nothing, where there are too few."""
        used = self._between(need.pool, low, need.end)
        room = np.flatnonzero(capacity - used >= need.gpus)
        if len(room) < need.leases:
            return False
        self._take(need, low + room[len(room) - need.leases :])
        return True

    def extend(self, job: int, more: int, low: int, capacity: int) -> bool:
        """Give a job so many leases more, from `low` on; False, and nothing, where there are too few."""
        need, had = self.of[job]
        used = self._between(need.pool, low, need.end).copy()
        used[had[had >= low] - low] = capacity
        room = np.flatnonzero(capacity - used >= need.gpus)
        if len(room) < more:
            return False
        new = low + room[len(room) - more :]
        self._used[need.pool, new - self._first] += need.gpus
        self.of[job] = need, np.sort(np.concatenate([had, new]))
        return True

    def free(self, jobs: Iterable[int], low: int) -> None:
        """Take from jobs what they have from a lease on, and forget them."""
        for job in jobs:
            self.drop_first(job, len(self.of[job][1]), low)
            del self.of[job]

    def drop_first(self, job: int, count: int, low: int) -> None:
        """Take from a job the first so many leases that it has from `low` on, and those before, which are over."""
        need, had = self.of[job]
        had = had[had >= low]
        self._used[need.pool, had[:count] - self._first] -= need.gpus
        self.of[job] = need, had[count:]

    def move_all(self, needs: Sequence[Need], low: int, capacity: NDArray[np.int64]) -> bool:
        """Reserve anew for these jobs, which are all that have leases, the least slack first.

        False, and nothing changes, where one finds no room.
        """
        self._between(0, low, max(need.end for need in needs))
        old, used = self.of, self._used.copy()
        self.of = {}
        self._used[:, low - self._first :] = 0
        for need in sorted(needs, key=lambda one: (one.end - one.leases, one.leases, one.job)):
            if not self.reserve(need, low, int(capacity[need.pool])):
                self.of, self._used = old, used
                return False
        return True

    def solve(self, needs: Sequence[Need], low: int, capacity: NDArray[np.int64], limit: int, cells: int) -> bool:
        """Reserve anew for these jobs, which are all that have leases, wherever there is room (HiGHS).

        Parameters
        ----------
        limit : int
            Most nodes of the search; a program that is not solved by then counts as one without solution.
        cells : int
            Most pairs of a job and a lease; a larger program is not tried.

        Returns
        -------
        bool
            Whether there is room for all; if not, nothing changes.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        length = np.array([need.end - low for need in needs])
        if (length <= 0).any() or int(length.sum()) > cells:
            return False
        row = np.repeat(np.arange(len(needs)), length)
        lease = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        span = int(length.max())
        gpus, pool = (np.array([need[i] for need in needs], np.int64)[row] for i in (2, 1))
        rows = np.concatenate([row, len(needs) + pool * span + lease])
        data = np.concatenate([np.ones(len(row)), gpus]).astype(np.float64)
        at = np.arange(len(row))
        shape = (len(needs) + len(capacity) * span, len(row))
        matrix: Any = csr_array((data, (rows, np.concatenate([at, at]))), shape=shape)
        asked = np.array([need.leases for need in needs], np.float64)
        room = np.repeat(capacity.astype(np.float64), span)
        limits = LinearConstraint(matrix, np.concatenate([asked, np.zeros(len(room))]), np.concatenate([asked, room]))
        # The later the better: what is free soon may serve jobs that come.
        options: Any = {"node_limit": limit, "mip_rel_gap": 1.0}
        ones = np.ones(len(row), np.int64)
        found = milp(-lease.astype(float), integrality=ones, bounds=Bounds(0, 1), constraints=limits, options=options)
        if found.x is None:
            return False
        chosen = np.asarray(found.x) > 0.5
        if (np.bincount(row[chosen], minlength=len(needs)) != asked).any():
            return False
        self._between(0, low, low + span)
        self._used[:, low - self._first :] = 0
        self.of = {}
        for i, need in enumerate(needs):
            self._take(need, low + lease[chosen & (row == i)])
        return True

    def _take(self, need: Need, leases: NDArray[np.int64]) -> None:
        self._used[need.pool, leases - self._first] += need.gpus
        self.of[need.job] = need, leases

    def _between(self, pool: int, low: int, high: int) -> NDArray[np.int64]:
        """Return the GPUs promised in leases from low to before high; leases long before are forgotten."""
        width = self._used.shape[1]
        if high - self._first > width:
            kept = self._used[:, max(low - self._first, 0) :]
            self._used = np.zeros((len(self._used), max(2 * (high - low), 1024)), np.int64)
            self._used[:, : kept.shape[1]] = kept[:, : self._used.shape[1]]
            self._first = max(low, self._first)
        return self._used[pool, max(low - self._first, 0) : max(high - self._first, 0)]
