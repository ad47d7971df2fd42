"""Starts at which a cluster ran more GPUs than it owned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

__all__ = ["starts_over_capacity"]


def starts_over_capacity(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the jobs that started while the GPUs running in their cluster exceeded its stated total.

    A job that ends at a moment no longer counts then; one that starts at that moment does.

    The total of a cluster is its row of the table capacity without a VC.
    """
    totals = pl.DataFrame(
        con.sql(
            "SELECT cluster, time, gpu_count FROM capacity WHERE vc IS NULL AND gpu_count IS NOT NULL ORDER BY time"
        )
    )
    if not len(totals):
        return []
    # Where no job has a second attempt, the jobs say the same without a join.
    retried = con.execute("SELECT 1 FROM attempts WHERE attempt > 0 LIMIT 1").fetchall()
    source = "(SELECT a.*, j.cluster FROM attempts a JOIN jobs j USING (job_id))" if retried else "jobs"
    rows = f"FROM {source} WHERE gpu_count > 0 AND run_s > 0"
    held = pl.DataFrame(con.sql(f"SELECT cluster, start_time, end_time, gpu_count {rows}"))
    over = np.zeros(len(held), dtype=bool)
    for (cluster,), total in totals.group_by("cluster"):
        own = held.select(pl.col("cluster").eq_missing(pl.lit(cluster, dtype=pl.String))).to_series()
        over[own.to_numpy()] = _over(held.filter(own), total)
    if not over.any():
        return []
    # Names of all jobs would take longer to fetch than their times, and are rarely needed.
    names: pl.Series = pl.DataFrame(con.sql(f"SELECT job_id {rows}"))["job_id"]
    return names.filter(pl.Series(over)).to_list()


def _over(held: pl.DataFrame, total: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which intervals of one cluster start while more runs than its total, which changes with time."""
    if not len(held):
        return np.zeros(0, dtype=bool)
    # As whole numbers: NumPy sorts these several times quicker than dates.
    start, end = (held[name].to_physical().to_numpy() for name in ("start_time", "end_time"))
    gpus = held["gpu_count"].to_numpy()
    times = np.concatenate([start, end])
    order = np.argsort(times)
    running = np.cumsum(np.concatenate([gpus, -gpus])[order])
    # The sum counts after everything that happens at one moment.
    rising = times[order]
    last = np.flatnonzero(np.append(rising[1:] != rising[:-1], True))
    after = np.empty(len(times))
    after[order] = np.repeat(running[last], np.diff(last, prepend=-1))
    at_start = after[: len(start)]
    row = np.searchsorted(total["time"].to_physical().to_numpy(), start, side="right") - 1
    # Before the first row nothing is stated.
    over: NDArray[np.bool_] = (row >= 0) & (at_start > total["gpu_count"].to_numpy()[np.maximum(row, 0)] + 1e-6)
    return over
