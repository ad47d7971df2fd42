"""Intervals of scores that are no means: ratios of quantiles, and correlations, by resampling whole days."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.results.comparison import FEWEST_DAYS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Interval = tuple[float, float] | None

__all__ = ["correlation_interval", "quantile_ratio_interval"]

_RESAMPLES = 200
"""Fewer than of means, since every resample of a quantile goes through all jobs."""


def quantile_ratio_interval(days: NDArray[np.int64], above: Floats, below: Floats, share: float) -> Interval:
    """Return the 95 % interval of the ratio of two quantiles; None with fewer than `FEWEST_DAYS` days, or a zero below.

    Parameters
    ----------
    days : array of int, shape (n,)
        The block of each job.
    above, below : array of float, shape (n,)
        Whose quantiles are compared.
    share : float
        Which quantile [0..1]: the least value that at least so many of the jobs drawn do not exceed.
    """
    drawn = _drawn(days)
    if drawn is None:
        return None
    counts, place = drawn
    found = [_quantiles(values, place, counts, share) for values in (above, below)]
    known = found[1] > 0
    if not known.all():
        return None
    return _ends(found[0] / found[1])


def correlation_interval(days: NDArray[np.int64], a: Floats, b: Floats) -> Interval:
    """Return the 95 % interval of the correlation of two arrays (n,); None with few days, or where one is constant."""
    drawn = _drawn(days)
    if drawn is None:
        return None
    counts, place = drawn
    a, b = a - a.mean(), b - b.mean()
    sums = np.stack([np.bincount(place, weights=w) for w in (np.ones(len(a)), a, b, a * a, b * b, a * b)], axis=1)
    n, x, y, xx, yy, xy = (counts @ sums).T
    scale = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(scale > 1e-9 * n, (xy - x * y / n) / scale, np.nan)
    return None if np.isnan(found).all() else _ends(found)


def _drawn(days: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]] | None:
    """Return how often each day is drawn (R, D), and the day of each job (n,)."""
    blocks, place = np.unique(days, return_inverse=True)
    if len(blocks) < FEWEST_DAYS:
        return None
    chance = np.full(len(blocks), 1 / len(blocks))
    counts = np.random.default_rng(0).multinomial(len(blocks), chance, _RESAMPLES)
    return counts.astype(np.float64), place


def _quantiles(values: Floats, place: NDArray[np.int64], counts: Floats, share: float) -> Floats:
    """Return the quantile of each resample (R,)."""
    order = np.argsort(values, kind="stable")
    ranked, days = values[order], place[order]
    found = np.empty(len(counts))
    for k, drawn in enumerate(counts):
        whole = np.cumsum(drawn[days])
        found[k] = ranked[np.searchsorted(whole, share * whole[-1])]
    return found


def _ends(values: Floats) -> tuple[float, float]:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)
