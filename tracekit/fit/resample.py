"""Synthetic Traces from the days of a log: whole days in another order, with their jobs as they were.

Days are taken in blocks, on the weekdays on which they were (`day_blocks`). A job keeps its time of day, its tenant,
what it asked for, how it ended and how long it ran, so that all that jobs of a day have to do with each other is there:
users that submit ten jobs alike, bursts, long jobs at night. Users, accounts and groups get numbers for names, the
largest first. A larger load is several such logs over each other, whose users are not the same; a smaller one leaves
out users for whole days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.fit.choice import Effort
from tracekit.fit.day_blocks import block_length, drawn_days
from tracekit.fit.jobs import LONGEST_S, UNFINISHED
from tracekit.fit.node_event_draws import write_node_events
from tracekit.fit.node_failures import fit_node_failures
from tracekit.fit.offered_load import gpu_seconds_per_s, load_option, with_load
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import LONGEST_DAYS, MOST_JOBS, capacity_table, node_table, synthetic_manifest
from tracekit.text import counted
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.fit.arrays import Whole
    from tracekit.fit.synthetic import Extent
    from tracekit.progress import Progress
    from tracekit.trace import Trace

__all__ = ["resample"]

_SLICE = 262_144
_LEAST_DAYS = 9
"""Days of a log from which on the first and the last, which it may hold in part, are left out."""
_DAY_US = 86_400_000_000
_NAMES = {"user": "u", "account": "a", "group": "g"}
"""Columns whose names become numbers, and the letter in front."""
_KEPT = (
    *("cluster", "vc", "workload", "status", "gpu_count", "cpu_count", "memory_gib", "gpu_model", "node_count"),
    *("instance_count", "priority", "time_limit_s", "preemptible", "partition", "qos"),
)
"""Columns of jobs that stay as they are."""
_STAYING = (
    *("arrivals", "run_time", "gpu_count", "node_count", "tenants", "users", "statuses", "hour_of_day", "retries"),
)
"""Capabilities that it has where the log has them."""
_OF_ATTEMPTS = ("attempt", "run_s", "gpu_count", "node_count", "status")


@dataclass(frozen=True)
class _Log:
    """The jobs of the log that can be taken, day by day."""

    jobs: pl.DataFrame
    """In order of submission: job_id, user_number (-1 is unknown), local_us, run_s, and what stays as it is."""
    first: Whole
    """Place of the first job of each day, and the number of jobs at the end (days + 1,)."""
    begin_us: int
    """Local midnight of the first day [us since 1970]."""
    length: int
    """Days of a block."""
    notes: tuple[str, ...]

    @property
    def days(self) -> int:
        """How many there are."""
        return self.first.size - 1


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
    log = _read(trace)
    cluster = fit_cluster(trace)
    attempts = _attempts_of(trace, log.jobs)
    taken = slice(int(log.first[0]), int(log.first[-1]))
    held = None
    if attempts.rows is not None:
        held = attempts.count[taken], attempts.rows["run_s"].to_numpy()[attempts.first[taken.start] :]
    asked = gpu_seconds_per_s(log.jobs["gpu_count"][taken], log.jobs["run_s"][taken], held, log.days)
    extent = with_load(extent, load, asked, cluster, what="the Trace")
    rng = np.random.default_rng(extent.seed)
    progress.stage("drawing days")
    place, copy, local_us = _drawn(log, extent, rng)
    if not place.size:
        raise UsageError("no job falls into so short a time", where="--days", hint="ask for more days")
    submit = _utc(local_us, trace.timezone)
    # Where clocks go forward, an hour that there is not moves behind others.
    order = np.argsort(submit.dt.epoch("us").to_numpy(), kind="stable")
    place, copy, submit = place[order], copy[order], submit[order]
    progress.stage("writing the Trace")
    with TraceWriter(out, force=force) as writer:
        digits = len(str(place.size))
        for low in range(0, place.size, _SLICE):
            rows = place[low : low + _SLICE]
            ids = pl.Series("job_id", np.arange(low + 1, low + 1 + rows.size)).cast(pl.String).str.zfill(digits)
            number, first = attempts.count[rows], attempts.first[rows]
            jobs = log.jobs[rows].select(
                ids,
                *_KEPT,
                *(_renamed(name, copy[low : low + _SLICE]) for name in _NAMES),
                "run_s",
                submit[low : low + _SLICE].alias("submit_time"),
                pl.Series("attempt_count", number),
            )
            writer.write("jobs", jobs)
            if attempts.rows is not None:
                job = np.repeat(np.arange(rows.size), number)
                inside = np.arange(job.size) - (number.cumsum() - number)[job]
                writer.write("attempts", attempts.rows[first[job] + inside].with_columns(ids[job]))
        nodes = node_table(cluster, extent.scale_gpus)
        writer.write("nodes", nodes)
        started = int(submit.dt.epoch("us")[0])
        span_us = started, int(submit.dt.epoch("us")[-1]) + 1_000_000
        failures = fit_node_failures(trace, extent.seed, Effort(replicates=0))
        write_node_events(writer, failures, nodes["node_id"], span_us, extent.seed)
        writer.write("capacity", capacity_table(cluster, started, extent.scale_gpus))
        writer.drain()
        has = {name: bool((known := trace.capabilities.get(name)) and known.available) for name in _STAYING}
        manifest = synthetic_manifest(
            {**has, "capacity": bool(cluster["capacity"]), "nodes": bool(cluster["nodes"])},
            relative=trace.manifest.time_base == "relative",
            timezone=trace.timezone,
            created=trace.manifest.created,
            origin=f"synthetic: blocks of {counted(log.length, 'days')} of a log of {counted(log.days, 'days')}",
            absent="not resampled",
        )
        manifest.notes += log.notes
        manifest.tables = writer.tables()
        manifest.options = extent.options(method="resample", **load_option(load))
        return writer.commit(manifest)


def _read(trace: Trace) -> _Log:
    """Return the jobs of a log, without those that still ran or waited at its end, or have no submission."""
    columns = trace.scan("jobs")
    own = pl.coalesce("run_s", (pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
    unfinished = pl.col("status").is_in(UNFINISHED).fill_null(value=False)
    zone = trace.timezone
    local = pl.col("submit_time").dt.replace_time_zone("UTC").dt.convert_time_zone(zone).dt.replace_time_zone(None)
    jobs = (
        columns.with_columns(run_s=own, unfinished=unfinished, local_us=local.dt.epoch("us"))
        .select("job_id", *_KEPT, *_NAMES, "run_s", "submit_time", "unfinished", "local_us")
        .sort("submit_time", nulls_last=True, maintain_order=True)
        .collect()
    )
    usable = (
        pl.col("submit_time").is_not_null()
        & ~pl.col("unfinished")
        & (pl.col("run_s").is_between(0, LONGEST_S) | pl.col("run_s").is_null())
    )
    taken = jobs.filter(usable)
    if taken.is_empty():
        raise UsageError("no job has a submission and has ended", where=str(trace.path), hint="resample another Trace")
    notes = [f"{counted(jobs.height - taken.height, 'jobs')} of the log left out: no submission, or not ended"]
    taken = taken.with_columns(_numbers(taken[name]) for name in _NAMES).sort("local_us", maintain_order=True)
    day = (taken["local_us"].to_numpy() // _DAY_US).astype(np.int64)
    begin, number = int(day[0]), int(day[-1] - day[0] + 1)
    if number > LONGEST_DAYS:
        raise UsageError(f"the log spans {number:,} days", hint="choose jobs of a shorter time")
    first = np.searchsorted(day, begin + np.arange(number + 1))
    if number >= _LEAST_DAYS:
        first = first[1:-1]
        begin += 1
        notes.append("the first and the last day of the log, which may be parts of days, are not taken")
    if first.size - 1 < 14:
        notes.append("less than two weeks: days do not keep their weekday")
    length = block_length(np.diff(first).astype(float))
    return _Log(taken, first, begin * _DAY_US, length, tuple(notes))


def _numbers(names: pl.Series) -> pl.Series:
    """Return a number for each name, 0 for that of the most jobs, -1 where it is unknown."""
    order = names.drop_nulls().value_counts(sort=False).sort("count", names.name, descending=[True, False])
    number = pl.int_range(order.height, dtype=pl.Int64)
    found = names.to_frame().join(
        order.select(names.name, number=number), on=names.name, how="left", maintain_order="left"
    )
    return found["number"].fill_null(-1).alias(f"{names.name}_number")


def _drawn(log: _Log, extent: Extent, rng: np.random.Generator) -> tuple[Whole, Whole, Whole]:
    """Return for every new job its place in the log, which of several logs over each other it is in, its local time."""
    per_day = (log.first[-1] - log.first[0]) / log.days
    if not per_day:
        raise UsageError("no job is on a whole day of the log", hint="resample a longer log")
    asked = extent.days if extent.days is not None else (extent.jobs or 0) / per_day / extent.scale_load
    if asked > LONGEST_DAYS:
        raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs or days")
    if asked * per_day * extent.scale_load > MOST_JOBS * 1.2:
        raise UsageError(f"would be more than {MOST_JOBS:,} jobs", where="--days", hint="ask for fewer days")
    number = max(1, int(np.ceil(asked)))
    found = _days(log, number, extent.scale_load, rng)
    while extent.jobs is not None and found[0].size < extent.jobs:
        missing = extent.jobs - found[0].size
        more = max(7, int(np.ceil(missing / per_day / extent.scale_load * 1.1)))
        if number + more > LONGEST_DAYS:
            raise UsageError(f"would span more than {LONGEST_DAYS:,.0f} days", hint="ask for fewer jobs")
        place, copy, local = _days(log, more, extent.scale_load, rng)
        found = (
            np.concatenate([found[0], place]),
            np.concatenate([found[1], copy]),
            np.concatenate([found[2], local + number * _DAY_US]),
        )
        number += more
    place, copy, local = found
    if extent.days is not None:
        inside = local - log.begin_us < extent.days * _DAY_US
        place, copy, local = place[inside], copy[inside], local[inside]
    return place[: extent.jobs], copy[: extent.jobs], local[: extent.jobs]


def _days(log: _Log, number: int, load: float, rng: np.random.Generator) -> tuple[Whole, Whole, Whole]:
    """Return jobs of some new days, in order of their local time."""
    parts = []
    whole = int(load)
    for copy in range(whole + (load > whole)):
        days = drawn_days(number, log.days, log.length, rng)
        count = log.first[days + 1] - log.first[days]
        new = np.repeat(np.arange(number), count)
        place = log.first[days][new] + np.arange(new.size) - (count.cumsum() - count)[new]
        if copy == whole:
            kept = _thinned(log, place, new, load - whole, rng)
            place, new = place[kept], new[kept]
        moved = (new - days[new]) * _DAY_US
        parts.append((place, np.full(place.size, copy), log.jobs["local_us"].to_numpy()[place] + moved))
    place, copies, local = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(local, kind="stable")
    return place[order], copies[order], local[order]


def _thinned(log: _Log, place: Whole, day: Whole, share: float, rng: np.random.Generator) -> Whole:
    """Return which jobs stay so that a share of them does: all of a user's on a day, or none; single unknown ones."""
    user = log.jobs["user_number"].to_numpy()[place]
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
    text = pl.lit(_NAMES[name]) + (number + 1).cast(pl.String)
    again = pl.lit(".") + (pl.lit(behind) + 1).cast(pl.String)
    return pl.when(number >= 0).then(pl.when(pl.lit(behind) > 0).then(text + again).otherwise(text)).alias(name)


@dataclass(frozen=True)
class _Attempts:
    """The attempts of the jobs of a log."""

    rows: pl.DataFrame | None
    """In the order of the jobs; None where the log has none."""
    first: Whole
    """Place of the first of each job."""
    count: Whole
    """How many each job has."""


def _attempts_of(trace: Trace, jobs: pl.DataFrame) -> _Attempts:
    if not trace.has("attempts"):
        return _Attempts(None, np.zeros(jobs.height, np.int64), np.zeros(jobs.height, np.int64))
    places = jobs.select("job_id").with_row_index("place")
    rows = (
        trace.scan("attempts")
        .select("job_id", *_OF_ATTEMPTS)
        .join(places.lazy(), on="job_id")
        .sort("place", "attempt")
        .collect()
    )
    count = np.bincount(rows["place"].to_numpy(), minlength=jobs.height).astype(np.int64)
    return _Attempts(rows.select(_OF_ATTEMPTS), count.cumsum() - count, count)
