"""Split a log into a part from which generators learn and a held-out part, and compare workloads with the latter.

A part consists of whole days by the log's clock. Its jobs are complete: a run beyond the end of its part is known in
full. Machines and quotas are those of a synthetic Trace, so the log's jobs run on the same machines in a replay.
"""

from __future__ import annotations

import datetime as dt
import math
import zoneinfo
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.fit.jobs import read_jobs
from tracekit.fit.log_jobs import DAY_US, jobs_by_day
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import capacity_table, node_table
from tracekit.text import counted
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.array_types import Floats
    from tracekit.trace import Trace


MOST_SCORED = 100_000
"""Maximum number of jobs in both parts; only the log's last whole days with up to this many jobs are used."""
_HELD_OUT = 0.3
"""Share of the days on which generators are judged."""
_STRAGGLERS = 0.01
"""Share of the jobs below which the first days are excluded. Generators learn nothing from a few early jobs."""
_LEAST_DAYS = 7
"""Minimum number of days in both parts together."""
_LEAST_JOBS = 100
"""Minimum number of jobs in each part."""


@dataclass(frozen=True)
class Split:
    """The split of a log, with times in UTC [us since 1970]."""

    begin_us: int
    cut_us: int
    """End of the learning part, and beginning of the held-out part."""
    end_us: int
    learned_days: int
    days: int
    """Number of days in the held-out part."""
    learned_jobs: int
    jobs: int
    starts_us: tuple[int, ...]
    """Beginnings of blocks within the learning part. Each block is as long as the held-out part and half overlaps
    the next block."""


def split_of(trace: Trace) -> Split | str:
    """Return the split of a log, or the reason why it cannot be split.

    Raises
    ------
    UsageError
        The log has no usable job.
    """
    begin_us, jobs = jobs_by_day(trace)
    stragglers = int((jobs.cumsum() < _STRAGGLERS * jobs.sum()).sum())
    days = min(int((jobs[::-1].cumsum() <= MOST_SCORED).sum()), jobs.size - stragglers)
    if days < _LEAST_DAYS:
        return (
            f"the log has {counted(days, 'whole days')} of at most {MOST_SCORED:,} jobs, but {_LEAST_DAYS} are needed"
        )
    skipped, held = jobs.size - days, max(1, round(days * _HELD_OUT))
    cut = jobs.size - held
    learned_jobs, held_jobs = int(jobs[skipped:cut].sum()), int(jobs[cut:].sum())
    if min(learned_jobs, held_jobs) < _LEAST_JOBS:
        return (
            f"the first {counted(days - held, 'days')} have {counted(learned_jobs, 'jobs')} and the last"
            f" {held:,} have {held_jobs:,}: {_LEAST_JOBS} of each are needed"
        )

    def utc(day: int) -> int:
        return utc_us(begin_us + day * DAY_US, trace.timezone)

    step = max(1, held // 2)
    starts = tuple(utc(day) for day in range(skipped, cut - held + 1, step))
    # The day before is included, because readers of the part exclude its first day, which may be incomplete.
    begin = utc(skipped - 1)
    return Split(begin, utc(cut), utc(jobs.size), days - held, held, learned_jobs, held_jobs, starts)


def utc_us(local_us: int, zone: str) -> int:
    """Convert a local time to UTC."""
    local = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=local_us)
    aware = local.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    return (aware.astimezone(dt.UTC).replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def write_part(trace: Trace, begin_us: int, end_us: int, out: Path) -> Trace:
    """Write the jobs submitted in [begin_us, end_us), with their attempts, as a Trace."""
    submit = pl.col("submit_time").dt.epoch("us")
    jobs = trace.scan("jobs").filter((submit >= begin_us) & (submit < end_us)).collect()
    attempts = None
    if trace.has("attempts"):
        attempts = trace.scan("attempts").join(jobs.lazy().select("job_id"), on="job_id", how="semi").collect()
    return write_jobs(trace, jobs, out, attempts=attempts)


def write_jobs(trace: Trace, jobs: pl.DataFrame, out: Path, *, attempts: pl.DataFrame | None = None) -> Trace:
    """Write jobs as a Trace with the machines and the manifest of another Trace."""
    cluster = fit_cluster(trace)
    with TraceWriter(out) as writer:
        writer.write("jobs", jobs)
        if attempts is not None:
            writer.write("attempts", attempts)
        writer.write("nodes", node_table(cluster, 1.0))
        first = jobs["submit_time"].dt.epoch("us").min()
        writer.write("capacity", capacity_table(cluster, first if isinstance(first, int) else 0, 1.0))
        writer.drain()
        return writer.commit(replace(trace.manifest, tables=writer.tables()))


# Compute the figures of a workload (gaps, hourly counts, sizes, run times, loads) and their distances.

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
"""The rows of the score table, each with the kind of comparison with the log's value. 'distance' is a distance between
two distributions, 'difference' is the absolute difference of two values, and 'ratio' is the absolute logarithm of their
ratio. 'wait' is the same as 'ratio', after adding `LEAST_WAIT_S` to both waits."""
LEAST_WAIT_S = 60.0
"""Time added to waits before a comparison. Otherwise a few seconds against no wait would be infinite."""
_LEAST_TAIL = 10
"""Minimum number of jobs above a run time quantile."""
_HOUR_US = 3_600_000_000


@dataclass(frozen=True)
class Figures:
    """Figures of a workload over a number of days."""

    gaps: Floats
    """Times between successive submissions divided by their mean [1]; empty if none is above 0."""
    sizes: pl.DataFrame
    """Number of GPUs, and the share of jobs that request it: gpu_count, share."""
    values: dict[str, float]
    """Known values by row, for the rows that are single values."""
    gpu_hours: float
    """GPU-hours of the jobs, based on their complete run times [h]."""

    def with_waits(self, waits: Mapping[str, float]) -> Figures:
        """Return these figures with the wait rows from a replay."""
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
        Number of days, used for the figures per day.
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
    """Return the autocorrelation at a lag, or None if there are fewer than twice as many values or all are equal."""
    levels = levels - levels.mean()
    whole = float(levels @ levels)
    if levels.size < 2 * lag + 1 or whole <= 1e-12 * levels.size:
        return None
    return float(levels[lag:] @ levels[:-lag]) / whole


def judged(log: Figures, other: Figures) -> dict[str, Judged]:
    """Return the distance of a workload from that of a log by row, for the rows that both have."""
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
    # depend on it, so equal distances stay equal.
    return math.fsum((both["share"] - both["share_other"]).abs()) / 2


def _log_ratio(mine: float, yours: float, *, wait: bool) -> float | None:
    if wait:
        mine, yours = mine + LEAST_WAIT_S, yours + LEAST_WAIT_S
    return abs(math.log(yours / mine)) if mine > 0 and yours > 0 else None
