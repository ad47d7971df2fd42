"""Turns: GPUs handed out for a time, by slices of one clock or by leases of the jobs.

A policy ranks the jobs that may have GPUs next. This module derives from the rank which jobs get them in which pool,
and the plan that names only the jobs that change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.pools import Pools, make_pools, pool_speeds

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Plan


def next_slice(now_ms: int, slice_ms: int) -> int:
    """Return the first multiple of a slice after a time [ms]."""
    return (now_ms // slice_ms + 1) * slice_ms


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
        self.gpus: Ints = jobs.devices.astype(np.int64)
        self.pools: Pools = make_pools(jobs, cluster, "place")
        self.speed = pool_speeds(self.pools, jobs, cluster, models, any_model=any_model)
        """Speed of each kind of demand in each pool [ppm]; 0 if it does not run there (K, P)."""
        faster = np.argsort(-self.speed, axis=1, kind="stable")
        self.rank: Ints = np.argsort(faster, axis=1, kind="stable").astype(np.int64)
        """Place of each pool in the order of a kind's speed (K, P)."""

    def choose(self, job: Ints, order: Ints, running: Ints, free: Ints, only: Ints | None = None) -> Ints:
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

    def plan(self, job: Ints, running: Ints, chosen: Ints, wake_ms: int = -1) -> Plan:
        """Return the plan that moves jobs from their pools to the chosen ones, larger gangs first."""
        moved = np.flatnonzero(chosen != running)
        gpus = np.where(chosen[moved] >= 0, self.gpus[job[moved]], 0)
        by = np.argsort(-gpus, kind="stable")
        moved, gpus = moved[by], gpus[by]
        pool = chosen[moved]
        return self.pools.plan(job[moved], gpus, pool, self.speed[self.pools.kind[job[moved]], pool], wake_ms)
