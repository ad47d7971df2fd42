"""How often each job of a replay saves its work, and what saving costs."""

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


_PPM = 1_000_000
_NEVER = 1 << 62


@dataclass(frozen=True)
class Checkpoints:
    """When jobs save their work, in the engine's units.

    A running job saves its work after every `period_ms` of running, not counting restarts and other overheads. The time
    that checkpoints take is spread evenly: work proceeds at `progress_ppm` of its speed. At each checkpoint the job has
    therefore done as much work as if it had worked for the interval and then stopped to save.
    """

    period_ms: NDArray[np.int64]
    """Interval plus cost of a checkpoint, at least 1 [ms]; 2^62 for a job that saves nothing (n,)."""
    progress_ppm: NDArray[np.int32]
    """Share of the time spent on work, not on saving it [ppm] (n,)."""
    restart_ms: int
    """Time after an outage from getting GPUs again until work resumes [ms]."""


def gang_nodes(jobs: Jobs, cluster: Cluster) -> NDArray[np.int64]:
    """Return the smallest number of nodes that each job can run on (n,)."""
    widest = max(int(cluster.gpus.max(initial=1)), 1)
    return np.asarray((jobs.devices.astype(np.int64) + widest - 1) // widest)


def checkpoints_for(asked: CheckpointsAsked, jobs: Jobs, cluster: Cluster, rate_per_ms: float) -> Checkpoints:
    """Return the checkpoints of each job.

    Parameters
    ----------
    rate_per_ms : float
        Outages per node and millisecond; a job on n nodes fails n times as often if nodes fail independently.
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
