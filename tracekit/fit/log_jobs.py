"""The jobs of a log that a synthetic Trace can reuse unchanged, day by day, with their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.jobs import LONGEST_S, UNFINISHED
from tracekit.fit.synthetic import LONGEST_DAYS
from tracekit.tables.parquet import filled_columns
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.trace import Trace


DAY_US = 86_400_000_000
"""A day [us]."""
NAMES = {"user": "u", "account": "a", "group": "g"}
"""Columns whose names become numbers, with the letter put in front."""
KEPT = (
    *("cluster", "vc", "workload", "status", "gpu_count", "cpu_count", "memory_gib", "gpu_model", "node_count"),
    *("instance_count", "priority", "time_limit_s", "preemptible", "partition", "qos"),
)
"""Columns of jobs that stay unchanged."""
WEEK = 7
_LONGEST_BLOCK = 28
"""Maximum number of days in a block."""
_LEAST_DAYS = 9
"""From this many days on, a log's first and last days, which may be incomplete, are left out."""
_OF_ATTEMPTS = ("attempt", "run_s", "gpu_count", "node_count", "status")


@dataclass(frozen=True)
class LogJobs:
    """The usable jobs of a log, day by day."""

    jobs: pl.DataFrame
    """All jobs of the Trace, including those not taken: job_id, run_s, numbers for names (such as user_number; -1
    without a name), and the unchanged columns."""
    row: Ints
    """Row of each job that is taken, in submission order by the log's clock (n,)."""
    local_us: Ints
    """Submission of each job that is taken [us since 1970] (n,)."""
    first: Ints
    """Index of each day's first job in that order, followed by the number of jobs (days + 1,)."""
    begin_us: int
    """Local midnight of the first day [us since 1970]."""
    length: int
    """Days per block: the range over which days are correlated in jobs or in GPU-hours, whichever is longer."""
    notes: tuple[str, ...]

    @property
    def days(self) -> int:
        """Number of days."""
        return self.first.size - 1

    @property
    def per_day(self) -> float:
        """Mean number of jobs per day.

        Raises
        ------
        UsageError
            No job was submitted on a whole day.
        """
        if self.first[-1] == self.first[0]:
            raise UsageError("the log has no whole day with jobs", hint="resample a longer log")
        return float(self.first[-1] - self.first[0]) / self.days


def read_log(trace: Trace) -> LogJobs:
    """Return the jobs of a log, except those without a submission and those running or waiting at its end.

    Raises
    ------
    UsageError
        The log has no such jobs, or they span too many days.
    """
    columns = [name for name in KEPT if name in _filled(trace)]
    jobs = _judged(trace).select("job_id", *columns, *NAMES, "run_s", "submit_time", "local_us", "usable").collect()
    row = np.flatnonzero(jobs["usable"].to_numpy())
    if not row.size:
        raise _nothing(trace)
    left_out = jobs.height - row.size
    notes = (
        [f"{counted(left_out, 'jobs')} of the log left out, because they have no submission or no end"]
        if left_out
        else []
    )
    # Sort the numbers instead of the rows, because a frame of strings would take ten times as long.
    row = row[np.argsort(jobs["submit_time"].dt.epoch("us").to_numpy()[row], kind="stable")]
    local_us = jobs["local_us"].to_numpy()[row]
    if (np.diff(local_us) < 0).any():  # the clocks were set back
        order = np.argsort(local_us, kind="stable")
        row, local_us = row[order], local_us[order]
    jobs = jobs.drop("usable", "submit_time", "local_us").with_columns(
        _numbers(jobs[name], jobs["usable"]) for name in NAMES
    )
    day = local_us // DAY_US
    begin, number = _whole_days(int(day[0]), int(day[-1]))
    first = np.searchsorted(day, begin + np.arange(number + 1))
    if number < day[-1] - day[0] + 1:
        notes.append("the log's first and last days are left out, because they may be incomplete")
    if number < 14:
        notes.append("the log has less than two weeks, so days do not keep their weekday")
    hours = (jobs["run_s"] * jobs["gpu_count"] / 3600).fill_null(0.0).to_numpy()[row]
    daily = np.maximum(np.diff(np.concatenate([[0.0], hours.cumsum()])[first]), 0.0)
    length = max(block_length(np.diff(first).astype(float)), block_length(daily))
    return LogJobs(jobs, row, local_us, first, begin * DAY_US, length, tuple(notes))


