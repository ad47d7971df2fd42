"""Synthetic Traces from the days of a log: whole days in another order, with their jobs as they were.

Days are taken in blocks, on the weekdays on which they were, from near their place in the log: the local block
bootstrap of Paparoditis and Politis (2002, C. R. Acad. Sci. Paris 335, 959-962). What days of a block have to do with
each other stays, and so does the slow course of the load. Blocks from anywhere (Kuensch 1989) would break a month of
high load into pieces, and a queue that took weeks to grow in the log would never be there. A block is as long as days
of the log hang together (`tracekit.fit.log_jobs`).

A job keeps its time of day, its tenant, what it asked for, how it ended and how long it ran, so that all that jobs of a
day have to do with each other is there: users that submit ten jobs alike, bursts, long jobs at night. Users, accounts
and groups get numbers for names, the largest first. A larger load is several such logs over each other, whose users are
not the same; a smaller one leaves out users for whole days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.choice import Effort
from tracekit.fit.log_jobs import DAY_US, KEPT, NAMES, WEEK, attempts_of, read_log
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.offered_load import gpu_seconds_per_s, with_load
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS, check_any, synthetic_manifest, write_synthetic
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.fit.log_jobs import LogAttempts, LogJobs
    from tracekit.fit.synthetic import Recipe
    from tracekit.trace import Trace


_CAPABILITIES = (
    *("arrivals", "run_time", "gpu_count", "node_count", "tenants", "users", "statuses", "hour_of_day", "retries"),
)
"""What a synthetic Trace of jobs of a log has where the log has it."""
_LEAST_WEEKS = 2
"""Days of each weekday that a log needs for its weekdays to be kept."""
_REACH_DAYS = 7
"""How far from its place a block may come from [days]. On the Philly jobs of autumn 2017, waits in replays are as in
the log with one week, and differ by more with each further one."""


@dataclass(frozen=True)
class TakenJobs:
    """Jobs of a log that come again, in order of their new submissions; each array of shape (n,)."""

    place: Ints
    """Place in the log."""
    copy: Ints
    """Which of several logs over each other it is in."""
    submit: pl.Series
    """New submission, UTC."""


def resample(trace: Trace, recipe: Recipe) -> Trace:
    """Return a new Trace made of days of a log.

    Raises
    ------
    UsageError
        The Trace has no jobs that could be taken, or the new one would be too large.
    OutputError
        The place is taken or cannot be written.
    """
    recipe.progress.stage("reading the log")
    log = read_log(trace)
    recipe = with_load(recipe, lambda: asked_by(log, attempts_of(trace, log.jobs)), fit_cluster(trace), "the Trace")
    recipe.progress.stage("drawing days")
    taken = taken_days(log, recipe, trace.timezone, np.random.default_rng(recipe.seed))
    origin = f"synthetic: blocks of {counted(log.length, 'days')} of a log of {counted(log.days, 'days')}"
    return write_taken(trace, log, taken, recipe, origin, recipe.options(method="resample"))


def asked_by(log: LogJobs, attempts: LogAttempts) -> float:
    """Return the GPU-seconds that the jobs of the log's days ask for in a second [GPU]."""
    rows = log.row[int(log.first[0]) : int(log.first[-1])]
    held = None
    if attempts.rows is not None:
        count = attempts.count[rows]
        each = np.repeat(attempts.first[rows] - (count.cumsum() - count), count) + np.arange(count.sum())
        held = count, attempts.rows["run_s"].to_numpy()[each]
    jobs = log.jobs[rows]
    return gpu_seconds_per_s(jobs["gpu_count"], jobs["run_s"], held, log.days)


def taken_days(log: LogJobs, recipe: Recipe, zone: str, rng: np.random.Generator) -> TakenJobs:
    """Return the jobs of days of a log, drawn in blocks.

    Raises
    ------
    UsageError
        There would be none, or too many.
    """
    place, copy, local_us = _drawn(log, recipe, rng)
    check_any(place.size)
    submit = _utc(local_us, zone)
    # Where clocks go forward, an hour that there is not moves behind others.
    order = np.argsort(submit.dt.epoch("us").to_numpy(), kind="stable")
    return TakenJobs(place[order], copy[order], submit[order])


