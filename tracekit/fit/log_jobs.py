"""The jobs of a log that a synthetic Trace can take as they are, day by day, with their attempts."""

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
"""Columns whose names become numbers, and the letter in front."""
KEPT = (
    *("cluster", "vc", "workload", "status", "gpu_count", "cpu_count", "memory_gib", "gpu_model", "node_count"),
    *("instance_count", "priority", "time_limit_s", "preemptible", "partition", "qos"),
)
"""Columns of jobs that stay as they are."""
WEEK = 7
_LONGEST_BLOCK = 28
"""Most days of a block."""
_LEAST_DAYS = 9
"""Days of a log from which on the first and the last, which it may hold in part, are left out."""
_OF_ATTEMPTS = ("attempt", "run_s", "gpu_count", "node_count", "status")


@dataclass(frozen=True)
class LogJobs:
    """The jobs of the log that can be taken, day by day."""

    jobs: pl.DataFrame
    """As the Trace has them, also those that are not taken: job_id, run_s, numbers for names (user_number and so on, -1
    where there is none), and what stays as it is."""
    row: Ints
    """Row of each job that is taken, in order of submission by the clock of the log (n,)."""
    local_us: Ints
    """Its submission [us since 1970] (n,)."""
    first: Ints
    """Place of the first job of each day in that order, and the number of jobs at the end (days + 1,)."""
    begin_us: int
    """Local midnight of the first day [us since 1970]."""
    length: int
    """Days of a block: as long as days hang together in jobs or in GPU-hours, whichever is longer."""
    notes: tuple[str, ...]

    @property
    def days(self) -> int:
        """How many there are."""
        return self.first.size - 1

    @property
    def per_day(self) -> float:
        """Mean number of jobs a day.

        Raises
        ------
        UsageError
            There is none on a whole day.
        """
        if self.first[-1] == self.first[0]:
            raise UsageError("the log has no whole day with jobs", hint="resample a longer log")
        return float(self.first[-1] - self.first[0]) / self.days


def read_log(trace: Trace) -> LogJobs:
    """Return the jobs of a log, without those that still ran or waited at its end, or have no submission.

    Raises
    ------
    UsageError
        There is none, or they span too many days.
    """
    columns = [name for name in KEPT if name in _filled(trace)]
    jobs = _judged(trace).select("job_id", *columns, *NAMES, "run_s", "submit_time", "local_us", "usable").collect()
    row = np.flatnonzero(jobs["usable"].to_numpy())
    if not row.size:
        raise _nothing(trace)
    left_out = jobs.height - row.size
    notes = [f"{counted(left_out, 'jobs')} of the log left out: no submission, or not ended"] if left_out else []
    # Numbers are sorted and rows are not: a frame of strings would take ten times as long.
    row = row[np.argsort(jobs["submit_time"].dt.epoch("us").to_numpy()[row], kind="stable")]
    local_us = jobs["local_us"].to_numpy()[row]
    if (np.diff(local_us) < 0).any():  # where clocks go back
        order = np.argsort(local_us, kind="stable")
        row, local_us = row[order], local_us[order]
    jobs = jobs.drop("usable", "submit_time", "local_us").with_columns(
        _numbers(jobs[name], jobs["usable"]) for name in NAMES
    )
    day = local_us // DAY_US
    begin, number = _whole_days(int(day[0]), int(day[-1]))
    first = np.searchsorted(day, begin + np.arange(number + 1))
    if number < day[-1] - day[0] + 1:
        notes.append("the first and the last day of the log, which may be parts of days, are not taken")
    if number < 14:
        notes.append("less than two weeks: days do not keep their weekday")
    hours = (jobs["run_s"] * jobs["gpu_count"] / 3600).fill_null(0.0).to_numpy()[row]
    daily = np.maximum(np.diff(np.concatenate([[0.0], hours.cumsum()])[first]), 0.0)
    length = max(block_length(np.diff(first).astype(float)), block_length(daily))
    return LogJobs(jobs, row, local_us, first, begin * DAY_US, length, tuple(notes))


def block_length(daily: Floats) -> int:
    """Return how many days a block needs: the first lag at which the autocorrelation is within chance.

    The logarithm of 1 + the daily figure is taken, less the mean of its weekday where there are three weeks or more;
    chance is 2 / sqrt(days). At most a quarter of the log, and 28 days.

    Parameters
    ----------
    daily : array (n,)
        What came on each day, such as jobs.
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
    """Return local midnight of the first day of a log [us since 1970], and how many jobs `read_log` takes on each.

    Raises
    ------
    UsageError
        There is none, or they span too many days.
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
    """Return the columns of jobs that hold any value, and those that are needed; empty ones would take much memory."""
    with trace.database() as database, database.connect() as con:
        return filled_columns(con, "jobs", trace.files("jobs")) | {"cluster", "vc", "gpu_count"}


def _judged(trace: Trace) -> pl.LazyFrame:
    """Return the jobs with their run time [s], their submission by the clock of the log, and whether they are taken.

    Those that still ran or waited at the end of the log are not, nor those without a submission.
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
    """Return the first day that is taken, and how many are: of nine or more not those at the ends.

    Raises
    ------
    UsageError
        They are too many.
    """
    number = last - first + 1
    if number > LONGEST_DAYS:
        raise UsageError(f"the log spans {number:,} days", hint="choose jobs of a shorter time")
    return (first + 1, number - 2) if number >= _LEAST_DAYS else (first, number)


def _numbers(names: pl.Series, counts: pl.Series) -> pl.Series:
    """Return a number for each name, 0 for that of the most jobs that count, -1 where it is unknown or of none."""
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
    """In the order of the jobs; None where the log has none."""
    first: Ints
    """Place of the first of each job."""
    count: Ints
    """How many each job has."""


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
    """Return the place of each attempt's job where every job has attempts and both tables have one order, else None.

    That is what most formats write, and found far sooner than by looking up every job.
    """
    begins = (of_attempts != of_attempts.shift()).fill_null(value=True)
    named = of_attempts.filter(begins)
    if named.len() != of_jobs.len() or not (named == of_jobs).all():
        return None
    found: Ints = begins.to_numpy().cumsum() - 1
    return found
