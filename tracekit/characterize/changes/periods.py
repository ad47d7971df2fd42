"""A period of a Trace: its jobs summed by day, and the values of single jobs.

Days are calendar days in the Trace's own time zone, counted from 1970-01-01.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.changes.measures import LONG_WAIT_S
from tracekit.characterize.session import Session
from tracekit.errors import QueryError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.characterize.changes.measures import PeriodMeasure
    from tracekit.trace import Trace

_DAY = "date_diff('day', DATE '1970-01-01', CAST({time} AT TIME ZONE 'UTC' AT TIME ZONE $timezone AS DATE))"
_SUBMITTED = _DAY.format(time="submit_time")

_SUMS = f"""
SELECT
    {_SUBMITTED} AS day,
    gpu_class,
    vc,
    count(*) AS jobs,
    count(queue_s) AS waits,
    count(*) FILTER (WHERE queue_s > {LONG_WAIT_S}) AS long_waits,
    count(*) FILTER (WHERE status = 'completed') AS completed,
    count(*) FILTER (WHERE is_failed(status)) AS failed,
    count(*) FILTER (WHERE status = 'timeout') AS timeout,
    count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
    CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours,
    CAST(sum(gpu_s) FILTER (WHERE unsuccessful OR status IN ('cancelled', 'preempted')) AS DOUBLE) / 3600
        AS gpu_hours_lost
FROM job_gpu_hours
WHERE submit_time IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""

_VALUES = f"""
SELECT CAST({_SUBMITTED} AS INTEGER) AS day, gpu_class, vc, run_s, queue_s
FROM job_classes
WHERE submit_time IS NOT NULL
"""

_USERS = f"""
SELECT {_SUBMITTED} AS day, count(DISTINCT "user") AS users
FROM jobs
WHERE submit_time IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""

_USED = f"""
SELECT {_SUBMITTED} AS day, j.gpu_class, j.vc, sum(u.mean_pct) AS used_pct, count(u.mean_pct) AS measured_jobs
FROM job_classes AS j
INNER JOIN job_reported_use AS u ON j.job_id = u.job_id
WHERE submit_time IS NOT NULL
GROUP BY ALL
ORDER BY ALL
"""

_SAMPLES = f"""
SELECT
    {_DAY.format(time="time")} AS day,
    split_part(split_part(gpu_instance, '/', 1), '+', 1) AS profile,
    sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS percents,
    count(utilization_pct) AS samples
FROM gpu_utilization
GROUP BY ALL
"""

# A part of a GPU (MIG) weighs as the part, as in utilization/cluster_by_hour.
_TELEMETRY = f"""
SELECT
    u.day,
    sum(CAST(u.percents AS DOUBLE) * (CASE WHEN u.profile IS NULL THEN 1e0 ELSE p.share END)) AS busy_pct,
    sum(u.samples * (CASE WHEN u.profile IS NULL THEN 1e0 ELSE p.share END)) AS samples
FROM ({_SAMPLES}) AS u
LEFT JOIN gpu_parts AS p ON u.profile = p.profile
GROUP BY ALL
ORDER BY ALL
"""


@dataclass(frozen=True)
class Period:
    """What a Trace states about a period."""

    days: pl.Series
    """Its calendar days, rising; days without a job too."""
    sums: pl.DataFrame
    """day, gpu_class, vc, and the columns of sums that measures name."""
    values: pl.DataFrame
    """day, gpu_class, vc, run_s, queue_s; one row a job."""
    users: pl.DataFrame
    """day, users."""
    telemetry: pl.DataFrame
    """day, busy_pct, samples; empty without telemetry."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """A sentence for each capability or table that the Trace lacks."""
    time_base: str = "absolute"
    timezone: str = "UTC"

    @property
    def jobs(self) -> int:
        """Jobs submitted in the period."""
        return int(self.sums["jobs"].sum())

    @property
    def dates(self) -> str:
        """First and last day in words."""
        return f"{_date(self.days[0])} to {_date(self.days[-1])}"

    def lacks(self, measure: PeriodMeasure) -> str | None:
        """Return why the period lacks a measure, None where it has it."""
        return next((self.lacking[name] for name in (*measure.needs, *measure.tables) if name in self.lacking), None)

    def restricted(self, keep: Callable[[pl.Expr], pl.Expr]) -> Period:
        """Return the part of the period whose days fulfil a condition, given the expression of the day."""
        rows = keep(pl.col("day"))
        return replace(
            self,
            days=pl.DataFrame({"day": self.days}).filter(rows)["day"],
            **{name: getattr(self, name).filter(rows) for name in ("sums", "values", "users", "telemetry")},
        )


def _date(day: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()


def read_day(text: str) -> dt.date:
    """Return the day that `text` writes as YYYY-MM-DD.

    Raises
    ------
    UsageError
        There is no such day.
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError("this day does not exist", where=text, hint="write it like 2017-10-31") from error


