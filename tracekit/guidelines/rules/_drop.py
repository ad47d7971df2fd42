"""How much less busy GPUs are in one circumstance than in another, stratum by stratum, such as size of job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.guidelines.intervals import over_days

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.array_types import Floats
    from tracekit.guidelines.interface import Number


BY_SIZE = ("gpu_count",)
"""Columns of the strata if only the size of the job defines them."""


def strata_with_both(frame: pl.DataFrame, by: Sequence[str] = BY_SIZE) -> pl.DataFrame:
    """Return the rows of strata that have both the better and the worse circumstance.

    `frame` has the columns `by`, worse (BOOLEAN), samples, total [percent * samples] and day.
    """
    both = frame.group_by(by).agg(pl.col("worse").n_unique().alias("kinds")).filter(pl.col("kinds") == 2)
    return frame.join(both.select(by), on=list(by), how="semi")


def pooled_drop(frame: pl.DataFrame, n: int, by: Sequence[str] = BY_SIZE) -> Number:
    """Return by how many points utilization is lower in the worse circumstance.

    For each stratum: pooled mean of the better samples minus that of the worse. The strata are weighted by their worse
    samples, so the result is the mean difference between worse samples and otherwise equal better ones (direct
    standardization). `frame` is that of `strata_with_both`.
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
            # A day drawn without one of the two says nothing of this stratum.
            known = (better > 0) & (worse > 0)
            drop = np.where(known, worse * sums[f"total0_{k}"] / better - sums[f"total1_{k}"], 0.0)
            gain, weight = gain + np.where(known, drop, 0.0), weight + np.where(known, worse, 0.0)
        return np.where(weight > 0, gain / weight, np.nan)

    return over_days(frame.select("day", **columns), statistic, n=n)
