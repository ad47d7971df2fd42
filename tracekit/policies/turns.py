"""Turns: GPUs handed out for a time, by slices of one clock or by leases that each job has of its own.

A policy ranks the jobs that may have GPUs next. This module derives from the rank which jobs get them in which pool,
and the plan that names only the jobs that change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.pools import Pools, make_pools
from tracekit.replay.assumptions.speeds import type_speed_table
from tracekit.replay.mechanisms import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View

__all__ = ["Leases", "Turns", "next_slice"]


def next_slice(now_ms: int, slice_ms: int) -> int:
    """Return the first multiple of a slice after a time [ms]."""
    return (now_ms // slice_ms + 1) * slice_ms


class Leases:
    """Until when each job may keep its GPUs, in one run."""

    def __init__(self, jobs: int) -> None:
        self.until_ms: NDArray[np.int64] = np.zeros(jobs, np.int64)
        """End of each job's lease; a past time if it has none [ms] (n,)."""

    def grant(self, job: NDArray[np.int64], until_ms: int) -> None:
        """Give jobs a lease to a time."""
        self.until_ms[job] = until_ms

    def over(self, job: NDArray[np.int64], now_ms: int) -> NDArray[np.bool_]:
        """Return whether jobs have no lease, or one that ends now (k,)."""
        found: NDArray[np.bool_] = self.until_ms[job] <= now_ms
        return found

    def next_end(self, job: NDArray[np.int64], now_ms: int) -> int:
        """Return when the next lease of these jobs ends; -1 none [ms]."""
        ends = self.until_ms[job]
        ends = ends[ends > now_ms]
        return int(ends.min()) if len(ends) else -1


class Turns:
    """Pools of GPUs, and which jobs get which by rank.

    Parameters
    ----------
    jobs, cluster, models
        The parameters as a policy gets them.
    any_model : bool
        Whether jobs also run on GPU models that they do not ask for, if the speed there is known (D6).
    """

    def __init__(self, jobs: Jobs, cluster: Cluster, models: Models, *, any_model: bool = False) -> None:
        self.gpus: NDArray[np.int64] = jobs.devices.astype(np.int64)
        self.pools: Pools = make_pools(jobs, cluster, "place")
        asked = jobs.model[self.pools.kind_first] if len(jobs) else np.zeros(0, np.int64)
        table = type_speed_table(models, jobs.models, cluster.models)
        may = self.pools.accepts
        if any_model:
            same = self.pools.kind_domain[:, None] == self.pools.domain
            may = same & (may | _known(models, jobs.models, cluster.models)[asked][:, self.pools.model])
        self.speed: NDArray[np.int64] = np.where(may, table[asked][:, self.pools.model], 0).astype(np.int64)
        """Speed of each kind of demand in each pool [ppm]; 0 if it does not run there (K, P)."""
        faster = np.argsort(-self.speed, axis=1, kind="stable")
        self.rank: NDArray[np.int64] = np.argsort(faster, axis=1, kind="stable").astype(np.int64)
        """Place of each pool in the order of a kind's speed (K, P)."""

    def running(self, view: View) -> NDArray[np.int64]:
        """Return the pool in which each job of a view runs; -1 it waits (k,)."""
        return np.where(view.held > 0, self.pools.group_pool[view.group], -1)

    def capacity(self, view: View, running: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the GPUs of each pool, including those of nodes that left while jobs still have them (P,)."""
        return np.maximum(self.pools.gpus(view), self.pools.used(running, view.held))

    def choose(
        self,
        job: NDArray[np.int64],
        order: NDArray[np.int64],
        running: NDArray[np.int64],
        free: NDArray[np.int64],
        only: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int64]:
        """Return the pool that each job gets, in an order, skipping jobs for which no pool has room; -1 none (k,).

        A job stays in its pool if it can, otherwise it gets the fastest pool with room. `free` is what is left
        afterwards.

        Parameters
        ----------
        job : array (k,)
            Jobs.
        order : array
            Places in `job`: the jobs to consider, first to last.
        running : array (k,)
            Current pool of each, -1 none.
        free : array (P,)
            GPUs of each pool that may be handed out.
        only : array (k,), optional
            The one pool that each may have; -1 any.
        """
        from tracekit.replay.kernel import choose_types

        pools = len(free)
        kind = self.pools.kind[job[order]]
        may = self.speed[kind] > 0
        if only is not None:
            wanted = only[order][:, None]
            may &= (wanted < 0) | (wanted == np.arange(pools))
        row, pool = np.nonzero(may)
        place = order[row]
        code = row * (pools + 1) + np.where(running[place] == pool, 0, self.rank[kind[row], pool] + 1)
        by = np.argsort(code, kind="stable")
        chosen = np.full(len(job), -1, np.int64)
        place, pool = np.ascontiguousarray(place), np.ascontiguousarray(pool)
        alone = np.full(len(place), -1, np.int64)
        choose_types(by, self.gpus[job], place, alone, pool, free, chosen, np.full(len(job), -1, np.int64))
        return chosen

    def plan(
        self,
        job: NDArray[np.int64],
        running: NDArray[np.int64],
        chosen: NDArray[np.int64],
        wake_ms: int = -1,
    ) -> Plan:
        """Return the plan that moves jobs from their pools to the chosen ones, larger gangs first."""
        moved = np.flatnonzero(chosen != running)
        gpus = np.where(chosen[moved] >= 0, self.gpus[job[moved]], 0)
        by = np.argsort(-gpus, kind="stable")
        moved, gpus = moved[by], gpus[by]
        pool = np.maximum(chosen[moved], 0)
        return Plan(
            job[moved],
            gpus,
            rate=np.maximum(self.speed[self.pools.kind[job[moved]], pool], 1),
            model=np.where(gpus > 0, self.pools.model[pool], -1),
            keep=True,
            optional=len(moved),
            wake_ms=wake_ms,
        )


def _known(models: Models, job_models: list[str], there: list[str]) -> NDArray[np.bool_]:
    """Return whether a ratio of speeds is known for jobs that ask for a model on another; the last row is True."""
    ratio = models.type_speed.ratio
    rows = [[b in ratio.get(a, {}) or a in ratio.get(b, {}) for b in there] for a in job_models]
    return np.array([*rows, [True] * len(there)], np.bool_).reshape(len(job_models) + 1, len(there))
