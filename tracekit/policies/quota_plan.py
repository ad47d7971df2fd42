"""Jobs planned by number and placed afterwards, as the simulators of Helios (SRTF) and Lucid (Tiresias) do.

At a decision all jobs are gone through in order. Each takes its GPUs off the number that its domain has, or is passed
over. Running ones passed over are stopped; planned ones that find no place wait, and nobody else has their GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tracekit.errors import UsageError
from tracekit.policies.parameters import overheads
from tracekit.policies.pools import make_pools
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tracekit.policies.interface import Value
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["AttainedOrder", "RemainingOrder", "quota_plan"]


class _Order(Protocol):
    """The order of jobs at a decision."""

    def order(self, view: View, gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return places in the view, the first in rank first."""

    def change_in_ms(self, view: View, gpus: NDArray[np.int64], runs: NDArray[np.bool_]) -> int:
        """Return after what time the order may be another without any event, with these running; -1 never [ms]."""


@dataclass(frozen=True)
class RemainingOrder:
    """Least run time left first, waiting jobs first between equals, then by submission."""

    by_gpus: bool
    """Whether what is left is taken times the GPUs."""

    def _left(self, view: View, gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        left = view.remaining_ms + view.overhead_ms
        return left * gpus if self.by_gpus else left

    def order(self, view: View, gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return places in the view, the first in rank first."""
        return np.lexsort((view.job, view.running, self._left(view, gpus)))

    def change_in_ms(self, view: View, gpus: NDArray[np.int64], runs: NDArray[np.bool_]) -> int:
        """Return when a running job may overtake a waiting one; -1 never [ms]."""
        left = self._left(view, gpus)
        waiting = np.unique(left[~runs])
        below = np.searchsorted(waiting, left[runs], side="right") - 1
        near = below >= 0
        if not near.any():
            return -1
        fall = gpus[runs][near] if self.by_gpus else np.ones(int(near.sum()), np.int64)
        missing = left[runs][near] - waiting[below[near]]
        return int(np.maximum(-(-missing // fall), 1).min())


@dataclass(frozen=True)
class AttainedOrder:
    """Queue by the GPU time had, inside a queue by submission, or running jobs first."""

    thresholds: tuple[int, ...]
    """Where the queues end [GPU*ms]."""
    stays: bool

    def order(self, view: View, gpus: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return places in the view, the first in rank first."""
        queue = np.searchsorted(np.array(self.thresholds, np.int64), view.attained_gpu_ms, side="right")
        waits = ~view.running if self.stays else np.zeros(len(queue), np.bool_)
        return np.lexsort((view.job, waits, queue))

    def change_in_ms(self, view: View, gpus: NDArray[np.int64], runs: NDArray[np.bool_]) -> int:
        """Return when a running job falls into the next queue; -1 never [ms]."""
        ends = np.array([*self.thresholds, 1 << 62], np.int64)
        had = view.attained_gpu_ms[runs]
        missing = ends[np.searchsorted(ends, had, side="right")] - had
        after = -(-missing // gpus[runs])[missing < 1 << 61]
        return int(after.min()) if len(after) else -1


def quota_plan(order: _Order, parameters: Mapping[str, Value], jobs: Jobs, cluster: Cluster, models: Models) -> Planner:
    """Return plans by number in an order.

    Raises
    ------
    UsageError
        A parameter has a value that goes only with places or counts.
    """
    for name, only in (("charge", "restart"), ("scan", "skip"), ("promote", 0.0)):
        if parameters.get(name, only) != only:
            raise UsageError(
                f"fit=quota cannot be combined with {name}={parameters[name]}", hint="use fit=place or fit=count"
            )
    gpus, pools = jobs.devices.astype(np.int64), make_pools(jobs, cluster, "place")
    every = round(float(parameters.get("interval", 0.0)) * 1000)

    def plan(view: View) -> Plan:
        job = view.job
        wants, domain = gpus[job], pools.kind_domain[pools.kind[job]]
        quota = np.bincount(pools.domain, pools.gpus(view), len(cluster.domains)).astype(np.int64).tolist()
        chosen = []
        ranked = order.order(view, wants)
        for place, asked, where in zip(ranked.tolist(), wants[ranked].tolist(), domain[ranked].tolist(), strict=True):
            if asked <= quota[where]:
                quota[where] -= asked
                chosen.append(place)
        taken = np.array(chosen, np.int64)
        runs = np.zeros(len(job), np.bool_)
        runs[taken] = True
        change = -1 if runs.all() else order.change_in_ms(view, wants, runs)
        wake = -1 if change < 0 else view.now_ms + change
        if wake >= 0 and every:
            wake = -(-wake // every) * every
        return Plan(job=job[taken], gpus=wants[taken], wake_ms=wake)

    return Planner(plan, round_ms=every, scope=0, overhead_ms=overheads(models, parameters["overhead"], jobs))
