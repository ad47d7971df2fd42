"""What a workload is judged by: gaps, counts by hour, sizes, run times, loads; and how far two workloads are apart."""

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
"""The rows of the table of scores, and how a value is compared with the log's: 'distance' is a distance of two
distributions itself, 'difference' and 'ratio' are the absolute difference and the absolute logarithm of the ratio of
two values, 'wait' the latter of two waits of which each is longer by `LEAST_WAIT_S`."""
LEAST_WAIT_S = 60.0
"""What is added to waits that are compared, so that seconds beside none do not count as infinitely many times more."""
_LEAST_TAIL = 10
"""Least jobs above a quantile of run times."""
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Figures:
    """What is known of the workload of some days."""

    gaps: Floats
    """Times between successive submissions, over their mean [1]; empty where there is none above 0."""
    sizes: pl.DataFrame
    """GPUs of a job, and the share of jobs that ask for as many: gpu_count, share."""
    values: dict[str, float]
    """By row, what is known of those that are single values."""
    gpu_hours: float
    """GPU-hours of the jobs, whole run times [h]."""

    def with_waits(self, waits: Mapping[str, float]) -> Figures:
        """Return these figures with the rows of waits, of a replay."""
        return replace(self, values={**self.values, **waits})


class Judged(NamedTuple):
    """One row of one workload."""

    value: float
    distance: float
    """From the log's, at least 0; the unit is that of `ROWS`."""


def figures_of(trace: Trace, days: int) -> Figures:
    """Return the figures of a Trace of some days.

    Hours are those from the first submission to the last. The autocorrelations are those of
    log(1 + jobs) by hour. GPU-hours are those of jobs whose run time and GPUs are known.

    Parameters
    ----------
    days : int
        How many, for what is told by day.
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
    """Return the autocorrelation at a lag, None where there are not twice as many values or all are the same."""
    levels = levels - levels.mean()
    whole = float(levels @ levels)
    if levels.size < 2 * lag + 1 or whole <= 1e-12 * levels.size:
        return None
    return float(levels[lag:] @ levels[:-lag]) / whole


def judged(log: Figures, other: Figures) -> dict[str, Judged]:
    """Return how far a workload is from that of a log, by row; what one of both does not have is left out."""
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
    """Return the Kolmogorov-Smirnov distance of gaps, or the total variation of sizes: half the sum of differences."""
    if row == "gap_distribution":
        if not log.gaps.size or not other.gaps.size:
            return None
        at = np.concatenate([log.gaps, other.gaps])
        shares = [np.searchsorted(gaps, at, side="right") / gaps.size for gaps in (log.gaps, other.gaps)]
        return float(np.abs(shares[0] - shares[1]).max())
    if log.sizes.is_empty() or other.sizes.is_empty():
        return None
    both = log.sizes.join(other.sizes, on="gpu_count", how="full", suffix="_other").fill_null(0.0)
    # The rows come in no order: an exact sum hangs on none, and equal distances stay equal.
    return math.fsum((both["share"] - both["share_other"]).abs()) / 2


def _log_ratio(mine: float, yours: float, *, wait: bool) -> float | None:
    if wait:
        mine, yours = mine + LEAST_WAIT_S, yours + LEAST_WAIT_S
    return abs(math.log(yours / mine)) if mine > 0 and yours > 0 else None
