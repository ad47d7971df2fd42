"""Split a log into the parts that generators learn from and are judged on, and write these parts as Traces.

A part consists of whole days by the log's clock. Its jobs are complete: a run that continues beyond the end of its part
is known in full. Machines and quotas are those of a synthetic Trace, so the log's jobs run on the same machines in a
replay.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.fit.log_jobs import DAY_US, jobs_by_day
from tracekit.fit.shapes import fit_cluster
from tracekit.fit.synthetic import capacity_table, node_table
from tracekit.text import counted
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

MOST_SCORED = 100_000
"""Maximum number of jobs in both parts; only the last whole days of the log up to this number are used."""
_HELD_OUT = 0.3
"""Share of the days that generators are judged on."""
_STRAGGLERS = 0.01
"""Share of the jobs below which the first days are left out, because generators learn nothing from a few jobs long
before the others."""
_LEAST_DAYS = 7
"""Minimum number of days in both parts together."""
_LEAST_JOBS = 100
"""Minimum number of jobs in each part."""


@dataclass(frozen=True)
class Split:
    """Where the log is split; times are UTC [us since 1970]."""

    begin_us: int
    cut_us: int
    """End of the part to learn from, and beginning of the held-out part."""
    end_us: int
    learned_days: int
    days: int
    """Number of days in the held-out part."""
    learned_jobs: int
    jobs: int
    starts_us: tuple[int, ...]
    """Beginnings of blocks inside the part to learn from; each is as long as the held-out part, and half of it overlaps
    the next block."""


def split_of(trace: Trace) -> Split | str:
    """Return where a log is split, or why it cannot be split.

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
    # Include the day before, because readers of the part leave out its first day, which may be incomplete.
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
