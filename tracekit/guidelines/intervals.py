"""Confidence intervals of 95 %: by resampling whole days, and exact ones of a share.

Jobs of one day meet in the queue, come from the same users and fail for the same reasons, so days, not jobs, are
resampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import Interval
from tracekit.characterize.intervals import with_intervals
from tracekit.guidelines.interface import Number
from tracekit.replay.results.comparison import FEWEST_DAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.array_types import Floats


_RESAMPLES = 1000


def over_days(
    frame: pl.DataFrame, statistic: Callable[[Mapping[str, Floats]], Floats], *, n: int, seed: int = 0
) -> Number:
    """Return a statistic of sums, with its interval by a bootstrap over days.

    Each of 1,000 resamples draws as many days as the data have, with replacement, and computes the statistic from the
    sums over the drawn days. The interval runs from the 2.5th to the 97.5th percentile. It is missing with fewer than 5
    days, or if a tenth of the resamples has no value.

    Parameters
    ----------
    frame : pl.DataFrame
        The column day, and columns to be summed.
    statistic : callable
        Takes the sums by column, each an array (r,), and returns the values (r,); NaN for missing ones.
    n : int
        Observations.
    seed : int
        Of the draws; the same seed gives the same interval.
    """
    names = [name for name in frame.columns if name != "day"]
    by_day = frame.group_by("day").agg(pl.col(names).sum()).sort("day")
    sums = by_day.select(pl.col(names).cast(pl.Float64)).to_numpy()
    value = float(_quietly(statistic, names, sums.sum(axis=0, keepdims=True))[0])
    days = len(sums)
    if days < FEWEST_DAYS or not np.isfinite(value):
        return Number(value if np.isfinite(value) else None, n)
    drawn = np.random.default_rng(seed).multinomial(days, np.full(days, 1 / days), size=_RESAMPLES)
    values = _quietly(statistic, names, drawn @ sums)
    # A resample with a divisor of 0 has no value, though NumPy calls it infinite.
    values[np.isinf(values)] = np.nan
    if np.isnan(values).mean() > 0.1:
        return Number(value, n)
    low, high = np.nanquantile(values, [0.025, 0.975])
    return Number(value, n, float(low), float(high))


def _quietly(statistic: Callable[[Mapping[str, Floats]], Floats], names: list[str], sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(statistic({name: sums[:, k] for k, name in enumerate(names)}), np.float64)


def ratio(top: str, bottom: str) -> Callable[[Mapping[str, Floats]], Floats]:
    """Return the statistic sum of `top` / sum of `bottom`; NaN if the latter is 0."""
    return lambda sums: np.where(sums[bottom] != 0, sums[top] / sums[bottom], np.nan)


def share_of(hits: int, n: int) -> Number:
    """Return hits / n with the exact interval of Clopper and Pearson, for independent observations."""
    if not n:
        return Number(None, 0)
    frame = pl.DataFrame({"share": [hits / n], "n": [n]})
    ends = with_intervals(frame, (Interval("share", "proportion", "n"),))
    return Number(hits / n, n, ends["share_low"][0], ends["share_high"][0])
