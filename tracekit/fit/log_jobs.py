"""Reuse the jobs of a log for a synthetic Trace: whole days in a new order, with unchanged jobs and attempts.

Days are taken in blocks that keep their weekdays and stay near their position in the log. This is the local block
bootstrap of Paparoditis and Politis (2002, C. R. Acad. Sci. Paris 335, 959-962). It keeps the dependence between the
days of a block and slow changes in the load. Blocks from anywhere (Kuensch 1989) would break up a month of high load,
and a queue that grew over weeks would never appear. The block length is the number of days over which the log is
correlated.

A job keeps its time of day, tenant, request, outcome and run time. This keeps all relations among the jobs of a day,
such as ten identical jobs of a user, bursts, and long jobs at night. Users, accounts and groups get numbers as names,
starting with the largest. For a higher load, several such logs with different users are overlaid; for a lower load,
users are dropped for whole days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.choice import Effort
from tracekit.fit.jobs import LONGEST_S, UNFINISHED
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.offered_load import gpu_seconds_per_s
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS, Source, check_any
from tracekit.tables.parquet import filled_columns
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.array_types import Floats, Ints
    from tracekit.fit.synthetic import Blocks, Recipe
    from tracekit.trace import Trace


DAY_US = 86_400_000_000
"""A day [us]."""
NAMES = {"user": "u", "account": "a", "group": "g"}
"""Columns whose names become numbers, and the prefix of each."""
KEPT = (
    *("cluster", "vc", "workload", "status", "gpu_count", "cpu_count", "memory_gib", "gpu_model", "node_count"),
    *("instance_count", "priority", "time_limit_s", "preemptible", "partition", "qos"),
)
"""Job columns that stay unchanged."""
WEEK = 7
_LONGEST_BLOCK = 28
"""Maximum number of days in a block."""
_LEAST_DAYS = 9
"""Minimum number of days in a log whose first and last days are excluded because they may be incomplete."""
_OF_ATTEMPTS = ("attempt", "run_s", "gpu_count", "node_count", "status")


@dataclass(frozen=True)
class LogJobs:
    """The usable jobs of a log, day by day."""

    jobs: pl.DataFrame
    """All jobs of the Trace, including unused ones: job_id, run_s, numbers for names (such as user_number, or -1
    without a name), and the unchanged columns."""
    row: Ints
    """Row of each job that is taken, in order of submission by the log's clock (n,)."""
    local_us: Ints
    """Submission of each job that is taken [us since 1970] (n,)."""
    first: Ints
    """Index of each day's first job in that order, followed by the number of jobs (days + 1,)."""
    begin_us: int
    """Local midnight of the first day [us since 1970]."""
    length: int
    """Days per block: the range over which days are correlated in jobs or GPU-hours, whichever is longer."""
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
            No jobs were submitted on whole days.
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
        [f"{counted(left_out, 'jobs')} of the log excluded, because they have no submission or no end"]
        if left_out
        else []
    )
    # Sort the numbers instead of the rows, because sorting a frame of strings would take ten times as long.
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
        notes.append("the log's first and last days are excluded, because they may be incomplete")
    if number < 14:
        notes.append("the log is shorter than two weeks, so days do not keep their weekday")
    hours = (jobs["run_s"] * jobs["gpu_count"] / 3600).fill_null(0.0).to_numpy()[row]
    daily = np.maximum(np.diff(np.concatenate([[0.0], hours.cumsum()])[first]), 0.0)
    length = max(block_length(np.diff(first).astype(float)), block_length(daily))
    return LogJobs(jobs, row, local_us, first, begin * DAY_US, length, tuple(notes))


def block_length(daily: Floats) -> int:
    """Return the number of days per block, which is the first lag whose autocorrelation may be due to chance.

    The autocorrelation is that of log(1 + the daily figure), minus the mean for its weekday if the log has three weeks
    or more. The threshold for chance is 2 / sqrt(days). A block is at most a quarter of the log and at most 28 days.

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
    """Return local midnight of a log's first day [us since 1970], and the number of jobs that `read_log` takes per day.

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
    """Return the job columns that are needed or have any value. Empty columns would take much memory."""
    with trace.database() as database, database.connect() as con:
        return filled_columns(con, "jobs", trace.files("jobs")) | {"cluster", "vc", "gpu_count"}


