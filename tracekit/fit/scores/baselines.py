"""Naive workloads beside which generators are judged: jobs one by one, at a constant rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.fit.log_jobs import DAY_US, KEPT, read_log
from tracekit.fit.scores.parts import utc_us, write_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

__all__ = ["BASELINES", "draw_baseline"]

BASELINES = ("poisson_jobs", "poisson_lognormal")
"""Jobs of the log one by one, with Poisson arrivals at its mean rate; the same with run times from one lognormal
distribution for all, by the mean and the standard deviation of the logarithms of those above 0."""


def draw_baseline(trace: Trace, name: str, days: int, seed: int, out: Path, step_s: float = 1.0) -> Trace:
    """Write a naive workload of a log, whose clock has steps of `step_s` [s].

    Raises
    ------
    UsageError
        The log has no job that could be taken.
    """
    log = read_log(trace)
    rng = np.random.default_rng(seed)
    number = max(1, int(rng.poisson(log.per_day * days)))
    place = rng.integers(log.first[0], log.first[-1], size=number)
    at = utc_us(log.begin_us, trace.timezone) + np.sort(rng.random(number) * days * DAY_US).astype(np.int64)
    at -= at % round(step_s * 1_000_000)
    jobs = log.jobs.select(*(name for name in KEPT if name in log.jobs.columns), "run_s")[log.row[place]].with_columns(
        job_id=pl.Series(np.arange(number)).cast(pl.String), submit_time=pl.Series(at).cast(pl.Datetime("us"))
    )
    if name == "poisson_lognormal":
        known = log.jobs["run_s"][log.row].drop_nulls().to_numpy()
        logs = np.log(known[known > 0])
        if logs.size:
            drawn = np.round(np.exp(rng.normal(logs.mean(), logs.std(), size=number)))
            jobs = jobs.with_columns(run_s=pl.Series(np.minimum(drawn, known.max())))
    return write_jobs(trace, jobs, out)
