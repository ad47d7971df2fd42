"""How often each job of a replay saves its work, and what that costs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.outages.theory import daly_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.texts import CheckpointsAsked

__all__ = ["Checkpoints", "checkpoints_for", "gang_nodes"]

_PPM = 1_000_000
_NEVER = 1 << 62


@dataclass(frozen=True)
class Checkpoints:
    """When jobs save their work, in what the engine counts.

    A job that runs saves its work each time `period_ms` have passed in which it was not held up by a restart or the
    like. The time that checkpoints take is spread evenly: work goes on at `progress_ppm` of its speed, so that at each
    checkpoint it is where it would be had it worked for the interval and then stopped for the cost.
    """

    period_ms: NDArray[np.int64]
    """Interval and cost of a checkpoint together, at least 1 [ms]; 2^62 of a job that saves nothing (n,)."""
    progress_ppm: NDArray[np.int32]
    """Part of the time in which work is done, not saved [ppm] (n,)."""
    restart_ms: int
    """Time from getting GPUs again, after an outage, until the work goes on [ms]."""


def gang_nodes(jobs: Jobs, cluster: Cluster) -> NDArray[np.int64]:
    """Return the fewest nodes that each job can be on (n,)."""
    widest = max(int(cluster.gpus.max(initial=1)), 1)
    return np.asarray((jobs.devices.astype(np.int64) + widest - 1) // widest)


def checkpoints_for(asked: CheckpointsAsked, jobs: Jobs, cluster: Cluster, rate_per_ms: float) -> Checkpoints:
    """Return the checkpoints of each job.

    Parameters
    ----------
    rate_per_ms : float
        Outages of a node in a millisecond; a gang on n nodes fails n times as often, if nodes fail by themselves.
    """
    n = len(jobs)
    restart_ms = round(asked.restart_s * 1000)
    if asked.interval_s == "none":
        return Checkpoints(np.full(n, _NEVER), np.full(n, _PPM, np.int32), restart_ms)
    if asked.interval_s == "daly":
        nodes = gang_nodes(jobs, cluster)
        interval = np.full(n, np.inf)
        for count in np.unique(nodes).tolist() if rate_per_ms > 0 else []:
            mean_s = 1 / (rate_per_ms * count) / 1000
            interval[nodes == count] = max(daly_interval(asked.cost_s, mean_s), asked.cost_s)
    else:
        interval = np.full(n, float(asked.interval_s))
    ever = np.isfinite(interval) & (interval < _NEVER / 4000)
    whole = np.where(ever, interval, 1.0)
    period = np.maximum(np.rint((whole + asked.cost_s) * 1000), 1).astype(np.int64)
    progress = np.maximum(np.rint(_PPM * whole / (whole + asked.cost_s)), 1).astype(np.int32)
    return Checkpoints(np.where(ever, period, _NEVER), np.where(ever, progress, _PPM).astype(np.int32), restart_ms)
