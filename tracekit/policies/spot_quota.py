"""A quota for spot jobs: the GPUs that guaranteed jobs are not expected to need, by their demand up to now.

Guaranteed demand is the GPUs that guaranteed jobs hold or wait for. It is followed for each tenant and each set of
pools that its jobs accept: a series. Hours count from the first submission.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["HOUR_MS", "Demand", "Feedback"]

HOUR_MS = 3_600_000
_WEEK = 168
_WEEKS = 4
_DAY = 24


class Demand:
    """Guaranteed demand hour by hour, and a forecast of it; S series, P pools.

    Parameters
    ----------
    accepts : array of bool (S, P)
        The pools that the jobs of each series may use.
    q : float
        Quantile of the peak that is forecast [0..1], neither end.
    span_ms : int
        For how long a spot job is to be left alone [ms].
    """

    def __init__(self, accepts: NDArray[np.bool_], q: float, span_ms: int) -> None:
        self.accepts = accepts
        self._z = NormalDist().inv_cdf(q)
        # A job that starts as the hour ends is to be left alone in the hours after it.
        self._hours = 1 + min(-(-span_ms // HOUR_MS), _WEEK - 1)
        series = len(accepts)
        self.now: NDArray[np.int64] = np.zeros(series, np.int64)
        """Demand of each series [GPUs] (S,)."""
        self.hour = 0
        """Hours that are over."""
        self._peak = self.now.copy()
        self._peaks = np.zeros((_WEEKS * _WEEK, series))

    def change(self, series: int, gpus: int) -> None:
        """Let the demand of a series grow, or shrink."""
        self.now[series] += gpus
        self._peak[series] = max(self._peak[series], self.now[series])

    def end_hour(self) -> None:
        """Let an hour be over: its peaks are known."""
        self._peaks[self.hour % len(self._peaks)] = self._peak
        self._peak = self.now.copy()
        self.hour += 1

    def forecast(self, gpus: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the quantile of the peak demand in each pool from this hour on [GPUs] (P,).

        A series that takes several pools wants each in proportion to its GPUs. Series are taken for independent, and
        their sum for normal.

        Parameters
        ----------
        gpus : array (P,)
            GPUs of each pool.
        """
        there = self.accepts * gpus
        part = there / np.maximum(there.sum(axis=1, keepdims=True), 1)
        worst = np.zeros(len(gpus))
        for hour in range(self.hour, self.hour + self._hours):
            mean, variance = self._hour(hour)
            worst = np.maximum(worst, mean @ part + self._z * np.sqrt(variance @ part**2))
        return np.clip(worst, 0, gpus)

    def _hour(self, hour: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and variance of the peak of each series in an hour to come (S,), (S,)."""
        past = hour - _WEEK * np.arange(1, _WEEKS + 1)
        past = past[past >= 0]
        if len(past) > 1:
            seen = self._peaks[past % len(self._peaks)]
            return seen.mean(axis=0), seen.var(axis=0, ddof=1)
        # Less than two weeks are known: as now, with the changes from hour to hour of the last day.
        last = np.arange(max(self.hour - _DAY, 0), self.hour)
        changes = np.diff(self._peaks[last % len(self._peaks)], axis=0)
        return self.now.astype(np.float64), (changes**2).sum(axis=0) / max(len(changes), 1)


class Feedback:
    """The factor by which the quota is corrected each hour: by evictions, and by how long spot jobs wait.

    Parameters
    ----------
    factor : float
        The first one.
    target : float
        Share of the spot starts of a day that may end by an eviction [0..1].
    wait_ms : float
        Wait of a spot job from which on the quota grows [ms].
    """

    LOW, HIGH = 0.2, 1.2
    DOWN, UP = 0.9, 1.05

    def __init__(self, factor: float, target: float, wait_ms: float) -> None:
        self.factor, self.target, self.wait_ms = factor, target, wait_ms
        self.starts = self.evictions = 0
        """In this hour."""
        self._day: list[tuple[int, int]] = []

    def end_hour(self, longest_ms: int) -> None:
        """Let an hour be over; `longest_ms` is the longest wait of a spot job at its end, 0 without one [ms]."""
        self._day = [*self._day[1 - _DAY :], (self.starts, self.evictions)]
        self.starts = self.evictions = 0
        starts, evictions = (sum(column) for column in zip(*self._day, strict=True))
        if evictions > self.target * starts:
            self.factor = max(self.factor * self.DOWN, min(self.LOW, self.factor))
        elif longest_ms > self.wait_ms:
            self.factor = min(self.factor * self.UP, max(self.HIGH, self.factor))