def block_length(daily: Floats) -> int:
    """Return the number of days per block: the first lag at which the autocorrelation is within chance.

    The autocorrelation is that of log(1 + the daily figure), minus the mean of its weekday if the log has three weeks
    or more. Chance is 2 / sqrt(days). A block is at most a quarter of the log and at most 28 days.

    Parameters
    ----------
    daily : array (n,)
        Daily figure, such as the number of jobs.
    """
    number = daily.size
    most = min(_LONGEST_BLOCK, max(1, number // 4))
    levels = np.log1p(daily)
    week = np.arange(number) % WEEK if number >= 3 * WEEK else np.zeros(number, np.int64)
    levels = levels - (np.bincount(week, levels) / np.maximum(np.bincount(week), 1))[week]
    whole = float(levels @ levels)
    if whole <= 0:
        return 1
    for lag in range(1, most):
        if float(levels[lag:] @ levels[:-lag]) / whole < 2 / np.sqrt(number):
            return lag
    return most


def jobs_by_day(trace: Trace) -> tuple[int, Ints]:
    """Return local midnight of a log's first day [us since 1970] and how many jobs `read_log` takes on each day.

    Raises
    ------
    UsageError
        The log has no such jobs, or they span too many days.
    """
    counts = (
        _judged(trace)
        .filter("usable")
        .group_by((pl.col("local_us") // DAY_US).alias("day"))
        .agg(pl.len().cast(pl.Int64).alias("jobs"))
        .sort("day")
        .collect()
    )
    if counts.is_empty():
        raise _nothing(trace)
    begin, number = _whole_days(int(counts["day"][0]), int(counts["day"][-1]))
    found = np.zeros(number, np.int64)
    inside = counts.filter(pl.col("day").is_between(begin, begin + number - 1))
    found[inside["day"].to_numpy() - begin] = inside["jobs"].to_numpy()
    return begin * DAY_US, found


def _filled(trace: Trace) -> frozenset[str]:
    """Return the needed columns of jobs and those with any value; empty columns would take much memory."""
    with trace.database() as database, database.connect() as con:
        return filled_columns(con, "jobs", trace.files("jobs")) | {"cluster", "vc", "gpu_count"}


def _judged(trace: Trace) -> pl.LazyFrame:
    """Return the jobs with their run time [s], their submission by the log's clock, and whether they are taken.

    Jobs without a submission are not taken, nor are jobs running or waiting at the end of the log.
    """
    own = pl.coalesce("run_s", (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
    unfinished = pl.col("status").is_in(UNFINISHED).fill_null(value=False)
    submit = pl.col("submit_time").dt.replace_time_zone("UTC").dt.convert_time_zone(trace.timezone)
    local = submit.dt.replace_time_zone(None).dt.epoch("us")
    ran = pl.col("run_s").is_between(0, LONGEST_S) | pl.col("run_s").is_null()
    usable = pl.col("submit_time").is_not_null() & ~unfinished & ran
    return trace.scan("jobs").with_columns(run_s=own, local_us=local).with_columns(usable=usable)


def _nothing(trace: Trace) -> UsageError:
    return UsageError("no job has both a submission and an end", where=str(trace.path), hint="resample another Trace")


def _whole_days(first: int, last: int) -> tuple[int, int]:
    """Return the first day that is taken and the number of days; with nine or more, the days at the ends are left out.

    Raises
    ------
    UsageError
        The log has too many days.
    """
    number = last - first + 1
    if number > LONGEST_DAYS:
        raise UsageError(f"the log spans {number:,} days", hint="choose jobs from a shorter period")
    return (first + 1, number - 2) if number >= _LEAST_DAYS else (first, number)


def _numbers(names: pl.Series, counts: pl.Series) -> pl.Series:
    """Return a number for each name: 0 for the most counted jobs, -1 for an unknown name or one without jobs."""
    order = names.filter(counts).drop_nulls().value_counts(sort=False)
    order = order.sort("count", names.name, descending=[True, False])
    number = pl.int_range(order.height, dtype=pl.Int64)
    found = names.to_frame().join(
        order.select(names.name, number=number), on=names.name, how="left", maintain_order="left"
    )
    return found["number"].fill_null(-1).alias(f"{names.name}_number")


@dataclass(frozen=True)
class LogAttempts:
    """The attempts of the jobs of a log."""

    rows: pl.DataFrame | None
    """The attempts in job order; None if the log has no attempts."""
    first: Ints
    """Index of each job's first attempt."""
    count: Ints
    """Number of attempts of each job."""


def attempts_of(trace: Trace, jobs: pl.DataFrame) -> LogAttempts:
    """Return the attempts of jobs of a log."""
    if not trace.has("attempts"):
        return LogAttempts(None, np.zeros(jobs.height, np.int64), np.zeros(jobs.height, np.int64))
    rows = trace.scan("attempts").select("job_id", *_OF_ATTEMPTS).collect()
    job = _jobs_in_order(rows["job_id"], jobs["job_id"])
    if job is None:
        places = jobs.select("job_id").with_row_index("place")
        rows = rows.join(places, on="job_id", maintain_order="left")
        job = rows["place"].to_numpy().astype(np.int64)
    number = rows["attempt"].to_numpy()
    if ((np.diff(job) < 0) | ((np.diff(job) == 0) & (np.diff(number) < 0))).any():
        order = np.lexsort((number, job))
        rows, job = rows[order], job[order]
    count = np.bincount(job, minlength=jobs.height).astype(np.int64)
    return LogAttempts(rows.select(_OF_ATTEMPTS), count.cumsum() - count, count)


def _jobs_in_order(of_attempts: pl.Series, of_jobs: pl.Series) -> Ints | None:
    """Return the index of each attempt's job if every job has attempts and both tables have one order, otherwise None.

    Most formats write the tables this way, and this is much faster than looking up each job.
    """
    begins = (of_attempts != of_attempts.shift()).fill_null(value=True)
    named = of_attempts.filter(begins)
    if named.len() != of_jobs.len() or not (named == of_jobs).all():
        return None
    found: Ints = begins.to_numpy().cumsum() - 1
    return found
