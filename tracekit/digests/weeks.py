"""ISO weeks, from Monday to Sunday in the time zone of a log, and their figures."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import polars as pl

from tracekit.errors import UsageError
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

SLACK = dt.timedelta(days=1)
"""A log that begins or ends at most this far inside a week still covers it, because nights are quiet."""

_FIRST, _LAST = dt.datetime(1900, 1, 1), dt.datetime(9000, 1, 1)
"""Bounds of all weeks. Times outside are errors in the log."""


@dataclass(frozen=True)
class Week:
    """A week. It has 167 or 169 hours if clocks change."""

    monday: dt.date
    zone: str

    @property
    def name(self) -> str:
        """The name of the week, such as '2026-W47'."""
        return f"{self.monday:%G-W%V}"

    @property
    def since(self) -> dt.datetime:
        """The start of the week [UTC, without a zone]."""
        return self._midnight(self.monday)

    @property
    def until(self) -> dt.datetime:
        """The end of the week, exclusive [UTC, without a zone]."""
        return self._midnight(self.monday + dt.timedelta(days=7))

    @property
    def words(self) -> str:
        """The dates of the week, such as '16 to 22 November 2026'."""
        first, last = self.monday, self.monday + dt.timedelta(days=6)
        begin = f"{first.day} {first:%B %Y}" if first.year != last.year else f"{first.day} {first:%B}"
        begin = str(first.day) if first.month == last.month else begin
        return f"{begin} to {last.day} {last:%B %Y}"

    def _midnight(self, day: dt.date) -> dt.datetime:
        local = dt.datetime.combine(day, dt.time(), tzinfo=ZoneInfo(self.zone))
        return local.astimezone(dt.UTC).replace(tzinfo=None)


def week_of(text: str, zone: str) -> Week:
    """Parse a week such as '2026-W47'.

    Raises
    ------
    UsageError
        The text does not name a week, or the year has no such week.
    """
    hint = "write it like 2026-W47, as 'date +%G-W%V' prints it"
    found = re.fullmatch(r"(\d{4})-?W(\d{2})", text.strip(), flags=re.ASCII)
    if found is None:
        raise UsageError(f"'{shorten(text)}' is not a week", where="--week", hint=hint)
    try:
        monday = dt.date.fromisocalendar(int(found[1]), int(found[2]), 1)
    except ValueError:
        monday = dt.date.max
    if not _FIRST.date() <= monday <= _LAST.date():
        raise UsageError(f"this week does not exist: {shorten(text)}", where="--week", hint=hint)
    return Week(monday, zone)


def last_whole_week(end: dt.datetime, zone: str) -> Week:
    """Return the last full week of a log that ends at `end` [UTC, without a zone]."""
    return _week(_local_day(min(end, _LAST) + SLACK, zone) - dt.timedelta(days=7), zone)


def week_at(moment: dt.datetime, zone: str) -> Week:
    """Return the week that contains a time [UTC, without a zone]."""
    return _week(_local_day(moment, zone), zone)


def weeks_before(week: Week, number: int, begin: dt.datetime) -> list[Week]:
    """Return up to `number` weeks before a week, oldest first, that a log covers if it begins at `begin` [UTC]."""
    found = [_week(week.monday - dt.timedelta(days=7 * back), week.zone) for back in range(number, 0, -1)]
    return [one for one in found if one.since + SLACK >= begin]


def _local_day(moment: dt.datetime, zone: str) -> dt.date:
    within = min(max(moment, _FIRST), _LAST)
    return within.replace(tzinfo=dt.UTC).astimezone(ZoneInfo(zone)).date()


def _week(day: dt.date, zone: str) -> Week:
    return Week(day - dt.timedelta(days=day.weekday()), zone)


USE_TABLES = ("attempts", "placements", "nodes", "gpu_utilization", "job_usage")
"""Tables that are used if the Trace has them."""


COLUMNS = {
    "jobs": "jobs submitted in the week",
    "held_gpu_h": "GPU-hours allocated in the week (only the part in the week, for runs across its start or end)",
    "running_gpu_h": "part of held_gpu_h from runs that have not ended at the end of the log",
    "used_gpu_h": "used part of held_gpu_h, if known (from SM activity if it was sampled, otherwise from utilization)",
    "idle_gpu_h": "idle part of held_gpu_h, if known",
    "coverage_share": "share of held_gpu_h covered by telemetry",
    "used_share": "used_gpu_h / (used_gpu_h + idle_gpu_h)",
    "failed_gpu_h": "part of held_gpu_h from runs that failed because of an error, a node or memory",
    "timeout_gpu_h": "part of held_gpu_h from runs that hit their time limit",
    "started": "jobs that started in the week",
    "wait_p50_s": "median wait of the jobs that started in the week, from submission to start [s]",
    "wait_p90_s": "90th percentile of these waits [s]",
    "waiting": "jobs that were waiting when the week ended",
    "ended": "jobs that ended in the week, with a known status",
    "failed": "ended jobs that failed because of an error, a node or memory",
    "timeout": "ended jobs that hit their time limit",
    "failed_share": "failed / ended",
    "cpu_jobs": "jobs without GPUs submitted in the week (not counted in any other figure)",
}
"""The figures of a week and their meanings."""


def has_gpu_jobs(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether any job in the log has GPUs. If none has, the figures cover all jobs."""
    return bool(con.execute("SELECT count(*) FROM jobs WHERE gpu_count > 0").fetchall()[0][0])


