"""Tenants and their quotas, for the policies that use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.interface import Parameter
from tracekit.replay.clusters.nodes import shares_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["NO_QUOTA", "NO_USE_COUNTS", "OF", "QUEUES", "WEIGHT", "quotas", "tenants", "weights"]

OF = Parameter("of", "vc", "the tenants that share: virtual clusters or users", ("vc", "user"))

QUEUES = Parameter(
    "queues",
    "one",
    "what a job that cannot start holds up: all later jobs, or those of its VC, user or partition",
    ("one", "vc", "user", "partition"),
)

WEIGHT = Parameter("weight", "equal", "weight of a tenant's share: equal for all, or its quota", ("equal", "quota"))


NO_QUOTA = 10**9
"""A quota that no tenant can reach [GPUs]."""

NO_USE_COUNTS = 1 << 60
"""A weight so large that use does not matter: turns go to the earlier job."""


def tenants(jobs: Jobs, of: str = "vc") -> NDArray[np.int32]:
    """Return the VC, user or partition of each job; jobs without a known one share one number, after the others."""
    if of == "partition":
        codes = np.full(len(jobs), -1, np.int32) if jobs.partition is None else jobs.partition
        names = jobs.partitions
    else:
        codes, names = (jobs.tenant, jobs.tenants) if of == "vc" else (jobs.user, jobs.users)
    return np.where(codes >= 0, codes, len(names)).astype(np.int32)


def quotas(jobs: Jobs, cluster: Cluster, models: Models) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the quotas of the VCs (Q, T), and from when they hold [ms] (Q,).

    The columns are the VCs of the jobs, then jobs without a VC, which have no quota, then VCs without jobs. The quotas
    come from the cluster. If it has none, they follow from the log (D9): a high percentile of the GPUs that each VC
    used at once, scaled to sum to the cluster's GPUs.

    Raises
    ------
    UsageError
        There are neither quotas nor recorded starts.
    """
    if not cluster.tenants:
        return _observed(jobs, cluster, models.quotas.percentile), np.zeros(1, np.int64)
    index = {name: column for column, name in enumerate(cluster.tenants)}
    idle = sorted(index.keys() - set(jobs.tenants))
    table = np.zeros((len(cluster.quota_ms), len(jobs.tenants) + 1 + len(idle)), np.int64)
    for code, name in enumerate([*jobs.tenants, None, *idle]):
        if name is not None and name in index:
            table[:, code] = cluster.quota[:, index[name]]
    return table, cluster.quota_ms.astype(np.int64)


def weights(
    jobs: Jobs, cluster: Cluster, models: Models, of: str, weight: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """Return quotas, their times, and weights for sharing without limits; None weights are the quotas.

    Raises
    ------
    UsageError
        Users have no quotas; or see `quotas`.
    """
    count = len(jobs.tenants if of == "vc" else jobs.users) + 1
    if weight == "equal":
        return np.zeros((1, count), np.int64), np.zeros(1, np.int64), np.ones(count, np.int64)
    if of == "user":
        raise UsageError("users have no quotas", hint="use weight=equal, or of=vc")
    table, times = quotas(jobs, cluster, models)
    return table, times, None


def _observed(jobs: Jobs, cluster: Cluster, percentile: float) -> NDArray[np.int64]:
    """Return one row of quotas from concurrent use."""
    if not jobs.tenants:
        return np.array([[cluster.total_gpus]], np.int64)
    ran = (jobs.recorded_start_ms >= 0) & (jobs.recorded_end_ms > jobs.recorded_start_ms)
    if not ran.any():
        raise UsageError(
            "the cluster has no quotas, and the log has no starts to derive them from",
            hint="give a cluster file with a table [vc.NAME] and quota = ... for each VC",
        )
    begin, end = int(jobs.recorded_start_ms[ran].min()), int(jobs.recorded_end_ms[ran].max())
    held = [
        _percentile(jobs, np.flatnonzero(ran & (jobs.tenant == code)), begin, end, percentile)
        for code in range(len(jobs.tenants))
    ]
    return np.append(shares_of(np.array(held, np.int64), cluster.total_gpus), 0).reshape(1, -1)


def _percentile(jobs: Jobs, own: NDArray[np.int64], begin: int, end: int, percentile: float) -> int:
    """Return a time percentile, from begin to end, of the number of GPUs that some jobs used at once."""
    times = np.concatenate([[begin], jobs.recorded_start_ms[own], jobs.recorded_end_ms[own], [end]])
    steps = np.concatenate([[0], jobs.devices[own], -jobs.devices[own], [0]]).astype(np.int64)
    order = np.argsort(times, kind="stable")
    held, spans = np.cumsum(steps[order])[:-1], np.diff(times[order])
    by_size = np.argsort(held, kind="stable")
    passed = np.cumsum(spans[by_size])
    return int(held[by_size][np.searchsorted(passed, passed[-1] * percentile / 100)])
