"""Generate synthetic Traces from the days of a log: whole days in another order, with their jobs unchanged.

Days are taken in blocks that keep their weekdays and stay near their position in the log: the local block bootstrap of
Paparoditis and Politis (2002, C. R. Acad. Sci. Paris 335, 959-962). This keeps the dependence between the days of a
block and the slow changes of the load. Blocks from anywhere (Kuensch 1989) would break up a month of high load, and a
queue that took weeks to grow in the log would never appear. A block is as long as days of the log are correlated
(`tracekit.fit.log_jobs`).

A job keeps its time of day, its tenant, its request, its outcome and its run time. This keeps all relations among the
jobs of a day: users who submit ten identical jobs, bursts, long jobs at night. Users, accounts and groups get numbers
as names, starting with the largest. A higher load overlays several such logs with different users; a lower load leaves
out users for whole days.
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
"""Capabilities that a synthetic Trace of a log's jobs takes over from the log."""
_LEAST_WEEKS = 2
"""Minimum number of weeks in a log for weekdays to be kept."""
_REACH_DAYS = 7
"""How far a block may come from its position in the log [days]. On the Philly jobs of autumn 2017, one week reproduces
the log's waits in replays, and each additional week increases the difference."""


@dataclass(frozen=True)
class TakenJobs:
    """Jobs of a log that are reused, in the order of their new submissions; each array has shape (n,)."""

    place: Ints
    """Index in the log."""
    copy: Ints
    """Which of several overlaid logs the job is in."""
    submit: pl.Series
    """New submission, UTC."""


def resample(trace: Trace, recipe: Recipe) -> Trace:
    """Return a new Trace made from the days of a log.

    Raises
    ------
    UsageError
        The Trace has no usable jobs, or the new Trace would be too large.
    OutputError
        The output folder already exists or cannot be written.
    """
    recipe.progress.stage("reading the log")
    log = read_log(trace)
    recipe = with_load(recipe, lambda: asked_by(log, attempts_of(trace, log.jobs)), fit_cluster(trace), "the Trace")
    recipe.progress.stage("drawing days")
    taken = taken_days(log, recipe, trace.timezone, np.random.default_rng(recipe.seed))
    origin = f"synthetic: blocks of {counted(log.length, 'days')} of a log of {counted(log.days, 'days')}"
    return write_taken(trace, log, taken, recipe, origin, recipe.options(method="resample"))


def asked_by(log: LogJobs, attempts: LogAttempts) -> float:
    """Return the GPU-seconds per second that the jobs of the log's days request [GPU]."""
    rows = log.row[int(log.first[0]) : int(log.first[-1])]
    held = None
    if attempts.rows is not None:
        count = attempts.count[rows]
        each = np.repeat(attempts.first[rows] - (count.cumsum() - count), count) + np.arange(count.sum())
        held = count, attempts.rows["run_s"].to_numpy()[each]
    jobs = log.jobs[rows]
    return gpu_seconds_per_s(jobs["gpu_count"], jobs["run_s"], held, log.days)


def taken_days(log: LogJobs, recipe: Recipe, zone: str, rng: np.random.Generator) -> TakenJobs:
    """Return the jobs of a log's days, drawn in blocks.

    Raises
    ------
    UsageError
        There would be no jobs, or too many.
    """
    place, copy, local_us = _drawn(log, recipe, rng)
    check_any(place.size)
    submit = _utc(local_us, zone)
    # When clocks are set forward, the skipped hour moves after others, so sort again.
    order = np.argsort(submit.dt.epoch("us").to_numpy(), kind="stable")
    return TakenJobs(place[order], copy[order], submit[order])


def write_taken(
    trace: Trace, log: LogJobs, taken: TakenJobs, recipe: Recipe, origin: str, options: dict[str, str]
) -> Trace:
    """Write a Trace of a log's jobs at new times, with their attempts.

    Parameters
    ----------
    origin : str
        One sentence that names the source of the jobs.
    options : dict
        Options to record in the manifest.

    Raises
    ------
    OutputError
        The output folder already exists or cannot be written.
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
    """Return for each new job its index in the log, which of the overlaid logs it is in, and its local time."""
    per_day = log.per_day
    asked = recipe.days if recipe.days is not None else (recipe.jobs or 0) / per_day / recipe.scale_load
    if asked > LONGEST_DAYS:
        raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")
    if asked * per_day * recipe.scale_load > MOST_JOBS * 1.2:
        raise UsageError(f"would give more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    number = max(1, int(np.ceil(asked)))
    # Draw more days if the first ones have fewer jobs than requested.
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
    """Return the jobs of new days, in order of their local time; `begin` is the number of the first new day."""
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
    """Return a share of the jobs, keeping all or none of a user's jobs per day; unknown users' jobs are kept singly."""
    user = log.jobs["user_number"].to_numpy()[log.row[place]]
    user = np.where(user < 0, -1 - np.arange(user.size), user)
    _, group = np.unique(np.column_stack([day, user]), axis=0, return_inverse=True)
    kept: Ints = np.flatnonzero(rng.random(int(group.max(initial=-1)) + 1)[group.ravel()] < share)
    return kept


def _utc(local_us: Ints, zone: str) -> pl.Series:
    """Convert local times to UTC; a skipped hour becomes the next, and a repeated hour means the first of the two."""
    frame = pl.DataFrame({"at": pl.Series(local_us).cast(pl.Datetime("us"))})

    def at(shift: str) -> pl.Expr:
        moved = pl.col("at").dt.offset_by(shift)
        return moved.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

    found = frame.select(pl.coalesce(at("0h"), at("1h")).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return found.to_series()


def _renamed(name: str, copy: Ints) -> pl.Expr:
    """Return numbers as names; names from an overlaid log end in that log's number."""
    number = pl.col(f"{name}_number")
    behind = pl.Series(copy)
    text = pl.lit(NAMES[name]) + (number + 1).cast(pl.String)
    again = pl.lit(".") + (pl.lit(behind) + 1).cast(pl.String)
    return pl.when(number >= 0).then(pl.when(pl.lit(behind) > 0).then(text + again).otherwise(text)).alias(name)


# Choose the days of the log that make up a new one.


def course(number: int, known: int, rng: np.random.Generator, *, longest: int) -> Ints:
    """Return the day of the log that is due on each new day, keeping weekdays.

    If as many days are requested as the log has, the course is the log from its first day. If fewer are requested, it
    is the last days of the log, starting in the last week that leaves room for them, because the near future resembles
    the recent past. Beyond the end, the course passes through the log again, each time from a random week to its end
    and then from its beginning to that week, so that all days are due equally often and passes are not in step. A log
    of less than two weeks does not keep its weekdays.

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
        # The rest of the pass; its length keeps the weekdays of the days that follow.
        pieces.append(np.arange(size % step, begin))
        size += pieces[-1].size
    return np.concatenate(pieces)[:longest]


def drawn_days(due: Ints, known: int, length: int, rng: np.random.Generator) -> Ints:
    """Return which day of the log each new day comes from, block by block.

    A block begins on the day that is due, or a week before or after it, with equal probability if the log has these
    days. In a log of less than two weeks it begins on any day up to a week away. A block ends early where the log ends
    or the course jumps.

    Parameters
    ----------
    due : array (n,)
        The day of the log that is due on each new day, see `course`.
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
    """Return the step in days by which a block may be moved: a whole week if the log has two weeks."""
    return WEEK if known >= _LEAST_WEEKS * WEEK else 1
