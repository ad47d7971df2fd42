"""95 % confidence intervals: from resampled whole days (also for a mean difference), and exact ones for a share.

Jobs on the same day are not independent: they share the queue, come from the same users and fail for the same reasons.
So whole days are resampled, not jobs.
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
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.array_types import Floats


_RESAMPLES = 1000
BY_SIZE = ("gpu_count",)
"""Columns that define strata by job size only."""


def over_days(
    frame: pl.DataFrame, statistic: Callable[[Mapping[str, Floats]], Floats], *, n: int, seed: int = 0
) -> Number:
    """Compute a statistic of sums, with its bootstrap interval over days.

    Each of 1,000 resamples draws as many days as there are in the data, with replacement, and computes the statistic
    from the sums over these days. The interval is from the 2.5th to the 97.5th percentile. No interval is computed if
    there are fewer than 5 days, or if the statistic is undefined in more than a tenth of the resamples.

    Parameters
    ----------
    frame : pl.DataFrame
        The column day, and the columns to sum.
    statistic : callable
        Takes the sums by column, each as an array (r,), and returns the values (r,), which are NaN if undefined.
    n : int
        Observations.
    seed : int
        Random seed. The same seed gives the same interval.
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
    # With a divisor of 0 a resample has no value, but NumPy returns infinity.
    values[np.isinf(values)] = np.nan
    if np.isnan(values).mean() > 0.1:
        return Number(value, n)
    low, high = np.nanquantile(values, [0.025, 0.975])
    return Number(value, n, float(low), float(high))


def _quietly(statistic: Callable[[Mapping[str, Floats]], Floats], names: list[str], sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(statistic({name: sums[:, k] for k, name in enumerate(names)}), np.float64)


def ratio(top: str, bottom: str) -> Callable[[Mapping[str, Floats]], Floats]:
    """Return the statistic sum(`top`) / sum(`bottom`), which is NaN if the divisor is 0."""
    return lambda sums: np.where(sums[bottom] != 0, sums[top] / sums[bottom], np.nan)


def share_of(hits: int, n: int) -> Number:
    """Return hits / n with the exact Clopper-Pearson interval for independent observations."""
    if not n:
        return Number(None, 0)
    frame = pl.DataFrame({"share": [hits / n], "n": [n]})
    ends = with_intervals(frame, (Interval("share", "proportion", "n"),))
    return Number(hits / n, n, ends["share_low"][0], ends["share_high"][0])


# The loss of GPU utilization between two conditions, within strata such as job sizes.


def strata_with_both(frame: pl.DataFrame, by: Sequence[str] = BY_SIZE) -> pl.DataFrame:
    """Return the rows of the strata with samples under both the better and the worse condition.

    `frame` has the columns `by`, worse (BOOLEAN), samples, total [percent * samples] and day.
    """
    both = frame.group_by(by).agg(pl.col("worse").n_unique().alias("kinds")).filter(pl.col("kinds") == 2)
    return frame.join(both.select(by), on=list(by), how="semi")


def pooled_drop(frame: pl.DataFrame, n: int, by: Sequence[str] = BY_SIZE) -> Number:
    """Compute the loss of utilization under the worse condition [percentage points].

    In each stratum, the difference is the pooled mean of the better samples minus that of the worse samples. Strata are
    weighted by their worse samples, so the result is the mean difference between worse samples and comparable better
    samples (direct standardization). `frame` is the result of `strata_with_both`.
    """
    strata = frame.select(by).unique().sort(by).rows()
    columns = {}
    for k, stratum in enumerate(strata):
        alike = pl.all_horizontal(pl.col(name) == value for name, value in zip(by, stratum, strict=True))
        for kind in (False, True):
            here = alike & (pl.col("worse") == kind)
            for name in ("samples", "total"):
                columns[f"{name}{int(kind)}_{k}"] = pl.when(here).then(pl.col(name).cast(pl.Float64)).otherwise(0.0)

    def statistic(sums: Mapping[str, Floats]) -> Floats:
        gain, weight = np.zeros(1), np.zeros(1)
        for k in range(len(strata)):
            better, worse = sums[f"samples0_{k}"], sums[f"samples1_{k}"]
            # A resample that lacks samples under one condition adds nothing for this stratum.
            known = (better > 0) & (worse > 0)
            drop = np.where(known, worse * sums[f"total0_{k}"] / better - sums[f"total1_{k}"], 0.0)
            gain, weight = gain + np.where(known, drop, 0.0), weight + np.where(known, worse, 0.0)
        return np.where(weight > 0, gain / weight, np.nan)

    return over_days(frame.select("day", **columns), statistic, n=n)
