"""Synthetic Traces from the days of a log: whole days in another order, with their jobs as they were.

Days are taken in blocks, on the weekdays on which they were, from near their place in the log (`day_blocks`). A job
keeps its time of day, its tenant, what it asked for, how it ended and how long it ran, so that all that jobs of a day
have to do with each other is there: users that submit ten jobs alike, bursts, long jobs at night. Users, accounts and
groups get numbers for names, the largest first. A larger load is several such logs over each other, whose users are not
the same; a smaller one leaves out users for whole days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.choice import Effort
from tracekit.fit.day_blocks import course, drawn_days
from tracekit.fit.log_jobs import DAY_US, KEPT, NAMES, attempts_of, read_log
from tracekit.fit.node_event_draws import write_machines
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.offered_load import gpu_seconds_per_s, load_option, with_load
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS, check_any, synthetic_manifest
from tracekit.text import counted
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.fit.arrays import Whole
    from tracekit.fit.log_jobs import LogAttempts, LogJobs
    from tracekit.fit.synthetic import Extent
    from tracekit.progress import Progress
    from tracekit.trace import Trace


_SLICE = 262_144
_CAPABILITIES = (
    *("arrivals", "run_time", "gpu_count", "node_count", "tenants", "users", "statuses", "hour_of_day", "retries"),
)
"""What a synthetic Trace of jobs of a log has where the log has it."""


@dataclass(frozen=True)
class TakenJobs:
    """Jobs of a log that come again, in order of their new submissions; each array of shape (n,)."""

    place: Whole
    """Place in the log."""
    copy: Whole
    """Which of several logs over each other it is in."""
    submit: pl.Series
    """New submission, UTC."""


def resample(
    trace: Trace, out: Path, extent: Extent, *, load: float | None = None, force: bool, progress: Progress
) -> Trace:
    """Return a new Trace made of days of a log; `load` is that of `generate`.

    Raises
    ------
    UsageError
        The Trace has no jobs that could be taken, or the new one would be too large.
    OutputError
        The place is taken or cannot be written.
    """
    trace = trace.ingested
    progress.stage("reading the log")
    log = read_log(trace)
    if load is not None:
        asked = asked_by(log, attempts_of(trace, log.jobs))
        extent = with_load(extent, load, asked, fit_cluster(trace), what="the Trace")
    progress.stage("drawing days")
    taken = taken_days(log, extent, trace.timezone, np.random.default_rng(extent.seed))
    progress.stage("writing the Trace")
    origin = f"synthetic: blocks of {counted(log.length, 'days')} of a log of {counted(log.days, 'days')}"
    options = extent.options(method="resample", **load_option(load))
    return write_taken(trace, log, taken, out, extent, origin=origin, options=options, force=force)


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


def taken_days(log: LogJobs, extent: Extent, zone: str, rng: np.random.Generator) -> TakenJobs:
    """Return the jobs of days of a log, drawn in blocks.

    Raises
    ------
    UsageError
        There would be none, or too many.
    """
    place, copy, local_us = _drawn(log, extent, rng)
    check_any(place.size)
    submit = _utc(local_us, zone)
    # Where clocks go forward, an hour that there is not moves behind others.
    order = np.argsort(submit.dt.epoch("us").to_numpy(), kind="stable")
    return TakenJobs(place[order], copy[order], submit[order])


def write_taken(
    trace: Trace,
    log: LogJobs,
    taken: TakenJobs,
    out: Path,
    extent: Extent,
    *,
    origin: str,
    options: dict[str, str],
    force: bool,
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
    attempts = attempts_of(trace, log.jobs)
    cluster = fit_cluster(trace)
    place, copy, submit = taken.place, taken.copy, taken.submit
    with TraceWriter(out, force=force) as writer:
        digits = len(str(place.size))
        for low in range(0, place.size, _SLICE):
            rows = log.row[place[low : low + _SLICE]]
            ids = pl.Series("job_id", np.arange(low + 1, low + 1 + rows.size)).cast(pl.String).str.zfill(digits)
            number, first = attempts.count[rows], attempts.first[rows]
            jobs = log.jobs[rows].select(
                ids,
                *(name for name in KEPT if name in log.jobs.columns),
                *(_renamed(name, copy[low : low + _SLICE]) for name in NAMES),
                "run_s",
                submit[low : low + _SLICE].alias("submit_time"),
                pl.Series("attempt_count", number),
            )
            writer.write("jobs", jobs)
            if attempts.rows is not None:
                job = np.repeat(np.arange(rows.size), number)
                inside = np.arange(job.size) - (number.cumsum() - number)[job]
                writer.write("attempts", attempts.rows[first[job] + inside].with_columns(ids[job]))
        span_us = int(submit.dt.epoch("us")[0]), int(submit.dt.epoch("us")[-1]) + 1_000_000
        failures = fit_node_failures(trace, extent.seed, Effort(replicates=0))
        write_machines(writer, cluster, failures, span_us, extent)
        writer.drain()
        has = {name: bool((known := trace.capabilities.get(name)) and known.available) for name in _CAPABILITIES}
        manifest = synthetic_manifest(
            {**has, "capacity": bool(cluster["capacity"]), "nodes": bool(cluster["nodes"])},
            relative=trace.manifest.time_base == "relative",
            timezone=trace.timezone,
            created=trace.manifest.created,
            origin=origin,
            absent="not resampled",
        )
        manifest.notes += log.notes
        manifest.tables = writer.tables()
        manifest.options = options
        return writer.commit(manifest)


def _drawn(log: LogJobs, extent: Extent, rng: np.random.Generator) -> tuple[Whole, Whole, Whole]:
    """Return for every new job its place in the log, which of several logs over each other it is in, its local time."""
    per_day = log.per_day
    asked = extent.days if extent.days is not None else (extent.jobs or 0) / per_day / extent.scale_load
    if asked > LONGEST_DAYS:
        raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")
    if asked * per_day * extent.scale_load > MOST_JOBS * 1.2:
        raise UsageError(f"would be more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    number = max(1, int(np.ceil(asked)))
    # More days are asked for where the first ones hold fewer jobs than are wanted.
    longest = number if extent.jobs is None else int(LONGEST_DAYS)
    due = course(number, log.days, rng, longest=longest)
    found = _days(log, due[:number], 0, extent.scale_load, rng)
    while extent.jobs is not None and found[0].size < extent.jobs:
        missing = extent.jobs - found[0].size
        more = max(7, int(np.ceil(missing / per_day / extent.scale_load * 1.1)))
        if number + more > LONGEST_DAYS:
            raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs")
        further = _days(log, due[number : number + more], number, extent.scale_load, rng)
        place, copy, local = (np.concatenate(pair) for pair in zip(found, further, strict=True))
        found = place, copy, local
        number += more
    place, copy, local = found
    if extent.days is not None:
        inside = local - log.begin_us < extent.days * DAY_US
        place, copy, local = place[inside], copy[inside], local[inside]
    return place[: extent.jobs], copy[: extent.jobs], local[: extent.jobs]


def _days(log: LogJobs, due: Whole, begin: int, load: float, rng: np.random.Generator) -> tuple[Whole, Whole, Whole]:
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


def _thinned(log: LogJobs, place: Whole, day: Whole, share: float, rng: np.random.Generator) -> Whole:
    """Return which jobs stay so that a share of them does: all of a user's on a day, or none; single unknown ones."""
    user = log.jobs["user_number"].to_numpy()[log.row[place]]
    user = np.where(user < 0, -1 - np.arange(user.size), user)
    _, group = np.unique(np.column_stack([day, user]), axis=0, return_inverse=True)
    kept: Whole = np.flatnonzero(rng.random(int(group.max(initial=-1)) + 1)[group.ravel()] < share)
    return kept


def _utc(local_us: Whole, zone: str) -> pl.Series:
    """Return local times in UTC; an hour that clocks leave out is the next one, of two alike the first is meant."""
    frame = pl.DataFrame({"at": pl.Series(local_us).cast(pl.Datetime("us"))})

    def at(shift: str) -> pl.Expr:
        moved = pl.col("at").dt.offset_by(shift)
        return moved.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

    found = frame.select(pl.coalesce(at("0h"), at("1h")).dt.convert_time_zone("UTC").dt.replace_time_zone(None))
    return found.to_series()


def _renamed(name: str, copy: Whole) -> pl.Expr:
    """Return numbers for names; those of a log that lies over the first have its number behind them."""
    number = pl.col(f"{name}_number")
    behind = pl.Series(copy)
    text = pl.lit(NAMES[name]) + (number + 1).cast(pl.String)
    again = pl.lit(".") + (pl.lit(behind) + 1).cast(pl.String)
    return pl.when(number >= 0).then(pl.when(pl.lit(behind) > 0).then(text + again).otherwise(text)).alias(name)
