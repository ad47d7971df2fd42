"""What a log shows of its cluster where it lists none: GPUs held at one time, and GPUs to a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.trace import Trace

    Longs = NDArray[np.int64]

__all__ = ["HeldGpus", "gpus_per_node", "held_gpus"]


class HeldGpus:
    """GPUs held through time, by VC.

    Parameters
    ----------
    intervals : polars.DataFrame
        vc, since, until [us], milli [milli-GPU]; one row an attempt that held GPUs.
    """

    def __init__(self, intervals: pl.DataFrame) -> None:
        self._all = intervals
        self.names = sorted(intervals["vc"].drop_nulls().unique().to_list())
        """VCs that held GPUs."""

    def peak(self, vc: str | None = None) -> int:
        """Return the most GPUs held at one time, rounded up; of everyone where no VC is named."""
        _, held = self._steps(vc)
        return int(-(-held.max(initial=0) // 1000))

    def p95(self, vc: str) -> int:
        """Return what the VC held at most in 95 % of the time of the whole log [milli-GPU]."""
        times, held = self._steps(vc)
        if not len(times):
            return 0
        begin, end = int(self._all["since"].min()), int(self._all["until"].max())  # type: ignore[arg-type]  # integers
        lengths = np.diff(np.concatenate([[begin], times, [end]]))
        values = np.concatenate([[0], held])
        order = np.argsort(values, kind="stable")
        reached = np.searchsorted(np.cumsum(lengths[order]) * 100, 95 * (end - begin))
        return int(values[order][min(int(reached), len(values) - 1)])

    def _steps(self, vc: str | None) -> tuple[Longs, Longs]:
        """Return when the number of held GPUs changes [us], and to what [milli-GPU]."""
        own = self._all if vc is None else self._all.filter(pl.col("vc") == vc)
        milli = own["milli"].to_numpy()
        times = np.concatenate([own["since"].to_numpy(), own["until"].to_numpy()])
        moments, index = np.unique(times, return_inverse=True)
        change = np.zeros(len(moments), dtype=np.int64)
        np.add.at(change, index, np.concatenate([milli, -milli]))
        return moments, np.cumsum(change)


def held_gpus(trace: Trace, cluster: str | None) -> HeldGpus:
    """Return the GPUs that the attempts of a cluster held; those without a start or a later end are left out."""
    table = "attempts" if _has_attempts(trace) else "jobs"
    rows = trace.scan(table)
    jobs = trace.scan("jobs")
    if table == "attempts":
        rows = rows.select("job_id", "start_time", "end_time", "gpu_count").join(
            jobs.select("job_id", "cluster", "vc"), on="job_id"
        )
    if cluster is not None:
        rows = rows.filter(pl.col("cluster") == cluster)
    intervals = rows.select(
        "vc",
        pl.col("start_time").cast(pl.Int64).alias("since"),
        pl.col("end_time").cast(pl.Int64).alias("until"),
        (pl.col("gpu_count").fill_nan(None).clip(0, 1e6) * 1000).round().cast(pl.Int64).alias("milli"),
    ).filter(pl.col("until") > pl.col("since"), pl.col("milli") > 0)
    return HeldGpus(intervals.collect())


def gpus_per_node(trace: Trace, cluster: str | None) -> int | None:
    """Return the most GPUs that a job had on one node, by the number of its nodes; None where unknown."""
    rows = trace.scan("jobs").filter(pl.col("node_count") >= 1, pl.col("gpu_count") >= 1)
    if cluster is not None:
        rows = rows.filter(pl.col("cluster") == cluster)
    most = rows.select((pl.col("gpu_count").clip(0, 1e6) / pl.col("node_count")).ceil().max()).collect().item()
    return None if most is None else max(1, int(most))


def _has_attempts(trace: Trace) -> bool:
    # Attempts derived from their jobs say the same as the jobs.
    retries = trace.capabilities.get("retries")
    return trace.has("attempts") and retries is not None and retries.available
