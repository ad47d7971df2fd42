"""95 % confidence intervals for shares and medians in the columns of a result.

Both methods treat observations as independent. Jobs of one user are similar, so true intervals are wider. Telemetry
samples are autocorrelated and get no interval.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from tracekit.answer import Interval
    from tracekit.array_types import Floats


CONFIDENCE = 0.95

FEW = 30
"""A result with fewer observations is marked as uncertain."""

GRID = 101
"""Number of quantiles that a query returns for the interval of a median: 0, 0.01, ..., 1."""


def with_intervals(frame: pl.DataFrame, intervals: tuple[Interval, ...]) -> pl.DataFrame:
    """Return the ends of each interval as columns <column>_low and <column>_high, NULL if unknown."""
    import numpy as np

    columns: list[pl.Series] = []
    for interval in intervals:
        counts = frame[interval.count].cast(pl.Float64)
        n = np.full(len(counts), counts.sum()) if interval.pooled else counts.fill_null(0).to_numpy()
        if interval.method == "proportion":
            low, high = _proportion(frame[interval.column].cast(pl.Float64).to_numpy(), n)
        else:
            low, high = _median(frame[interval.hidden], n)
        for end, values in (("low", low), ("high", high)):
            columns.append(pl.Series(f"{interval.column}_{end}", values, dtype=pl.Float64).fill_nan(None))
    return pl.DataFrame(columns)


def _proportion(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    import numpy as np
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    hits = np.round(share * n)
    usable = np.isfinite(hits) & (n > 0)
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    k, m = hits[usable], n[usable]
    low[usable] = np.where(k > 0, betaincinv(k, m - k + 1, tail), 0.0)
    high[usable] = np.where(k < m, betaincinv(k + 1, m - k, 1 - tail), 1.0)
    return low, high


def _median(quantiles: pl.Series, n: Floats) -> tuple[Floats, Floats]:
    import numpy as np

    reach = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) / 2
    low, high = np.full(len(n), np.nan), np.full(len(n), np.nan)
    grid = np.linspace(0, 1, GRID)
    for row, values in enumerate(quantiles.to_list()):
        # Fewer than six observations cannot bound the median with this confidence.
        if values is None or n[row] < 6 or any(v is None for v in values):
            continue
        away = reach / np.sqrt(n[row])
        low[row], high[row] = np.interp([max(0.0, 0.5 - away), min(1.0, 0.5 + away)], grid, values)
    return low, high
