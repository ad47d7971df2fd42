"""Starts at which a cluster ran more GPUs than it owned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import duckdb

__all__ = ["starts_over_capacity"]


def starts_over_capacity(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the jobs that started while the GPUs running in their cluster exceeded its stated total.

    What ends at a moment no longer runs then, and everything that starts at that moment does.

    Parameters
    ----------
    con : DuckDB connection
        Has the tables jobs, attempts and capacity; the total of a cluster is its row without a VC.
    """
    totals = con.sql(
        "SELECT cluster, time, gpu_count FROM capacity WHERE vc IS NULL AND gpu_count IS NOT NULL ORDER BY time"
    ).pl()
    # Where no job has a second attempt, the jobs say the same without a join.
    retried = con.execute("SELECT 1 FROM attempts WHERE attempt > 0 LIMIT 1").fetchall()
    source = "(SELECT a.*, j.cluster FROM attempts a JOIN jobs j USING (job_id))" if retried else "jobs"
    found: list[str] = []
    for (cluster,), total in totals.group_by("cluster", maintain_order=True):
        rows = f"FROM {source} WHERE gpu_count > 0 AND run_s > 0 AND cluster IS NOT DISTINCT FROM $cluster"
        held = con.sql(f"SELECT start_time, end_time, gpu_count {rows}", params={"cluster": cluster}).pl()
        start, end, gpus = (held[name].to_numpy() for name in ("start_time", "end_time", "gpu_count"))
        times = np.concatenate([start, end])
        order = np.argsort(times)
        running = np.cumsum(np.concatenate([gpus, -gpus])[order])
        at_start = running[np.searchsorted(times[order], start, side="right") - 1]
        row = np.searchsorted(total["time"].to_numpy(), start, side="right") - 1
        # Before the first row nothing is stated.
        over = (row >= 0) & (at_start > total["gpu_count"].to_numpy()[np.maximum(row, 0)] + 1e-6)
        if over.any():  # rarely; names of all jobs would take longer to fetch than their times
            names = con.sql(f"SELECT job_id {rows}", params={"cluster": cluster}).pl()["job_id"]
            found += names.filter(pl.Series(over)).to_list()
    return found
