"""Durations for a likelihood: exact, interval-censored or right-censored, with equal values grouped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tracekit.array_types import Floats


RESOLUTIONS_S = (3600.0, 60.0, 1.0, 0.001, 0.000001)
"""Rounding steps that are recognized [s]; the last step is the resolution of a Trace."""

_EXACT_FROM = 100
"""Number of rounding steps from which a value counts as exact: the density barely changes over one step."""


def resolution_of(values: Floats) -> float:
    """Return the coarsest of `RESOLUTIONS_S` that divides every value [s]."""
    for step in RESOLUTIONS_S[:-1]:
        scaled = values / step
        # A constant, or a handful of values, does not reveal rounding coarser than a second.
        coarse = step > 1
        if coarse and np.unique(values).size < 20:
            continue
        if np.abs(scaled - np.round(scaled)).max(initial=0.0) < 1e-6:
            return step
    return RESOLUTIONS_S[-1]


@dataclass(frozen=True)
class Sample:
    """Durations [s] of one group of jobs.

    A value v rounded to steps of r counts as the interval [v - r/2, v + r/2), truncated at 0. From 100 steps, it counts
    as exact, which changes a log-likelihood by less than 1e-4 of one job's contribution. A left-censored value is an
    interval that begins at 0.
    """

    exact: Floats
    """Distinct exact values in increasing order."""
    exact_n: Floats
    """Number of occurrences of each value."""
    right: Floats
    """Distinct lower bounds of right-censored values in increasing order."""
    right_n: Floats
    low: Floats
    """Lower bounds of distinct intervals."""
    high: Floats
    interval_n: Floats
    resolution_s: float

    @classmethod
    def make(
        cls,
        observed: ArrayLike,
        right: ArrayLike = (),
        *,
        low: ArrayLike = (),
        high: ArrayLike = (),
        resolution_s: float | None = None,
    ) -> Sample:
        """Make a sample of observed, right-censored and interval-censored durations [s].

        Parameters
        ----------
        observed, right : array
            Durations of at least 0; those in `right` are lower bounds.
        low, high : array
            Bounds of further intervals; an interval with low 0 is left-censored.
        resolution_s : float, optional
            Rounding step of `observed`; by default it is detected from the values.
        """
        seen = np.asarray(observed, float)
        step = resolution_of(seen) if resolution_s is None else resolution_s
        values, counts = np.unique(seen, return_counts=True)
        small = values < _EXACT_FROM * step
        bound, bound_n = np.unique(np.asarray(right, float), return_counts=True)
        known = bound > 0  # 'longer than 0' carries no information
        lows = np.concatenate([np.maximum(values[small] - step / 2, 0), np.asarray(low, float)])
        highs = np.concatenate([values[small] + step / 2, np.asarray(high, float)])
        return cls(
            values[~small],
            counts[~small].astype(float),
            bound[known],
            bound_n[known].astype(float),
            lows,
            highs,
            np.concatenate([counts[small].astype(float), np.ones(lows.size - int(small.sum()))]),
            step,
        )

    @property
    def observed_n(self) -> int:
        """Number of durations with a known end, including intervals."""
        return int(self.exact_n.sum() + self.interval_n.sum())

    @property
    def right_n_total(self) -> int:
        """Number of right-censored durations."""
        return int(self.right_n.sum())

    @property
    def n(self) -> int:
        """Number of all durations."""
        return self.observed_n + self.right_n_total

    @property
    def middles(self) -> Floats:
        """Observed values, with intervals replaced by their middle, distinct and increasing within each kind [s]."""
        return np.concatenate([(self.low + self.high) / 2, self.exact])

    @property
    def middles_n(self) -> Floats:
        """Number of occurrences of each of `middles`."""
        return np.concatenate([self.interval_n, self.exact_n])

    @cached_property
    def distinct(self) -> int:
        """Number of distinct `middles`."""
        return int(np.unique(self.middles).size)

    def in_order(self) -> tuple[Floats, Floats, Floats]:
        """Return all values in increasing order [s], how many end there, and how many last longer; ends come first."""
        values = np.concatenate([self.middles, self.right])
        ends = np.concatenate([self.middles_n, np.zeros(self.right.size)])
        cut = np.concatenate([np.zeros(self.middles.size), self.right_n])
        order = np.argsort(values, kind="stable")
        return values[order], ends[order], cut[order]

    def coarse(self, size: int) -> Sample:
        """Return the sample with about `size` grouped values, for starting points only."""
        exact, exact_n = _grouped(self.exact, self.exact_n, size)
        right, right_n = _grouped(self.right, self.right_n, size)
        return Sample(exact, exact_n, right, right_n, self.low, self.high, self.interval_n, self.resolution_s)

    def draw(self, size: int, rng: np.random.Generator) -> Sample:
        """Draw a random subsample without replacement, or return the whole sample if it has at most `size` jobs."""
        if self.n <= size:
            return self
        counts = np.concatenate([self.exact_n, self.right_n, self.interval_n]).astype(np.int64)
        kept = rng.multivariate_hypergeometric(counts, size, method="marginals").astype(float)
        a, b = self.exact.size, self.exact.size + self.right.size
        exact_n, right_n, interval_n = kept[:a], kept[a:b], kept[b:]
        e, r, i = exact_n > 0, right_n > 0, interval_n > 0
        return Sample(
            self.exact[e],
            exact_n[e],
            self.right[r],
            right_n[r],
            self.low[i],
            self.high[i],
            interval_n[i],
            self.resolution_s,
        )


def _grouped(values: Floats, counts: Floats, size: int) -> tuple[Floats, Floats]:
    if values.size <= size:
        return values, counts
    rank = np.cumsum(counts) - counts / 2
    group = np.minimum((rank / counts.sum() * size).astype(np.int64), size - 1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sums = np.add.reduceat(counts, starts)
    logs = np.add.reduceat(np.log(values) * counts, starts)
    return np.exp(logs / sums), sums