def _judged(trace: Trace) -> pl.LazyFrame:
    """Return the jobs with their run time [s], their submission by the log's clock, and whether they are taken.

    Jobs without a submission, and jobs running or waiting at the end of the log, are not taken.
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
    """Return the first day that is taken and the number of days, excluding both end days if there are nine or more.

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
    """Return a number for each name, from 0 for the most counted jobs, or -1 if it is unknown or has no jobs."""
    order = names.filter(counts).drop_nulls().value_counts(sort=False)
    order = order.sort("count", names.name, descending=[True, False])
    number = pl.int_range(order.height, dtype=pl.Int64)
    found = names.to_frame().join(
        order.select(names.name, number=number), on=names.name, how="left", maintain_order="left"
    )
    return found["number"].fill_null(-1).alias(f"{names.name}_number")


@dataclass(frozen=True)
class LogAttempts:
    """The attempts of a log's jobs."""

    rows: pl.DataFrame | None
    """The attempts in job order, or None if the log has no attempts."""
    first: Ints
    """Index of each job's first attempt."""
    count: Ints
    """Number of attempts of each job."""


def attempts_of(trace: Trace, jobs: pl.DataFrame) -> LogAttempts:
    """Return the attempts of a log's jobs."""
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
    """Return the index of each attempt's job, or None unless every job has attempts and both tables are in one order.

    Most formats write the tables in this order, and this is much faster than looking up each job.
    """
    begins = (of_attempts != of_attempts.shift()).fill_null(value=True)
    named = of_attempts.filter(begins)
    if named.len() != of_jobs.len() or not (named == of_jobs).all():
        return None
    return begins.to_numpy().cumsum() - 1


_CAPABILITIES = (
    *("arrivals", "run_time", "gpu_count", "node_count", "tenants", "users", "statuses", "hour_of_day", "retries"),
)
"""Capabilities that a synthetic Trace with a log's jobs inherits from the log."""
_LEAST_WEEKS = 2
"""Minimum number of weeks in a log whose days keep their weekday."""
_REACH_DAYS = 7
"""Maximum distance of a block from its position in the log [days]. On the Philly jobs of autumn 2017, one week
reproduces the log's waits in replays, and each additional week increases the difference."""


@dataclass(frozen=True)
class TakenJobs:
    """Jobs of a log that are reused, in the order of their new submissions; each array has shape (n,)."""

    place: Ints
    """Index in the log."""
    copy: Ints
    """Number of the overlaid log that contains the job."""
    submit: pl.Series
    """New submission, UTC."""


def asked_by(log: LogJobs, attempts: LogAttempts) -> float:
    """Return the GPU-seconds per second that the log's jobs request [GPU]."""
    rows = log.row[int(log.first[0]) : int(log.first[-1])]
    held = None
    if attempts.rows is not None:
        count = attempts.count[rows]
        each = np.repeat(attempts.first[rows] - (count.cumsum() - count), count) + np.arange(count.sum())
        held = count, attempts.rows["run_s"].to_numpy()[each]
    jobs = log.jobs[rows]
    return gpu_seconds_per_s(jobs["gpu_count"], jobs["run_s"], held, log.days)


def taken_days(log: LogJobs, recipe: Recipe, zone: str, rng: np.random.Generator) -> TakenJobs:
    """Draw a log's days in blocks and return their jobs.

    Raises
    ------
    UsageError
        There would be no jobs, or too many.
    """
    place, copy, local_us = _drawn(log, recipe, rng)
    check_any(place.size)
    submit = _utc(local_us, zone)
    # When clocks go forward, the skipped hour moves behind others, so sort the jobs again.
    order = np.argsort(submit.dt.epoch("us").to_numpy(), kind="stable")
    return TakenJobs(place[order], copy[order], submit[order])


