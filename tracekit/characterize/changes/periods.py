"""The measures compared between periods, computed from daily sums and from values of single jobs.

A job, with all later events, belongs to the day of its submission. A telemetry sample belongs to the day it was taken.
Days are calendar days in the Trace's own time zone, counted from 1970-01-01.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from tracekit.characterize.session import Session
from tracekit.errors import QueryError, UsageError
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.tenant import Tenant
    from tracekit.trace import Trace

# The measures to compare.


LONG_WAIT_S = 600
"""Waits above this limit are long [s]; the limit is our choice."""

Kind = Literal["a day", "ratio", "quantile"]


@dataclass(frozen=True)
class PeriodMeasure:
    """A measure, which is one number that describes a period."""

    name: str
    unit: str
    kind: Kind
    """'a day' (sum of `top` / calendar days), 'ratio' (sum of `top` / sum of `bottom`) or 'quantile' (of `top`)."""
    top: str
    definition: str
    source: str
    """The query or view that defines the measure."""
    bottom: str = ""
    """The column whose sum divides a ratio."""
    counts: str = "jobs"
    """The column that counts the observations of a sum or ratio. A quantile counts its values."""
    share: float = 0.5
    """The quantile to compute [0..1]."""
    needs: tuple[str, ...] = ("arrivals",)
    """Capabilities that both Traces must have."""
    tables: tuple[str, ...] = ()
    """Tables that both Traces must have."""
    by_class: bool = True
    """Whether the measure is also computed for each size class."""
    by_vc: bool = False
    """Whether the measure is also computed for each virtual cluster."""
    for_cpu_jobs: bool = True
    """Whether the measure applies to jobs without GPUs."""
    where_seen: bool = False
    """Whether the measure is omitted if its sum is 0 in both periods."""
    rare: bool = False
    """Whether few sources record the measure. No note then reports that both periods lack it."""


_STATUSES = ("arrivals", "statuses")
_WAITS = ("arrivals", "queueing")


def _share(name: str, top: str, definition: str, **more: Any) -> PeriodMeasure:
    """Return the measure for the share of jobs with a status."""
    source = "overview/status, jobs_share"
    return PeriodMeasure(name, "share", "ratio", top, definition, source, bottom="jobs", needs=_STATUSES, **more)


MEASURES = (
    PeriodMeasure(
        "jobs a day",
        "jobs/day",
        "a day",
        "jobs",
        "jobs submitted / calendar days, including days without a submission",
        "overview/arrivals_by_hour",
        by_vc=True,
    ),
    PeriodMeasure(
        "GPU-hours a day",
        "GPU-hours/day",
        "a day",
        "gpu_hours",
        "GPU-hours of all attempts of the submitted jobs, whenever they ran / calendar days",
        "view job_gpu_hours",
        needs=("arrivals", "gpu_count"),
        by_vc=True,
        for_cpu_jobs=False,
    ),
    PeriodMeasure(
        "users active a day",
        "users/day",
        "a day",
        "users",
        "distinct users who submitted a job on the day, averaged over the calendar days",
        "users as in overview/summary, counted by day",
        needs=("arrivals", "users"),
        by_class=False,
    ),
    PeriodMeasure(
        "median run time",
        "s",
        "quantile",
        "run_s",
        "median of run_s over the jobs whose run time is known: last end minus first start",
        "overview/summary, median_run_s",
        needs=("arrivals", "run_time"),
    ),
    PeriodMeasure(
        "median wait",
        "s",
        "quantile",
        "queue_s",
        "median of queue_s over the jobs whose wait is known: first start minus submission",
        "overview/summary, median_queue_s",
        needs=_WAITS,
        by_vc=True,
    ),
    PeriodMeasure(
        "90th percentile of waits",
        "s",
        "quantile",
        "queue_s",
        "90th percentile of the same waits, interpolated between the two nearest jobs",
        "overview/summary, queue_s",
        share=0.9,
        needs=_WAITS,
    ),
    PeriodMeasure(
        "jobs that waited more than 10 min",
        "share",
        "ratio",
        "long_waits",
        "jobs whose queue_s is above 600 s / jobs whose queue_s is known; the limit is our choice",
        "overview/summary, queue_s",
        bottom="waits",
        counts="waits",
        needs=_WAITS,
        by_vc=True,
    ),
    _share(
        "jobs completed", "completed", "jobs with the status completed / all jobs, including running and waiting ones"
    ),
    _share(
        "jobs failed",
        "failed",
        "jobs with the status failed, node_fail or out_of_memory / all jobs; jobs that timed out count separately",
        by_vc=True,
    ),
    _share(
        "jobs timed out",
        "timeout",
        "jobs with the status timeout / all jobs; omitted if neither period has any",
        by_vc=True,
        where_seen=True,
    ),
    _share("jobs cancelled", "cancelled", "jobs with the status cancelled / all jobs"),
    PeriodMeasure(
        "GPU-hours in jobs that did not complete",
        "share",
        "ratio",
        "gpu_hours_lost",
        "GPU-hours of jobs that failed, timed out, were cancelled or were preempted / all known GPU-hours",
        "overview/status, gpu_hours_share",
        bottom="gpu_hours",
        needs=(*_STATUSES, "gpu_count"),
        for_cpu_jobs=False,
    ),
    PeriodMeasure(
        "mean GPU utilization",
        "percent",
        "ratio",
        "busy_pct",
        "mean of all GPU samples taken in the period, whether or not the GPU was allocated; offline GPUs are excluded",
        "utilization/cluster_by_hour, gpu_util_pct",
        bottom="samples",
        counts="samples",
        needs=("utilization",),
        tables=("gpu_utilization",),
        by_class=False,
    ),
    PeriodMeasure(
        "mean GPU utilization that jobs report",
        "percent",
        "ratio",
        "used_pct",
        "mean over jobs of the mean use of a job's GPUs, as reported by the source",
        "view job_reported_use",
        bottom="measured_jobs",
        counts="measured_jobs",
        tables=("job_usage",),
        for_cpu_jobs=False,
        rare=True,
    ),
)
"""The measures over all jobs, in display order."""

CLASS_SHARE = PeriodMeasure(
    "share of all jobs",
    "share",
    "ratio",
    "jobs",
    "jobs of the size class / all jobs, including jobs of unknown size",
    "overview/job_size, jobs_share",
    bottom="all_jobs",
    counts="all_jobs",
    needs=("arrivals", "gpu_count"),
)
"""The measure that applies only to size classes."""


def rule() -> str:
    """Return the definitions of all measures as free text."""
    definitions = [f"{m.name}: {m.definition} ({m.source})." for m in (*MEASURES, CLASS_SHARE)]
    return " ".join(t[:1].upper() + t[1:] for t in definitions)


# Read the jobs and samples of a period.


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

# A sample of a GPU part (MIG) is weighted by its share of the GPU, as in utilization/cluster_by_hour.
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
    """A Trace's jobs and samples in a period."""

    days: pl.Series
    """The period's calendar days in increasing order, including days without a job."""
    sums: pl.DataFrame
    """day, gpu_class, vc, and the daily-sum columns that measures name."""
    values: pl.DataFrame
    """day, gpu_class, vc, run_s, queue_s; one row per job."""
    users: pl.DataFrame
    """day, users."""
    telemetry: pl.DataFrame
    """day, busy_pct, samples; empty without telemetry."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """A sentence for each capability or table that is missing from the Trace."""
    time_base: str = "absolute"
    timezone: str = "UTC"
    tenant: Tenant = VC
    """The tenant in the column `vc`."""

    @property
    def jobs(self) -> int:
        """Number of jobs submitted in the period."""
        return int(self.sums["jobs"].sum())

    @property
    def dates(self) -> str:
        """The first and last day in words."""
        return f"{_date(self.days[0])} to {_date(self.days[-1])}"

    def lacks(self, measure: PeriodMeasure) -> str | None:
        """Return the reason why the period has no value for a measure, or None if it has one."""
        return next((self.lacking[name] for name in (*measure.needs, *measure.tables) if name in self.lacking), None)

    def restricted(self, keep: Callable[[pl.Expr], pl.Expr]) -> Period:
        """Return the part of the period whose days meet a condition. `keep` receives the day's expression."""
        rows = keep(pl.col("day"))
        return replace(
            self,
            days=pl.DataFrame({"day": self.days}).filter(rows)["day"],
            **{name: getattr(self, name).filter(rows) for name in ("sums", "values", "users", "telemetry")},
        )


def _date(day: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=day)).isoformat()


def read_day(text: str) -> dt.date:
    """Return the day given as YYYY-MM-DD.

    Raises
    ------
    UsageError
        The day does not exist.
    """
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise UsageError("this day does not exist", where=text, hint="write it like 2017-10-31") from error


def read_period(trace: Trace, name: str = "", *, memory_limit: str | None = None) -> Period:
    """Return the whole period of a Trace; error messages call it `name`.

    Raises
    ------
    QueryError
        No job has a submission time, or memory runs out.
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
        tenant=trace.tenant,
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
        One of the two parts would have no day.
    """
    number = (day - dt.date(1970, 1, 1)).days
    if not period.days[0] < number <= period.days[-1]:
        raise UsageError(
            f"the day does not split the trace, which has submissions from {period.dates}",
            where=day.isoformat(),
            hint="choose a day after the first",
        )
    return period.restricted(lambda d: d < number), period.restricted(lambda d: d >= number)
