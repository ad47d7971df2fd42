"""GPUs allocated and used over time by one job, node or user: the SQL and the charts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.report.axes import number, percentage, shown_time, times
from tracekit.report.charts import Chart, Mark, Tip, band, line, moment_tip, steps
from tracekit.report.theme import colour
from tracekit.serve.things.thing import rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import duckdb

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts

__all__ = ["HELD", "STEPS", "held_chart", "held_through_time", "step_of", "use_chart", "used_through_time"]

STEPS = 200
"""Maximum number of intervals in a chart."""

_LEAST_S = 60
"""Minimum length of an interval [s]. Telemetry is rarely finer."""

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
"""Placements. If a placement has no times, it uses the times of its attempt."""


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
    """Return the mean number of allocated GPUs in each interval: GPU-seconds divided by the interval's length.

    Parameters
    ----------
    con : DuckDB connection
        Connection to the Trace.
    source : str
        A SELECT of `gpus` [GPUs], `since` and `until`. Rows without an end count until `last`.
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
    """Return the mean, minimum and maximum utilization of the samples in each interval from `first` to `last` [%].

    `samples` is a SELECT of `time` and `utilization_pct` with the parameters `values`. It may also use `$since`, the
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


_HEIGHT = 140


def held_chart(rows: Sequence[Row], facts: TraceFacts, title: str, *, owned: float | None = None) -> list[Chart]:
    """Draw the allocated GPUs over time, with `owned` as a line above, or return no chart if there are no rows."""
    if not rows:
        return []
    marks, note = [steps("series-1")], "Mean of each interval."
    if owned:
        dashes = {"color": colour("muted"), "strokeDash": [4, 3]}
        marks.append(Mark("rule", dashes, on="y", rows=[{"gpus": owned}]))
        note = f"{note} Dashed line: all GPUs."
    chart = Chart(
        [{"time": shown_time(r["time"], facts), "gpus": round(r["gpus"], 2)} for r in rows],
        x=times((r["time"] for r in rows), facts),
        y=number("gpus", "GPUs allocated"),
        marks=marks,
        height=_HEIGHT,
        tips=[moment_tip(facts), Tip("gpus", "GPUs allocated", ",.2f")],
        title=title,
        note=note,
        wide=True,
    )
    return [chart]


def use_chart(rows: Sequence[Row], facts: TraceFacts, title: str) -> list[Chart]:
    """Draw the mean GPU utilization over time, with its range from the least to the most used GPU."""
    if not rows:
        return []
    columns, y, hue = ("mean", "least", "most"), percentage("mean", "GPU utilization (%)"), colour("series-2")
    spread = band(y.of("least"), "most", opacity=0.25, color=hue)
    chart = Chart(
        [{"time": shown_time(r["time"], facts), **{c: round(r[c], 1) for c in columns}} for r in rows],
        x=times((r["time"] for r in rows), facts),
        y=y,
        marks=[replace(spread, tips=()), line(1.5, color=hue, point=len(rows) == 1)],
        height=_HEIGHT,
        tips=[moment_tip(facts), *(Tip(c, c, ".1f") for c in columns)],
        title=title,
        note="Line: mean of the samples in each interval. Pale area: minimum to maximum.",
        wide=True,
    )
    return [chart]