def blocks_of_log(log: LogJobs, attempts: LogAttempts, taken: TakenJobs) -> Blocks:
    """Return a function that makes the rows of jobs taken from a log, with their attempts."""
    kept = [name for name in KEPT if name in log.jobs.columns]

    def block(part: slice, ids: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        rows = log.row[taken.place[part]]
        number, first = attempts.count[rows], attempts.first[rows]
        jobs = log.jobs[rows].select(
            ids,
            *kept,
            *(_renamed(name, taken.copy[part]) for name in NAMES),
            "run_s",
            taken.submit[part].alias("submit_time"),
            pl.Series("attempt_count", number),
        )
        if attempts.rows is None:
            return jobs, None
        job = np.repeat(np.arange(rows.size), number)
        inside = np.arange(job.size) - (number.cumsum() - number)[job]
        return jobs, attempts.rows[first[job] + inside].with_columns(ids[job])

    return block


def source_of_log(trace: Trace, log: LogJobs, cluster: dict[str, Any], recipe: Recipe) -> Source:
    """Return the properties that a synthetic Trace inherits from its log; `cluster` comes from `fit_cluster`."""
    return Source(
        {name: bool((known := trace.capabilities.get(name)) and known.available) for name in _CAPABILITIES},
        cluster,
        fit_node_failures(trace, recipe.seed, Effort(replicates=0)),
        relative=trace.manifest.time_base == "relative",
        timezone=trace.timezone,
        created=trace.manifest.created,
        absent="not resampled",
        notes=log.notes,
    )


def _drawn(log: LogJobs, recipe: Recipe, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Draw each new job's index in the log, the overlaid log that contains it, and its local time."""
    per_day = log.per_day
    asked = recipe.days if recipe.days is not None else (recipe.jobs or 0) / per_day / recipe.scale_load
    if asked > LONGEST_DAYS:
        raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")
    if asked * per_day * recipe.scale_load > MOST_JOBS * 1.2:
        raise UsageError(f"would give more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    number = max(1, int(np.ceil(asked)))
    # Draw more days if the first draw has too few jobs.
    longest = number if recipe.jobs is None else int(LONGEST_DAYS)
    due = course(number, log.days, rng, longest=longest)
    found = _days(log, due[:number], 0, recipe.scale_load, rng)
    while recipe.jobs is not None and found[0].size < recipe.jobs:
        missing = recipe.jobs - found[0].size
        more = max(7, int(np.ceil(missing / per_day / recipe.scale_load * 1.1)))
        if number + more > LONGEST_DAYS:
            raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs")
        further = _days(log, due[number : number + more], number, recipe.scale_load, rng)
        place, copy, local = (np.concatenate(pair) for pair in zip(found, further, strict=True))
        found = place, copy, local
        number += more
    place, copy, local = found
    if recipe.days is not None:
        inside = local - log.begin_us < recipe.days * DAY_US
        place, copy, local = place[inside], copy[inside], local[inside]
    return place[: recipe.jobs], copy[: recipe.jobs], local[: recipe.jobs]


def _days(log: LogJobs, due: Ints, begin: int, load: float, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Draw the jobs of new days, in order of their local time; `begin` is the number of the first new day."""
    parts = []
    whole = int(load)
    for copy in range(whole + (load > whole)):
        days = drawn_days(due, log.days, log.length, rng)
        count = log.first[days + 1] - log.first[days]
        new = np.repeat(np.arange(due.size), count)
        place = log.first[days][new] + np.arange(new.size) - (count.cumsum() - count)[new]
        if copy == whole:
            kept = _thinned(log, place, new, load - whole, rng)
            place, new = place[kept], new[kept]
        moved = (begin + new - days[new]) * DAY_US
        parts.append((place, np.full(place.size, copy), log.local_us[place] + moved))
    place, copies, local = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(local, kind="stable")
    return place[order], copies[order], local[order]


def _thinned(log: LogJobs, place: Ints, day: Ints, share: float, rng: np.random.Generator) -> Ints:
    """Keep a share of the jobs: all or none of a user's jobs on a day, but single jobs of unknown users."""
    user = log.jobs["user_number"].to_numpy()[log.row[place]]
    user = np.where(user < 0, -1 - np.arange(user.size), user)
    _, group = np.unique(np.column_stack([day, user]), axis=0, return_inverse=True)
    return np.flatnonzero(rng.random(int(group.max(initial=-1)) + 1)[group.ravel()] < share)


def _utc(local_us: Ints, zone: str) -> pl.Series:
    """Convert local times to UTC; a skipped hour becomes the next hour, and a repeated hour means the first one."""
    frame = pl.DataFrame({"at": pl.Series(local_us).cast(pl.Datetime("us"))})

    def at(shift: str) -> pl.Expr:
        moved = pl.col("at").dt.offset_by(shift)
        return moved.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

    found = frame.select(pl.coalesce(at("0h"), at("1h")).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return found.to_series()


def _renamed(name: str, copy: Ints) -> pl.Expr:
    """Convert numbers to names; names from an overlaid log end in that log's number."""
    number = pl.col(f"{name}_number")
    behind = pl.Series(copy)
    text = pl.lit(NAMES[name]) + (number + 1).cast(pl.String)
    again = pl.lit(".") + (pl.lit(behind) + 1).cast(pl.String)
    return pl.when(number >= 0).then(pl.when(pl.lit(behind) > 0).then(text + again).otherwise(text)).alias(name)


# Choose the days of the log that make up a new log.


def course(number: int, known: int, rng: np.random.Generator, *, longest: int) -> Ints:
    """Return the day of the log that is due on each new day, keeping weekdays.

    For as many days as the log has, the course is the log from its first day. For fewer days, it is the last days of
    the log, starting in the last week that leaves room for them, because the near future resembles the recent past.
    Beyond the log's end, the course passes through the log again, each time from a random week to the end and then from
    the beginning to that week. All days are then due equally often, and the passes are out of step. A log of less than
    two weeks does not keep its weekdays.

    Parameters
    ----------
    number : int
        Number of new days requested, which determines where the course begins.
    known : int
        Number of days in the log.
    longest : int
        Number of days in the course, at least `number`.
    """
    step = _step(known)
    begin = max(known - number, 0) // step * step
    pieces = [np.arange(begin, known)]
    size = known - begin
    while size < longest:
        first = size % step
        begin = first + step * int(rng.integers((known - 1 - first) // step + 1))
        pieces.append(np.arange(begin, known))
        size += known - begin
        # The rest of the pass. Its length keeps the weekdays of later days.
        pieces.append(np.arange(size % step, begin))
        size += pieces[-1].size
    return np.concatenate(pieces)[:longest]


def drawn_days(due: Ints, known: int, length: int, rng: np.random.Generator) -> Ints:
    """Draw the day of the log that is the source of each new day, block by block.

    A block begins on the day that is due, or a week before or after it, with equal probability if the log has these
    days. In a log of less than two weeks, it begins on any day up to a week away. A block ends early where the log ends
    or the course jumps.

    Parameters
    ----------
    due : array (n,)
        The day of the log that is due on each new day (see `course`).
    known : int
        Number of days in the log.
    length : int
        Number of days in a block.
    """
    step, reach = _step(known), _REACH_DAYS // _step(known)
    found = np.empty(due.size, np.int64)
    jumps = np.append(np.flatnonzero(np.diff(due) != 1) + 1, due.size)
    at = 0
    while at < due.size:
        home = int(due[at])
        least, most = max(-(home // step), -reach), min((known - 1 - home) // step, reach)
        start = home + step * int(rng.integers(least, most + 1))
        until = int(jumps[np.searchsorted(jumps, at, side="right")])
        take = min(length, known - start, until - at)
        found[at : at + take] = np.arange(start, start + take)
        at += take
    return found


def _step(known: int) -> int:
    """Return the unit by which blocks move [days]: a week if the log has two weeks, otherwise a day."""
    return WEEK if known >= _LEAST_WEEKS * WEEK else 1
