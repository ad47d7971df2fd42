"""A bootstrap over whole days: sums and quantiles in resamples of the days of a period.

Jobs of one day meet in the queue, come from the same users and fail for the same reasons: days are resampled, not
jobs. All measures of a period share its resamples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools, Floats, Ints


RESAMPLES = 1000

_CELLS = 20_000_000
"""Most numbers in one table, so that memory is bounded whatever the period."""
_GRID = 4096
"""Most distinct values of a resampled quantile."""


@dataclass(frozen=True)
class DayResamples:
    """Resamples of the days of a period.

    Attributes
    ----------
    used : int array, shape (n,)
        The days with anything on them, rising.
    weights : float array, shape (r, n)
        How often each is drawn in each resample.
    days : int
        All days, those with nothing on them too.
    groups : int
        Groups of days within which days are drawn.
    """

    used: Ints
    weights: Floats
    days: int
    groups: int

    def place(self, days: Ints) -> Ints:
        """Return the positions of days in `used`."""
        return np.searchsorted(self.used, days)

    def sums(self, days: Ints, values: Floats) -> tuple[float, Floats]:
        """Return the sum of `values`, and that of each resample."""
        by_day = np.bincount(self.place(days), weights=values, minlength=len(self.used))
        return float(by_day.sum()), self.weights @ by_day


def draw_days(days: Ints, used: Ints, groups: Sequence[Bools], seed: Sequence[int]) -> DayResamples:
    """Resample the days of a period with replacement, within each group.

    Parameters
    ----------
    days : int array
        All days of the period.
    used : int array
        Days with a job or sample. Empty days are drawn too, but as one, so that a period of many empty days costs
        nothing.
    groups : sequence of bool arrays, one value for each of `days`
        Which days may replace each other.
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
    """Return a quantile, interpolated linearly between the two nearest values; NaN of nothing."""
    return float(np.quantile(values, share)) if len(values) else np.nan


def resampled_quantile(draws: DayResamples, days: Ints, values: Floats, share: float) -> Floats:
    """Return a quantile of the values on the days of each resample; NaN where it holds none.

    Up to 4,096 different values the result is exact. Beyond that values are first replaced by the mean of about one
    4,096th of them, their neighbours by rank: the rank of a quantile is then off by at most 0.025 %.

    Parameters
    ----------
    draws : DayResamples
        The resamples.
    days, values : arrays, shape (n,)
        The day of each value, and the value.
    share : float
        Which quantile [0..1].
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
    """Return the level of each value and what each level stands for, at most `most` of them."""
    ordered = np.sort(values)
    levels = ordered[np.append(True, ordered[1:] != ordered[:-1])]
    if len(levels) > most:
        # The first value of each slice of about equal size; values that fill several slices are levels of their own.
        firsts = np.unique(ordered[np.arange(most) * len(ordered) // most])
        codes = np.searchsorted(firsts, values, side="right") - 1
        return codes, np.bincount(codes, weights=values) / np.bincount(codes)
    return np.searchsorted(levels, values), levels


def _level_of(upto: Floats, weights: Floats, ranks: Floats) -> Ints:
    """Return, for each resample, the first level with more than `ranks` values up to it."""
    low = np.zeros(len(weights), dtype=np.int64)
    high = np.full(len(weights), len(upto) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        enough = np.einsum("rn,rn->r", weights, upto[middle]) > ranks
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    return low
