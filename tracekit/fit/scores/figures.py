"""The figures that a workload is judged by (gaps, hourly counts, sizes, run times, loads), and their distances."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.fit.jobs import read_jobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.array_types import Floats
    from tracekit.trace import Trace

ROWS: Mapping[str, str] = {
    "gap_distribution": "distance",
    "gap_variation": "ratio",
    "hourly_variation": "ratio",
    "hourly_lag_1h": "difference",
    "hourly_lag_24h": "difference",
    "jobs_per_day": "ratio",
    "gpu_hours_per_day": "ratio",
    "size_mix": "distance",
    "run_time_p99_s": "ratio",
    "run_time_p999_s": "ratio",
    "wait_fifo_mean_s": "wait",
    "wait_fifo_p90_s": "wait",
    "wait_easy_mean_s": "wait",
    "wait_easy_p90_s": "wait",
    "wait_srtf_mean_s": "wait",
    "wait_srtf_p90_s": "wait",
}
"""The rows of the score table, and how a value is compared with the log's value. 'distance' is a distance between two
distributions, 'difference' the absolute difference of two values, and 'ratio' the absolute logarithm of their ratio.
'wait' is the same as 'ratio', after adding `LEAST_WAIT_S` to both waits."""
LEAST_WAIT_S = 60.0
"""Time added to waits before they are compared, so that a few seconds against no wait do not give an infinite ratio."""
_LEAST_TAIL = 10
"""Minimum number of jobs above a run time quantile."""
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Figures:
    """Figures of the workload of some days."""

    gaps: Floats
    """Times between successive submissions, divided by their mean [1]; empty if none is above 0."""
    sizes: pl.DataFrame
    """Number of GPUs, and the share of jobs that request it: gpu_count, share."""
    values: dict[str, float]
    """Known values of the rows that are single values, by row."""
    gpu_hours: float
    """GPU-hours of the jobs, from their complete run times [h]."""

    def with_waits(self, waits: Mapping[str, float]) -> Figures:
        """Return these figures with the rows of waits from a replay."""
        return replace(self, values={**self.values, **waits})


class Judged(NamedTuple):
    """One row of the score table for one workload."""

    value: float
    distance: float
    """Distance from the log's value, at least 0, in the unit of `ROWS`."""


def figures_of(trace: Trace, days: int) -> Figures:
    """Return the figures of a Trace that spans a number of days.

    Hours run from the first submission to the last. Autocorrelations are those of log(1 + jobs) by hour. GPU-hours
    count the jobs whose run time and GPUs are known.

    Parameters
    ----------
    days : int
        Number of days, for the figures per day.
    """
    jobs = read_jobs(trace).frame.filter(pl.col("submit_us").is_not_null())
    hour = jobs["submit_us"].to_numpy() // _HOUR_US
    hours = np.bincount(hour - hour.min()).astype(float) if hour.size else np.zeros(0)
    submit = np.sort(jobs["submit_us"].to_numpy()).astype(float)
    gaps = np.diff(submit)
    mean = float(gaps.mean()) if gaps.size else 0.0
    ran = jobs.filter(pl.col("known") & pl.col("held_s").is_not_null())
    run_s = np.sort(ran["held_s"].to_numpy())
    gpu_hours = float((ran["held_s"] * ran["gpu_count"]).fill_null(0.0).sum()) / 3600
    values = {"jobs_per_day": jobs.height / days, "gpu_hours_per_day": gpu_hours / days}
    if mean > 0:
        values["gap_variation"] = float(gaps.std()) / mean
    if hours.size:
        values["hourly_variation"] = float(hours.std() / hours.mean())
    values |= {
        name: found
        for name, lag in (("hourly_lag_1h", 1), ("hourly_lag_24h", 24))
        if (found := _autocorrelation(np.log1p(hours), lag)) is not None
    }
    for name, level in (("run_time_p99_s", 0.99), ("run_time_p999_s", 0.999)):
        if run_s.size * (1 - level) >= _LEAST_TAIL - 1e-9:
            values[name] = float(np.quantile(run_s, level))
    sizes = jobs.filter(pl.col("gpu_count").is_not_null()).group_by("gpu_count").agg(share=pl.len())
    sizes = sizes.with_columns(pl.col("share") / sizes["share"].sum())
    return Figures(np.sort(gaps) / mean if mean > 0 else np.empty(0), sizes, values, gpu_hours)


def _autocorrelation(levels: Floats, lag: int) -> float | None:
    """Return the autocorrelation at a lag, or None if there are fewer than twice as many values or all are the same."""
    levels = levels - levels.mean()
    whole = float(levels @ levels)
    if levels.size < 2 * lag + 1 or whole <= 1e-12 * levels.size:
        return None
    return float(levels[lag:] @ levels[:-lag]) / whole


def judged(log: Figures, other: Figures) -> dict[str, Judged]:
    """Return how far a workload is from a log's, by row; rows that either of them lacks are left out."""
    found = {}
    for row, how in ROWS.items():
        if how == "distance":
            value = _distance(row, log, other)
            if value is not None:
                found[row] = Judged(value, value)
        elif row in log.values and row in other.values:
            mine, yours = log.values[row], other.values[row]
            apart = abs(mine - yours) if how == "difference" else _log_ratio(mine, yours, wait=how == "wait")
            if apart is not None:
                found[row] = Judged(yours, apart)
    return found


def _distance(row: str, log: Figures, other: Figures) -> float | None:
    """Return the Kolmogorov-Smirnov distance of gaps, or the total variation distance of sizes."""
    if row == "gap_distribution":
        if not log.gaps.size or not other.gaps.size:
            return None
        at = np.concatenate([log.gaps, other.gaps])
        shares = [np.searchsorted(gaps, at, side="right") / gaps.size for gaps in (log.gaps, other.gaps)]
        return float(np.abs(shares[0] - shares[1]).max())
    if log.sizes.is_empty() or other.sizes.is_empty():
        return None
    both = log.sizes.join(other.sizes, on="gpu_count", how="full", suffix="_other").fill_null(0.0)
    # Total variation is half the sum of the absolute differences. The rows have no fixed order. An exact sum does not
    # depend on the order, so equal distances stay equal.
    return math.fsum((both["share"] - both["share_other"]).abs()) / 2


def _log_ratio(mine: float, yours: float, *, wait: bool) -> float | None:
    if wait:
        mine, yours = mine + LEAST_WAIT_S, yours + LEAST_WAIT_S
    return abs(math.log(yours / mine)) if mine > 0 and yours > 0 else None