def write_taken(
    trace: Trace, log: LogJobs, taken: TakenJobs, recipe: Recipe, origin: str, options: dict[str, str]
) -> Trace:
    """Write a Trace of jobs of a log at new times, with their attempts.

    Parameters
    ----------
    origin : str
        What it is made of, one sentence.
    options : dict
        For the manifest.

    Raises
    ------
    OutputError
        The place is taken or cannot be written.
    """
    recipe.progress.stage("writing the Trace")
    attempts = attempts_of(trace, log.jobs)
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

    cluster = fit_cluster(trace)
    has = {name: bool((known := trace.capabilities.get(name)) and known.available) for name in _CAPABILITIES}
    manifest = synthetic_manifest(
        {**has, "capacity": bool(cluster["capacity"]), "nodes": bool(cluster["nodes"])},
        options,
        relative=trace.manifest.time_base == "relative",
        timezone=trace.timezone,
        created=trace.manifest.created,
        origin=origin,
        absent="not resampled",
    )
    manifest.notes += log.notes
    failures = fit_node_failures(trace, recipe.seed, Effort(replicates=0))
    submit_us = taken.submit.dt.epoch("us").to_numpy()
    return write_synthetic(recipe, submit_us, block, manifest, cluster=cluster, failures=failures)


def _drawn(log: LogJobs, recipe: Recipe, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Return for every new job its place in the log, which of several logs over each other it is in, its local time."""
    per_day = log.per_day
    asked = recipe.days if recipe.days is not None else (recipe.jobs or 0) / per_day / recipe.scale_load
    if asked > LONGEST_DAYS:
        raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")
    if asked * per_day * recipe.scale_load > MOST_JOBS * 1.2:
        raise UsageError(f"would be more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    number = max(1, int(np.ceil(asked)))
    # More days are asked for where the first ones hold fewer jobs than are wanted.
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
    """Return jobs of new days, in order of their local time; `begin` is the number of the first of them."""
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
    """Return which jobs stay so that a share of them does: all of a user's on a day, or none; single unknown ones."""
    user = log.jobs["user_number"].to_numpy()[log.row[place]]
    user = np.where(user < 0, -1 - np.arange(user.size), user)
    _, group = np.unique(np.column_stack([day, user]), axis=0, return_inverse=True)
    kept: Ints = np.flatnonzero(rng.random(int(group.max(initial=-1)) + 1)[group.ravel()] < share)
    return kept


def _utc(local_us: Ints, zone: str) -> pl.Series:
    """Return local times in UTC; an hour that clocks leave out is the next one, of two alike the first is meant."""
    frame = pl.DataFrame({"at": pl.Series(local_us).cast(pl.Datetime("us"))})

    def at(shift: str) -> pl.Expr:
        moved = pl.col("at").dt.offset_by(shift)
        return moved.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

    found = frame.select(pl.coalesce(at("0h"), at("1h")).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return found.to_series()


def _renamed(name: str, copy: Ints) -> pl.Expr:
    """Return numbers for names; those of a log that lies over the first have its number behind them."""
    number = pl.col(f"{name}_number")
    behind = pl.Series(copy)
    text = pl.lit(NAMES[name]) + (number + 1).cast(pl.String)
    again = pl.lit(".") + (pl.lit(behind) + 1).cast(pl.String)
    return pl.when(number >= 0).then(pl.when(pl.lit(behind) > 0).then(text + again).otherwise(text)).alias(name)


# Which days of the log a new one is made of.


def course(number: int, known: int, rng: np.random.Generator, *, longest: int) -> Ints:
    """Return the day of the log that is due on each new day, weekdays kept.

    As many days as the log has are the log from its first day on; fewer are its last ones, up to the last week that
    leaves room for them, since what comes next is most like what came last. Beyond the end, the log is passed through
    again, each time from a random week on to its end and from its beginning up to that week, so that every day is due
    as often as any other and passes are not in step. A log of less than two weeks does not keep its weekdays.

    Parameters
    ----------
    number : int
        New days that are asked for, which decide where the course begins.
    known : int
        Days of the log.
    longest : int
        Days of the course, at least `number`.
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
        # The rest of the pass, whose length keeps the weekdays of what follows.
        pieces.append(np.arange(size % step, begin))
        size += pieces[-1].size
    return np.concatenate(pieces)[:longest]


def drawn_days(due: Ints, known: int, length: int, rng: np.random.Generator) -> Ints:
    """Return which day of the log each new day is, block by block.

    A block begins on the day that is due, or a week before or after it, all alike likely where the log has them; in a
    log of less than two weeks on any day up to a week off. It ends early where the log does, and where the course
    jumps.

    Parameters
    ----------
    due : array (n,)
        The day of the log that is due on each new day, see `course`.
    known : int
        Days of the log.
    length : int
        Days of a block.
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
    """Return the days by which a block may be moved: whole weeks, where the log has two."""
    return WEEK if known >= _LEAST_WEEKS * WEEK else 1
