"""Running and waiting jobs and GPUs of each VC through time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.occupancy import Steps, group_codes, held_gpus, window_us
from tracekit.characterize.query import QueryColumn, QueryParam
from tracekit.characterize.quotas import QUOTA, quotas
from tracekit.characterize.sweep import Sweep, Swept
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["STEP", "SWEEP", "grid_us"]

STEP = QueryParam(
    "step_s", 3600, "length of the intervals over which is averaged [s]; 0: as short as a page can show the trace"
)
_MOST_ROWS = 5_000_000
_PAGE_ROWS = 1_900
_ROUND_STEPS_S = (60, 300, 600, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)


def grid_us(con: duckdb.DuckDBPyConnection, step_s: float, groups: int) -> Ints:
    """Return the edges of the intervals that cover a trace [us], aligned to whole steps; empty without times.

    Parameters
    ----------
    con : DuckDB connection
        Has jobs and attempts.
    step_s : float
        Length of an interval [s]; 0 chooses a round one that gives a page's worth of rows for all clusters.
    groups : int
        How many rows each interval will have.

    Raises
    ------
    QueryError
        The step is not above 0, or gives more rows than anybody can read.
    """
    if step_s < 1 and step_s != 0:
        raise QueryError(f"the parameter 'step_s' cannot be {step_s:g}", hint="give 1 s or more, or 0")
    window = window_us(con)
    if window is None:
        return np.empty(0, dtype=np.int64)
    if step_s == 0:
        clusters = max(1, con.execute("SELECT count(DISTINCT cluster) FROM jobs").fetchall()[0][0])
        span_s = (window[1] - window[0]) / 1_000_000
        fitting = [s for s in _ROUND_STEPS_S if (span_s / s + 2) * clusters <= _PAGE_ROWS]
        step_s = fitting[0] if fitting else _ROUND_STEPS_S[-1]
    step = round(step_s * 1_000_000)
    first = window[0] // step
    last = max(first + 1, -(-window[1] // step))
    if (last - first) * max(groups, 1) > _MOST_ROWS:
        raise QueryError(f"steps of {step_s:g} s give {(last - first) * groups:,} rows", hint="give a larger step_s")
    return np.arange(first, last + 1) * step


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> Swept:
    running, notes = _running(con)
    pending, lost = _pending(con)
    held, also = held_gpus(con)
    notes += [*lost, *(note for note in also if note not in notes)]
    groups = con.sql("SELECT DISTINCT cluster, vc FROM jobs ORDER BY cluster NULLS LAST, vc NULLS LAST").pl()
    edges = grid_us(con, float(params["step_s"]), len(groups))
    used = _by_group(held, groups, held["gpu_count"].to_numpy())
    stated, source = quotas(con, groups, used, str(params["quota"]))
    columns = {
        "running_jobs": _by_group(running, groups, np.ones(len(running))),
        "pending_jobs": _by_group(pending, groups, np.ones(len(pending))),
        "running_gpus": used,
        "pending_gpus": _by_group(pending, groups, pending["gpu_count"].fill_null(0).to_numpy()),
        "capacity_gpus": stated,
    }
    parts = [
        pl.DataFrame(
            {
                "time": pl.Series(edges[:-1], dtype=pl.Int64).cast(pl.Datetime("us")),
                "cluster": pl.repeat(cluster, len(edges) - 1, dtype=pl.String, eager=True),
                "vc": pl.repeat(vc, len(edges) - 1, dtype=pl.String, eager=True),
                **{name: steps[group].means(edges) for name, steps in columns.items()},
            }
        ).with_columns(pl.col("capacity_gpus").fill_nan(None))
        for group, (cluster, vc) in enumerate(groups.iter_rows())
        if len(edges)
    ]
    return Swept(pl.concat(parts) if parts else _EMPTY, (*dict.fromkeys(notes), source))


def _running(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[str]]:
    window = window_us(con)
    found = con.sql(
        """SELECT j.cluster, j.vc, epoch_us(a.start_time) AS start,
                  coalesce(epoch_us(a.end_time), CASE WHEN a.status = 'running' THEN $last END) AS "end"
           FROM attempts AS a INNER JOIN jobs AS j ON a.job_id = j.job_id WHERE a.start_time IS NOT NULL""",
        params={"last": window and window[1]},
    ).pl()
    known = found.filter(pl.col("end") >= pl.col("start"))
    lost = len(found) - len(known)
    return known, [f"{lost:,} attempts without a usable end do not run here"] if lost else []


def _pending(con: duckdb.DuckDBPyConnection) -> tuple[pl.DataFrame, list[str]]:
    window = window_us(con)
    found = con.sql(
        """SELECT w.cluster, w.vc, w.gpu_count,
                  epoch_us(a.start_time) - CAST(round(w.wait_s * 1000000) AS BIGINT) AS start,
                  epoch_us(a.start_time) AS "end"
           FROM waits AS w INNER JOIN attempts AS a ON w.job_id = a.job_id AND w.attempt = a.attempt
           UNION ALL
           SELECT j.cluster, j.vc, j.gpu_count, epoch_us(j.submit_time),
                  coalesce(epoch_us(j.end_time), CASE WHEN j.status = 'pending' THEN $last END)
           FROM jobs AS j WHERE NOT EXISTS (FROM attempts AS a WHERE a.job_id = j.job_id)""",
        params={"last": window and window[1]},
    ).pl()
    known = found.filter(pl.col("end") >= pl.col("start"))
    lost = len(found) - len(known)
    return known, [f"{lost:,} waits whose length is unknown or below zero are left out"] if lost else []


def _by_group(intervals: pl.DataFrame, groups: pl.DataFrame, weights: Floats) -> list[Steps]:
    codes = group_codes(intervals, groups)
    start, end = intervals["start"].to_numpy(), intervals["end"].to_numpy()
    masks = (codes == group for group in range(len(groups)))
    return [Steps.of_intervals(start[m], end[m], weights[m]) for m in masks]


_NUMBERS = ("running_jobs", "pending_jobs", "running_gpus", "pending_gpus", "capacity_gpus")
_EMPTY = pl.DataFrame(
    schema={
        "time": pl.Datetime("us"),
        "cluster": pl.String(),
        "vc": pl.String(),
        **dict.fromkeys(_NUMBERS, pl.Float64()),
    }
)

SWEEP = Sweep(
    name="gpu_timeline",
    title="Running and waiting jobs and GPUs of each VC through time",
    tables=("jobs", "attempts"),
    also=("capacity", "nodes"),
    params=(STEP, QUOTA),
    columns=(
        QueryColumn("time", "UTC", "start of the interval"),
        QueryColumn("cluster", "text", "the cluster"),
        QueryColumn("vc", "text", "the tenant; NULL for jobs without one"),
        QueryColumn("running_jobs", "jobs", "mean number of running attempts"),
        QueryColumn("pending_jobs", "jobs", "mean number of waiting jobs"),
        QueryColumn("running_gpus", "GPUs", "mean number of GPUs held"),
        QueryColumn("pending_gpus", "GPUs", "mean number of GPUs asked for by waiting jobs"),
        QueryColumn("capacity_gpus", "GPUs", "mean number of GPUs that the VC may use; NULL when unknown"),
    ),
    rule="""Means over each interval, weighted by time, so that running_gpus times the length of the interval is the
GPU time held in it. Every VC has a row for every interval from the first to the last moment of the trace. An attempt
that still runs, and a job that still waits, do so to the end of the trace; other unknown ends are left out and
counted in a note.""",
    compute=_compute,
)
