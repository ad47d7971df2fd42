"""Plans that allocate GPUs for a limited time, in common slices or with a lease per job.

A policy ranks the jobs that may get GPUs next. The module then chooses jobs and pools by rank, and makes a plan that
lists only the jobs that change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.plans import Plans
from tracekit.policies.pools import Pools, make_pools, pool_speeds

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.replay.mechanisms import Plan


def next_slice(now_ms: int, slice_ms: int) -> int:
    """Return the first multiple of a slice after a time [ms]."""
    return (now_ms // slice_ms + 1) * slice_ms


class Turns(Plans):
    """Plans that assign the GPUs of pools to jobs by rank."""

    any_model: ClassVar[bool] = False
    """Whether jobs also run on GPU models that they did not request, if their speed there is known (D6)."""

    def set_up(self) -> None:
        """Compute the speed of each kind of demand in each pool."""
        self.settings["any_model"] = self.any_model
        self.pools: Pools = make_pools(self.jobs, self.cluster, "place")
        self.speed = pool_speeds(self.pools, self.jobs, self.cluster, self.models, any_model=self.any_model)
        """Speed of each kind of demand in each pool, or 0 if it does not run there [ppm] (K, P)."""
        faster = np.argsort(-self.speed, axis=1, kind="stable")
        self.rank: Ints = np.argsort(faster, axis=1, kind="stable").astype(np.int64)
        """Rank of each pool by a kind's speed, the fastest first (K, P)."""

    def choose(self, job: Ints, order: Ints, running: Ints, free: Ints, only: Ints | None = None) -> Ints:
        """Assign pools to jobs in order; skip jobs that fit nowhere. Return each job's pool, or -1 for none (k,).

        A job stays in its pool if possible. Otherwise, it gets the fastest pool with room. `free` is reduced by the
        GPUs taken.

        Parameters
        ----------
        job : array (k,)
            Jobs.
        order : array
            Indices into `job` of the jobs to consider, from first to last.
        running : array (k,)
            Current pool of each job, or -1 for none.
        free : array (P,)
            GPUs of each pool that may be allocated.
        only : array (k,), optional
            The only pool allowed for each job, or -1 for any pool.
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

    def moved(self, job: Ints, running: Ints, chosen: Ints, wake_ms: int = -1) -> Plan:
        """Return the plan that moves jobs from their pools to the chosen ones, larger gangs first."""
        moved = np.flatnonzero(chosen != running)
        gpus = np.where(chosen[moved] >= 0, self.gpus[job[moved]], 0)
        by = np.argsort(-gpus, kind="stable")
        moved, gpus = moved[by], gpus[by]
        pool = chosen[moved]
        return self.pools.plan(job[moved], gpus, pool, self.speed[self.pools.kind[job[moved]], pool], wake_ms)
