"""The jobs of a log that a synthetic Trace can take as they are, day by day, with their attempts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.day_blocks import block_length
from tracekit.fit.jobs import LONGEST_S, UNFINISHED
from tracekit.fit.synthetic import LONGEST_DAYS
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.fit.arrays import Whole
    from tracekit.trace import Trace

__all__ = ["DAY_US", "KEPT", "NAMES", "LogAttempts", "LogJobs", "attempts_of", "jobs_by_day", "read_log"]

DAY_US = 86_400_000_000
"""A day [us]."""
NAMES = {"user": "u", "account": "a", "group": "g"}
"""Columns whose names become numbers, and the letter in front."""
KEPT = (
    *("cluster", "vc", "workload", "status", "gpu_count", "cpu_count", "memory_gib", "gpu_model", "node_count"),
    *("instance_count", "priority", "time_limit_s", "preemptible", "partition", "qos"),
)
"""Columns of jobs that stay as they are."""
_LEAST_DAYS = 9
"""Days of a log from which on the first and the last, which it may hold in part, are left out."""
_OF_ATTEMPTS = ("attempt", "run_s", "gpu_count", "node_count", "status")


@dataclass(frozen=True)
class LogJobs:
    """The jobs of the log that can be taken, day by day."""

    jobs: pl.DataFrame
    """In order of submission: job_id, user_number (-1 is unknown), local_us, run_s, and what stays as it is."""
    first: Whole
    """Place of the first job of each day, and the number of jobs at the end (days + 1,)."""
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
            raise UsageError("no job is on a whole day of the log", hint="resample a longer log")
        return float(self.first[-1] - self.first[0]) / self.days


def read_log(trace: Trace) -> LogJobs:
    """Return the jobs of a log, without those that still ran or waited at its end, or have no submission.

    Raises
    ------
    UsageError
        There is none, or they span too many days.
    """
    jobs = (
        _judged(trace)
        .select("job_id", *KEPT, *NAMES, "run_s", "submit_time", "local_us", "usable")
        .sort("submit_time", nulls_last=True, maintain_order=True)
        .collect()
    )
    taken = jobs.filter("usable").drop("usable")
    if taken.is_empty():
        raise _nothing(trace)
    notes = [f"{counted(jobs.height - taken.height, 'jobs')} of the log left out: no submission, or not ended"]
    taken = taken.with_columns(_numbers(taken[name]) for name in NAMES).sort("local_us", maintain_order=True)
    day = (taken["local_us"].to_numpy() // DAY_US).astype(np.int64)
    begin, number = _whole_days(int(day[0]), int(day[-1]))
    first = np.searchsorted(day, begin + np.arange(number + 1))
    if number < day[-1] - day[0] + 1:
        notes.append("the first and the last day of the log, which may be parts of days, are not taken")
    if number < 14:
        notes.append("less than two weeks: days do not keep their weekday")
    hours = (taken["run_s"] * taken["gpu_count"] / 3600).fill_null(0.0).to_numpy()
    daily = np.maximum(np.diff(np.concatenate([[0.0], hours.cumsum()])[first]), 0.0)
    length = max(block_length(np.diff(first).astype(float)), block_length(daily))
    return LogJobs(taken, first, begin * DAY_US, length, tuple(notes))


def jobs_by_day(trace: Trace) -> tuple[int, Whole]:
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
    return UsageError("no job has a submission and has ended", where=str(trace.path), hint="resample another Trace")


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


def _numbers(names: pl.Series) -> pl.Series:
    """Return a number for each name, 0 for that of the most jobs, -1 where it is unknown."""
    order = names.drop_nulls().value_counts(sort=False).sort("count", names.name, descending=[True, False])
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
    first: Whole
    """Place of the first of each job."""
    count: Whole
    """How many each job has."""


def attempts_of(trace: Trace, jobs: pl.DataFrame) -> LogAttempts:
    """Return the attempts of jobs of a log."""
    if not trace.has("attempts"):
        return LogAttempts(None, np.zeros(jobs.height, np.int64), np.zeros(jobs.height, np.int64))
    places = jobs.select("job_id").with_row_index("place")
    rows = (
        trace.scan("attempts")
        .select("job_id", *_OF_ATTEMPTS)
        .join(places.lazy(), on="job_id")
        .sort("place", "attempt")
        .collect()
    )
    count = np.bincount(rows["place"].to_numpy(), minlength=jobs.height).astype(np.int64)
    return LogAttempts(rows.select(_OF_ATTEMPTS), count.cumsum() - count, count)
