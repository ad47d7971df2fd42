"""Periods to compare, sampled from a population as a `Period` or as the rows of a Trace."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.characterize.changes.periods import Period

if TYPE_CHECKING:
    from numpy.typing import NDArray

MONDAY = 17_441
"""2017-10-02 in days since 1970."""


def population(rng: np.random.Generator, days: int, jobs_a_day: float = 40) -> Period:
    """Sample days with different loads and fewer jobs at weekends, where half of the jobs do not wait."""
    day = np.arange(MONDAY, MONDAY + days)
    rates = jobs_a_day * np.where((day + 3) % 7 >= 5, 0.5, 1.0) * rng.gamma(8, 1 / 8, days)
    counts = rng.poisson(rates)
    n = int(counts.sum())
    load = np.repeat(rng.gamma(2, 0.5, days), counts)
    gpus = rng.choice([0.0, 1.0, 4.0], n, p=[0.3, 0.5, 0.2])
    run_s = rng.lognormal(6, 2, n).round()
    jobs = pl.DataFrame(
        {
            "day": np.repeat(day, counts).astype(np.int32),
            "gpu_class": np.select([gpus == 0, gpus == 1], ["0", "1"], "2-4"),
            "vc": rng.choice(["a", "b"], n),
            "run_s": run_s,
            "queue_s": np.where(rng.random(n) < 0.5, 0.0, rng.exponential(400 * load)).round(),
            "outcome": rng.choice(["completed", "failed", "cancelled"], n, p=[0.7, 0.15, 0.15]),
            "gpu_hours": run_s * gpus / 3600,
            "user": rng.integers(0, 12, n),
        }
    )
    return _side(jobs, day)


def _side(jobs: pl.DataFrame, days: NDArray[np.int64]) -> Period:
    outcome = pl.col("outcome")
    sums = jobs.group_by("day", "gpu_class", "vc").agg(
        pl.len().alias("jobs"),
        pl.len().alias("waits"),
        (pl.col("queue_s") > 600).sum().alias("long_waits"),
        *((outcome == name).sum().alias(name) for name in ("completed", "failed", "timeout", "cancelled")),
        pl.col("gpu_hours").sum(),
        pl.col("gpu_hours").filter(outcome != "completed").sum().alias("gpu_hours_lost"),
    )
    return Period(
        days=pl.Series("day", days, dtype=pl.Int32),
        sums=sums.sort("day", "gpu_class", "vc").with_columns(pl.col(pl.UInt32).cast(pl.Float64)),
        values=jobs.select("day", "gpu_class", "vc", "run_s", "queue_s"),
        users=jobs.group_by("day").agg(pl.col("user").n_unique().alias("users")).sort("day"),
        telemetry=pl.DataFrame(schema={"day": pl.Int32, "busy_pct": pl.Float64, "samples": pl.Float64}),
        lacking={"utilization": "has no utilization", "job_usage": "has no table 'job_usage'"},
    )


def job(name: str, submitted: str, *, wait_s: float = 0, run_s: float = 60, **more: Any) -> dict[str, Any]:
    """Return a row of jobs."""
    start = dt.datetime.fromisoformat(submitted) + dt.timedelta(seconds=wait_s)
    return {
        "job_id": name,
        "submit_time": submitted,
        "start_time": start.isoformat(),
        "end_time": (start + dt.timedelta(seconds=run_s)).isoformat(),
        "queue_s": wait_s,
        "run_s": run_s,
        "gpu_count": 1,
        "status": "completed",
        **more,
    }


def attempts(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one attempt for each job."""
    same = ("job_id", "start_time", "end_time", "run_s", "gpu_count", "status")
    return [{**{key: row[key] for key in same}, "attempt": 0, "wait_s": row["queue_s"]} for row in jobs]


def planted(
    rng: np.random.Generator,
    first: str,
    days: int,
    *,
    each: int = 40,
    slower: float = 1.0,
    later_s: float = 0.0,
    failed: float = 0.1,
) -> list[dict[str, Any]]:
    """Return jobs over several days, with run times times `slower`, waits plus `later_s`, and a `failed` share."""
    begin = dt.datetime.fromisoformat(first)
    rows: list[dict[str, Any]] = []
    for day in range(days):
        load = float(rng.gamma(8, 1 / 8))
        rows += [
            job(
                f"{first}/{day}/{k}",
                (begin + dt.timedelta(days=day, minutes=30 * k)).isoformat(sep=" "),
                wait_s=round(float(rng.exponential(120 * load))) + later_s,
                run_s=round(float(rng.lognormal(6, 1))) * slower,
                status="failed" if rng.random() < failed else "completed",
            )
            for k in range(each)
        ]
    return rows