def weekly_figures(con: duckdb.DuckDBPyConnection, weeks: Sequence[Week], key: str, *, gpu_only: bool) -> pl.DataFrame:
    """Return one row for each week and name with data, and one row per week for all names (`everyone`).

    Parameters
    ----------
    con : duckdb.DuckDBPyConnection
        A connection with the Trace and the shared views. Tables in `USE_TABLES` that are not in the Trace are empty.
    weeks : sequence of Week
        The weeks.
    key : str
        Column of jobs: user or account.
    gpu_only : bool
        Whether only jobs with GPUs count.

    Returns
    -------
    polars.DataFrame
        week, everyone, name (NULL if the log has no name), and COLUMNS.
    """
    frame = pl.DataFrame(
        {"week": [w.name for w in weeks], "since": [w.since for w in weeks], "until": [w.until for w in weeks]},
        schema={"week": pl.String, "since": pl.Datetime("us"), "until": pl.Datetime("us")},
    )
    con.register("digest_weeks", frame.to_arrow())
    sql = _SQL.format(key=f'"{key}"', counts="gpu_count > 0" if gpu_only else "true")
    try:
        found: pl.DataFrame = pl.DataFrame(con.sql(sql))
    finally:
        con.unregister("digest_weeks")
    return found


# Sums of decimal numbers do not depend on row order.
_SQL = """
WITH known AS (
    SELECT job_id, {key} AS name, submit_time, start_time, end_time, queue_s, status,
           coalesce({counts}, false) AS counts
    FROM jobs
),

-- A week that contains part of an attempt gets this part of its covered and used GPU time, as if the use were even. The
-- attempt's weeks add up to its figures in utilization/efficiency. Unknown use does not count as idle.
use_of_attempts AS (
    SELECT job_id, attempt, covered_gpu_s / gpu_s AS covered_share, used_gpu_s / gpu_s AS used_share
    FROM attempt_use
    WHERE used_gpu_s IS NOT NULL AND gpu_s > 0
),

-- An attempt that is still running keeps its GPUs until the time in the open_attempts view.
runs AS (
    SELECT k.name, a.gpu_count, a.status, u.covered_share, u.used_share, a.start_time,
           coalesce(a.end_time, make_timestamp(o.until_us)) AS end_time, o.job_id IS NOT NULL AS open
    FROM attempts AS a
    INNER JOIN known AS k ON a.job_id = k.job_id
    LEFT JOIN open_attempts AS o ON a.job_id = o.job_id AND a.attempt = o.attempt
    LEFT JOIN use_of_attempts AS u ON a.job_id = u.job_id AND a.attempt = u.attempt
    WHERE k.counts AND a.gpu_count > 0
),

times AS (
    SELECT *, unnest(['submitted', 'started', 'ended']) AS what, unnest([submit_time, start_time, end_time]) AS time
    FROM known
),

-- One row for each event of a job in a week, and for each part of an attempt in a week.
facts AS (
    SELECT w.week, t.name, if(t.counts, t.what, 'CPU job ' || t.what) AS what, t.queue_s, t.status
    FROM times AS t INNER JOIN digest_weeks AS w ON t.time >= w.since AND t.time < w.until
    WHERE t.what <> 'ended' OR t.status NOT IN ('unknown', 'running', 'pending')
    UNION ALL BY NAME
    SELECT w.week, k.name, if(k.counts, 'waiting', 'CPU job waiting') AS what
    FROM known AS k INNER JOIN digest_weeks AS w
        ON k.submit_time < w.until AND coalesce(k.start_time, k.end_time, w.until) >= w.until
    WHERE
        (k.start_time IS NOT NULL OR k.end_time IS NOT NULL OR k.status = 'pending')
        AND w.since <= (SELECT greatest(max(submit_time), max(start_time), max(end_time)) FROM jobs)
    UNION ALL BY NAME
    SELECT w.week, r.name, 'held' AS what, r.status, r.open, r.covered_share, r.used_share,
           CAST(r.gpu_count * (epoch_us(least(r.end_time, w.until)) - epoch_us(greatest(r.start_time, w.since)))
                / 3600000000 AS DECIMAL(38, 9)) AS gpu_h
    FROM runs AS r INNER JOIN digest_weeks AS w ON r.start_time < w.until AND r.end_time > w.since
),

totals AS (
    SELECT
        week, grouping(name) = 1 AS everyone, name,
        count(*) FILTER (WHERE what = 'submitted') AS jobs,
        coalesce(CAST(sum(gpu_h) AS DOUBLE), 0) AS held_gpu_h,
        coalesce(CAST(sum(gpu_h) FILTER (WHERE open) AS DOUBLE), 0) AS running_gpu_h,
        CAST(sum(CAST(gpu_h * used_share AS DECIMAL(38, 9))) AS DOUBLE) AS used_gpu_h,
        CAST(sum(CAST(gpu_h * covered_share AS DECIMAL(38, 9))) AS DOUBLE) AS covered_gpu_h,
        coalesce(CAST(sum(gpu_h) FILTER (WHERE is_failed(status)) AS DOUBLE), 0) AS failed_gpu_h,
        coalesce(CAST(sum(gpu_h) FILTER (WHERE status = 'timeout') AS DOUBLE), 0) AS timeout_gpu_h,
        count(queue_s) FILTER (WHERE what = 'started') AS started,
        quantile_cont(queue_s, 0.5) FILTER (WHERE what = 'started') AS wait_p50_s,
        quantile_cont(queue_s, 0.9) FILTER (WHERE what = 'started') AS wait_p90_s,
        count(*) FILTER (WHERE what = 'waiting') AS waiting,
        count(*) FILTER (WHERE what = 'ended') AS ended,
        count(*) FILTER (WHERE what = 'ended' AND is_failed(status)) AS failed,
        count(*) FILTER (WHERE what = 'ended' AND status = 'timeout') AS timeout,
        count(*) FILTER (WHERE what = 'CPU job submitted') AS cpu_jobs
    FROM facts
    GROUP BY GROUPING SETS ((week, name), (week))
)

SELECT
    * EXCLUDE (covered_gpu_h),
    CASE WHEN covered_gpu_h IS NOT NULL THEN greatest(covered_gpu_h - used_gpu_h, 0) END AS idle_gpu_h,
    coalesce(covered_gpu_h, 0) / nullif(held_gpu_h, 0) AS coverage_share,
    used_gpu_h / nullif(covered_gpu_h, 0) AS used_share,
    failed / nullif(ended, 0) AS failed_share
FROM totals
ORDER BY week, everyone DESC, held_gpu_h DESC, jobs DESC, name NULLS LAST
"""
