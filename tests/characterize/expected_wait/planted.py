"""Waits of known kinds, in the rows that a backtest reads."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.characterize.expected_wait.state import Room, with_states

__all__ = ["KINDS", "planted", "rows"]

KINDS = ("stationary", "drift", "jump up", "jump down", "daily", "gangs", "at once", "never")
_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")


def planted(kind: str, n: int, per_day: float, seed: int) -> pl.DataFrame:
    """Return jobs in three size classes with lognormal waits that behave as `kind` says."""
    draw = np.random.default_rng(seed)
    time = np.sort(draw.uniform(0, n / per_day * 86400, n))
    size = draw.choice([2, 3, 4], n, p=[0.6, 0.3, 0.1])
    median = np.array([0, 0, 60, 300, 1200.0])[size]
    late = time > 0.7 * time[-1]
    if kind == "drift":
        median *= 1 + 9 * time / time[-1]
    elif kind == "jump up":
        median[late] *= 10
    elif kind == "jump down":
        median[late] /= 10
    elif kind == "daily":
        median *= np.exp(1.5 * np.sin(2 * np.pi * time / 86400))
    elif kind == "gangs":
        large = draw.random(n) < 0.02
        size[large], median[large] = 5, 36000
    wait = draw.lognormal(np.log(median), 1)
    if kind == "at once":
        wait[draw.random(n) < 0.4] = 0
    elif kind == "never":
        wait[draw.random(n) < 0.08] = 1e9
    return rows(time, time + wait, [_CLASSES[i] for i in size], end=float(time[-1]))


def rows(
    since: np.ndarray, start: np.ndarray, gpu_class: list[str], *, end: float, cluster: str | None = None
) -> pl.DataFrame:
    """Return the rows of jobs that begin to wait and start at these times [s], in a log that ends at `end`."""
    seen = start <= end
    us = [(np.asarray(t) * 1e6).astype(np.int64) for t in (since, np.where(seen, start, end))]
    order = np.array([_CLASSES.index(c) for c in gpu_class])
    empty = [None] * len(us[0])
    frame = pl.DataFrame(
        {
            "job_id": [str(i) for i in range(len(us[0]))],
            "gpu_class": gpu_class,
            "class_order": order,
            "cluster": pl.Series([cluster] * len(us[0]), dtype=pl.String),
            "place": pl.Series(empty, dtype=pl.String),
            "gpu_model": pl.Series(empty, dtype=pl.String),
            "qos": pl.Series(empty, dtype=pl.String),
            "gpu_count": order.astype(float),
            "limit_class": pl.Series(empty, dtype=pl.Int32),
            "account": pl.Series(empty, dtype=pl.String),
            "partition": pl.Series(empty, dtype=pl.String),
            "limit_s": pl.Series(empty, dtype=pl.Float64),
            "since": us[0],
            "until": np.maximum(us[1], us[0]),
            "ended": np.maximum(us[1], us[0]),
            "started": seen,
            "going_on": ~seen,
        }
    )
    return with_states(frame, Room())