def read_period(trace: Trace, name: str = "", *, memory_limit: str | None = None) -> Period:
    """Return the whole period of a Trace, which errors call `name`.

    Raises
    ------
    QueryError
        No job has a time of submission, or memory does not suffice.
    """
    import duckdb

    called = f"the trace {name}".rstrip()
    if not trace.has("jobs"):
        raise QueryError(f"{called} has no jobs", where=trace.path)
    also = ("attempts", "job_usage", "placements", "gpu_utilization")
    params = {"timezone": trace.timezone}
    asked = "\n".join([_SUMS, _VALUES, _USERS, _USED, _TELEMETRY])
    with Session(trace, memory_limit).connect(also, asked) as con:

        def rows(sql: str) -> pl.DataFrame:
            try:
                frame: pl.DataFrame = pl.DataFrame(con.sql(sql, params=params))
            except duckdb.OutOfMemoryException as error:
                raise QueryError("ran out of memory", where=trace.path, hint="raise --memory-limit") from error
            return frame.with_columns(pl.col("day").cast(pl.Int32))

        sums, values, users = rows(_SUMS), rows(_VALUES), rows(_USERS)
        sums = sums.join(rows(_USED), on=["day", "gpu_class", "vc"], how="left", nulls_equal=True)
        telemetry = rows(_TELEMETRY)
    if not sums.height:
        raise QueryError(f"{called} has no job with a submission time", where=trace.path)
    first, last = sums.select(pl.col("day").min().alias("first"), pl.col("day").max().alias("last")).row(0)
    keys = {"day", "gpu_class", "vc"}
    return Period(
        days=pl.Series("day", range(first, last + 1), dtype=pl.Int32),
        sums=sums.with_columns(pl.col(name).fill_null(0).cast(pl.Float64) for name in sums.columns if name not in keys),
        values=values,
        users=users,
        telemetry=telemetry.filter(pl.col("samples") > 0),
        lacking=_lacking(trace),
        time_base=trace.manifest.time_base,
        timezone=trace.timezone,
    )


def _lacking(trace: Trace) -> dict[str, str]:
    found = {
        name: f"has no {name}" + (f": {capability.note.rstrip('.')}" if capability.note else "")
        for name, capability in trace.capabilities.items()
        if not capability.available
    }
    tables = {table: f"has no table '{table}'" for table in ("gpu_utilization", "job_usage") if not trace.has(table)}
    return tables | found


def split_period(period: Period, day: dt.date) -> tuple[Period, Period]:
    """Return the part of a period before a day, and the part from that day on.

    Raises
    ------
    UsageError
        The day leaves one of the two without a day.
    """
    number = (day - dt.date(1970, 1, 1)).days
    if not period.days[0] < number <= period.days[-1]:
        raise UsageError(
            f"the day does not split the trace, which has submissions from {period.dates}",
            where=day.isoformat(),
            hint="choose a day after the first",
        )
    return period.restricted(lambda d: d < number), period.restricted(lambda d: d >= number)
