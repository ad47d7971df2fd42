"""How much less busy GPUs are in one circumstance than in another, size of job by size of job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.guidelines.intervals import over_days

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.array_types import Floats
    from tracekit.guidelines.interface import Number


__all__ = ["pooled_drop", "sizes_with_both"]


def sizes_with_both(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of sizes that have both the better and the worse circumstance.

    `frame` has gpu_count, worse (BOOLEAN), samples, total [percent * samples] and day.
    """
    both = frame.group_by("gpu_count").agg(pl.col("worse").n_unique().alias("kinds")).filter(pl.col("kinds") == 2)
    return frame.join(both.select("gpu_count"), on="gpu_count", how="semi")


def pooled_drop(frame: pl.DataFrame, n: int) -> Number:
    """Return by how many points utilization is lower in the worse circumstance.

    For each size: pooled mean of the better samples minus that of the worse; the sizes are weighted by their worse
    samples. `frame` is that of `sizes_with_both`.
    """
    sizes = frame["gpu_count"].unique().sort().to_list()
    columns = {}
    for k, size in enumerate(sizes):
        for kind in (False, True):
            here = (pl.col("gpu_count") == size) & (pl.col("worse") == kind)
            for name in ("samples", "total"):
                columns[f"{name}{int(kind)}_{k}"] = pl.when(here).then(pl.col(name).cast(pl.Float64)).otherwise(0.0)

    def statistic(sums: Mapping[str, Floats]) -> Floats:
        gain, weight = np.zeros(1), np.zeros(1)
        for k in range(len(sizes)):
            better, worse = sums[f"samples0_{k}"], sums[f"samples1_{k}"]
            # A day drawn without one of the two says nothing of this size.
            known = (better > 0) & (worse > 0)
            drop = np.where(known, worse * sums[f"total0_{k}"] / better - sums[f"total1_{k}"], 0.0)
            gain, weight = gain + np.where(known, drop, 0.0), weight + np.where(known, worse, 0.0)
        return np.where(weight > 0, gain / weight, np.nan)

    return over_days(frame.select("day", **columns), statistic, n=n)
