"""SQL for the periods in which GPUs were allocated, and for the allocated GPUs and their utilization over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.serve.things.thing import rows_of

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb

    from tracekit.answer import Row

__all__ = ["HELD", "STEPS", "held_through_time", "step_of", "used_through_time"]

STEPS = 200
"""Maximum number of intervals in a chart."""

_LEAST_S = 60
"""Minimum length of an interval [s]; telemetry is rarely finer."""

HELD = """
    SELECT
        p.job_id,
        p.attempt,
        p.node_id,
        coalesce(p.gpu_count, len(p.gpu_index)) AS gpus,
        coalesce(p.start_time, a.start_time) AS since,
        coalesce(p.end_time, a.end_time) AS until
    FROM placements AS p
    LEFT JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
"""
"""Placements; those without times of their own use the times of their attempts."""


def step_of(first: datetime, last: datetime) -> float:
    """Return the length of the intervals into which a period is divided [s].

    Examples
    --------
    >>> from datetime import datetime
    >>> step_of(datetime(2020, 1, 1), datetime(2020, 1, 2)), step_of(datetime(2020, 1, 1), datetime(2020, 1, 1))
    (432.0, 60)
    """
    return max(_LEAST_S, (last - first).total_seconds() / STEPS)


def held_through_time(
    con: duckdb.DuckDBPyConnection, source: str, first: datetime, last: datetime, **values: object
) -> list[Row]:
    """Return the mean number of allocated GPUs in each interval: its GPU-seconds divided by its length.

    Parameters
    ----------
    con : DuckDB connection
        Connection to the Trace.
    source : str
        A SELECT of `gpus` [GPUs], `since` and `until`; rows without an end count until `last`.
    first, last : datetime
        Start and end of the period shown.
    **values
        Parameters of `source`.
    """
    step = step_of(first, last)
    sql = f"""
        WITH mine AS (SELECT gpus, since, coalesce(until, $last) AS until FROM ({source}) WHERE since IS NOT NULL),
        cut AS (
            SELECT
                $first + to_microseconds(CAST(i * $step * 1e6 AS BIGINT)) AS time,
                $first + to_microseconds(CAST((i + 1) * $step * 1e6 AS BIGINT)) AS after
            FROM range(CAST(ceil(epoch($last - $first) / $step) AS BIGINT)) AS r (i)
        )
        SELECT
            c.time,
            coalesce(sum(m.gpus * epoch(least(m.until, c.after) - greatest(m.since, c.time))), 0) / $step AS gpus
        FROM cut AS c
        LEFT JOIN mine AS m ON m.since < c.after AND m.until > c.time
        GROUP BY c.time
        ORDER BY c.time
    """
    return rows_of(con, sql, first=first, last=last, step=step, **values)


def used_through_time(
    con: duckdb.DuckDBPyConnection, samples: str, first: datetime, last: datetime, **values: object
) -> list[Row]:
    """Return the mean, least and most utilization of the samples in each interval from `first` to `last` [%].

    `samples` is a SELECT of `time` and `utilization_pct` with the parameters `values`; it may also use `$since`, the
    first time.
    """
    sql = f"""
        SELECT
            $since + to_microseconds(CAST(floor(epoch("time" - $since) / $step) * $step * 1e6 AS BIGINT)) AS time,
            avg(utilization_pct) AS mean,
            min(utilization_pct) AS least,
            max(utilization_pct) AS most
        FROM ({samples})
        GROUP BY ALL
        ORDER BY 1
    """
    return rows_of(con, sql, since=first, step=step_of(first, last), **values)
