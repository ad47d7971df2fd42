"""Test whether two periods differ by more than noise, with a bootstrap over whole days, intervals and p-values.

Jobs of one day share the queue, come from the same users and fail for the same reasons, so we resample days, not jobs.
All measures of a period use the same resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools, Floats, Ints

# Resample the days of a period.


RESAMPLES = 1000

_CELLS = 20_000_000
"""Maximum size of one table [numbers], which bounds memory for periods of any length."""
_GRID = 4096
"""Maximum number of distinct values used for a resampled quantile."""


@dataclass(frozen=True)
class DayResamples:
    """Resamples of the days of a period.

    Attributes
    ----------
    used : int array, shape (n,)
        Days with a job or sample, in increasing order.
    weights : float array, shape (r, n)
        Number of times that each of these days is drawn in each resample.
    days : int
        Number of days, including empty days.
    groups : int
        Number of groups of days within which days are drawn.
    """

    used: Ints
    weights: Floats
    days: int
    groups: int

    def place(self, days: Ints) -> Ints:
        """Return the positions of days in `used`."""
        return np.searchsorted(self.used, days)

    def sums(self, days: Ints, values: Floats) -> tuple[float, Floats]:
        """Return the sum of `values`, and the sum in each resample."""
        by_day = np.bincount(self.place(days), weights=values, minlength=len(self.used))
        return float(by_day.sum()), self.weights @ by_day


def draw_days(days: Ints, used: Ints, groups: Sequence[Bools], seed: Sequence[int]) -> DayResamples:
    """Resample the days of a period with replacement, within each group.

    Parameters
    ----------
    days : int array
        All days of the period.
    used : int array
        Days with a job or sample. Empty days are also drawn, but as one, so they cost no extra time.
    groups : sequence of bool arrays, one value for each of `days`
        Groups of days that may replace each other.
    seed : sequence of int
        The same seed gives the same draws.
    """
    generator = np.random.default_rng(seed)
    count = max(20, min(RESAMPLES, _CELLS // max(len(used), 1)))
    weights = np.zeros((count, len(used)))
    for group in groups:
        size = int(group.sum())
        mine = np.flatnonzero(np.isin(used, days[group]))
        if not size or not len(mine):
            continue
        chances = np.append(np.full(len(mine), 1 / size), max(0.0, 1 - len(mine) / size))
        weights[:, mine] = generator.multinomial(size, chances / chances.sum(), size=count)[:, :-1]
    return DayResamples(used, weights, len(days), len(groups))


def quantile(values: Floats, share: float) -> float:
    """Return a quantile, interpolated linearly between the two nearest values, or NaN if there are no values."""
    return float(np.quantile(values, share)) if len(values) else np.nan


def resampled_quantile(draws: DayResamples, days: Ints, values: Floats, share: float) -> Floats:
    """Return a quantile of the values on the days of each resample, or NaN for a resample without values.

    With up to 4,096 different values, the result is exact. With more, each value is first replaced by the mean of
    neighbours in rank (about 1/4,096 of all values), so the rank of a quantile is off by at most 0.025 %.

    Parameters
    ----------
    draws : DayResamples
        The resamples.
    days, values : arrays, shape (n,)
        The day of each value, and the value.
    share : float
        The quantile to compute [0..1].
    """
    if not len(values):
        return np.full(len(draws.weights), np.nan)
    codes, levels = _levels(values, max(256, min(_GRID, _CELLS // len(draws.used))))
    blocks = len(draws.used)
    counts = np.bincount(codes * blocks + draws.place(days), minlength=len(levels) * blocks)
    upto = np.cumsum(counts.reshape(len(levels), blocks), axis=0, dtype=np.float64)
    totals = draws.weights @ upto[-1]
    rank = share * np.maximum(totals - 1, 0)
    low = levels[_level_of(upto, draws.weights, np.floor(rank))]
    high = levels[_level_of(upto, draws.weights, np.ceil(rank))]
    return np.where(totals > 0, low + (high - low) * (rank - np.floor(rank)), np.nan)


def _levels(values: Floats, most: int) -> tuple[Ints, Floats]:
    """Return the level of each value, and the value of each of at most `most` levels."""
    ordered = np.sort(values)
    levels = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    if len(levels) > most:
        # Each of several slices of about equal size begins a level at its first value; slices with the same first value
        # share one.
        firsts = np.unique(ordered[np.arange(most) * len(ordered) // most])
        codes = np.searchsorted(firsts, values, side="right") - 1
        return codes, np.bincount(codes, weights=values) / np.bincount(codes)
    return np.searchsorted(levels, values), levels


def _level_of(upto: Floats, weights: Floats, ranks: Floats) -> Ints:
    """Return, for each resample, the first level with more than `ranks` values at or below it."""
    low = np.zeros(len(weights), dtype=np.int64)
    high = np.full(len(weights), len(upto) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = np.einsum("rn,rn->r", weights, upto[middle]) > ranks
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    return low


# Decide whether a difference is more than noise.


FEWEST_DAYS = 5
"""Minimum days in a period for a verdict, because resampling needs enough blocks. Comparisons of policies use the same
number."""

_LOST = 0.1
"""Maximum share of resamples without a value."""

_DUST = 1e-9
"""Relative changes below this are rounding errors."""

RULE = (
    "For the 95 % interval of the difference, whole days are resampled 1,000 times on each side. The interval runs "
    "from the 2.5th to the 97.5th percentile of the differences; relative changes are treated in the same way. With "
    "few days, the interval is somewhat too narrow, which the p-value corrects. The p-value compares the difference "
    "with its spread over the resamples by Student's t, with one observation per day: once with a variance for each "
    "side (Welch) and once with a common variance. The larger p-value counts. The false"
    " discovery rate over all rows, including size classes and {tenant.spelled_many}, is limited to 5 % (Benjamini and"
    " Hochberg, 1995). changed means that the adjusted p-value is at most 0.05 and that the interval of the difference"
    " excludes 0. noise means that the difference may be due to chance. too little data means that a side has fewer"
    " than five days or 30 observations. Days are assumed independent: a backlog of several days, or a trend, makes"
    " p-values too small."
)


@dataclass(frozen=True)
class Estimate:
    """The value of a measure in one period, with its resamples."""

    value: float
    """The value, or NaN if unknown."""
    resampled: Floats
    """The value in each resample, or NaN for a resample without a value."""
    n: int
    """Number of observations."""
    days: int
    """Number of days used."""
    groups: int = 1
    """Number of groups of days within which days were drawn."""


def difference(before: Estimate, after: Estimate) -> dict[str, float | None]:
    """Return the difference between two periods, with intervals and p-value, as the columns of `compare.changes`.

    The keys are difference, relative_change (relative to the value before, or None if that is 0), the ends of their
    intervals (_low and _high), and p_value. All values are None if there is too little data.
    """
    value = _known(after.value - before.value)
    if value is not None and abs(value) <= _DUST * max(abs(before.value), abs(after.value)):
        value = 0.0
    relative = _known(value / before.value) if value is not None and before.value else None
    ends: tuple[float | None, float | None] = (None, None)
    relative_ends, p_value = ends, None
    if value is not None and min(before.days, after.days) >= FEWEST_DAYS:
        # Very long periods have fewer resamples; both periods use the smaller number.
        n = min(len(before.resampled), len(after.resampled))
        old, new = before.resampled[:n], after.resampled[:n]
        ends = _ends(new - old)
        if ends[0] is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                changes = np.where(old != 0, (new - old) / old, np.nan)
            relative_ends = _ends(changes) if relative is not None else (None, None)
            p_value = _p(value, before, after)
    return {
        "difference": value,
        "difference_low": ends[0],
        "difference_high": ends[1],
        "relative_change": relative,
        "relative_change_low": relative_ends[0],
        "relative_change_high": relative_ends[1],
        "p_value": p_value,
    }


def _known(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _ends(values: Floats) -> tuple[float | None, float | None]:
    if np.isnan(values).mean() > _LOST:
        return None, None
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def _p(value: float, before: Estimate, after: Estimate) -> float:
    """Return the two-sided p-value of a difference of 0: the larger of Welch's and Student's (with one variance)."""
    if value == 0:
        return 1.0
    estimates = (before, after)
    freedoms = [e.days - e.groups for e in estimates]
    # The variance of n days drawn from n is too small by the factor (n - 1) / n.
    variances = [
        float(np.nanvar(estimate.resampled)) * estimate.days / freedom
        for estimate, freedom in zip(estimates, freedoms, strict=True)
    ]
    apart = sum(variances)
    if apart == 0:
        return 0.0
    welch = apart**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    of_a_day = sum(v * s.days * f for v, s, f in zip(variances, estimates, freedoms, strict=True)) / sum(freedoms)
    together = of_a_day * sum(1 / e.days for e in estimates)
    return max(_tails(value, apart, welch), _tails(value, together, sum(freedoms)))


def _tails(value: float, variance: float, freedom: float) -> float:
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(value) / np.sqrt(variance)))


def adjusted(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for multiple testing (Benjamini and Hochberg), ignoring None values."""
    known = np.array([p for p in p_values if p is not None], dtype=np.float64)
    order = np.argsort(known, kind="stable")[::-1]
    ranks = np.arange(len(known), 0, -1)
    fixed = np.empty(len(known))
    fixed[order] = np.minimum.accumulate(np.minimum(known[order] * len(known) / ranks, 1.0))
    left = iter(fixed.tolist())
    return [None if p is None else next(left) for p in p_values]
