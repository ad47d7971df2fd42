"""Pools: the GPUs of one domain and model. Planners assign jobs to pools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.assumptions.speeds import type_speed_table
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.mechanisms import Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import View


NOTHING = Plan(np.zeros(0, np.int64), np.zeros(0, np.int64), keep=True)
"""A plan that changes nothing."""


@dataclass(frozen=True)
class Pools:
    """The pools of a cluster: P pools, G groups of nodes, K kinds of demand, n jobs."""

    group_pool: Ints
    """Pool of each group (G,)."""
    domain: Ints
    """Domain of each pool (P,)."""
    model: Ints
    """GPU model of each pool (index into `Cluster.models`), or -1 for any if gangs are not placed on nodes (P,)."""
    kind: NDArray[np.int32]
    """Kind of demand of each job (n,)."""
    kind_domain: Ints
    """Domain of each kind, or -1 for none (K,)."""
    kind_first: Ints
    """First job of each kind (K,)."""
    accepts: Bools
    """Whether a kind accepts the GPUs of a pool (K, P)."""

    def gpus(self, view: View) -> Ints:
        """Return the GPUs of each pool's nodes in service (P,)."""
        return np.bincount(self.group_pool, view.group_gpus, len(self.model)).astype(np.int64)

    def used(self, pool: Ints, held: Ints) -> Ints:
        """Return the GPUs that running jobs use in each pool, including those on nodes that left (P,)."""
        return np.bincount(pool[pool >= 0], held[pool >= 0], len(self.model)).astype(np.int64)

    def capacity(self, view: View, pool: Ints) -> Ints:
        """Return the GPUs of each pool, including those on nodes that left as long as jobs still use them (P,).

        `pool` is the pool where each job of the view runs, or -1 if the job waits (k,).
        """
        return np.maximum(self.gpus(view), self.used(pool, view.held))

    def held(self, view: View) -> Ints:
        """Return the pool where each job of a view runs, or -1 if the job waits (k,)."""
        if self.model.max(initial=-1) >= 0:
            return np.where(view.group >= 0, self.group_pool[view.group], -1)
        return np.where(view.held > 0, self.kind_domain[self.kind[view.job]], -1)

    def largest(self, free: Ints) -> Ints:
        """Return the largest number of free GPUs in a single pool that each kind accepts (K,)."""
        found: Ints = np.where(self.accepts, free, 0).max(axis=1, initial=0)
        return found

    def plan(self, job: Ints, gpus: Ints, pool: Ints, rate: Ints, wake_ms: int = -1, **more: Any) -> Plan:
        """Return the plan that changes only these jobs. A job that does not fit on the nodes waits.

        Parameters
        ----------
        job, gpus : array (m,)
            The jobs, and the GPUs of each job, or 0 to stop it.
        pool : array (m,)
            Pool of each job, or -1 for none.
        rate : array (m,)
            Speed of each job [ppm]; values below 1 count as 1.
        wake_ms : int
            Time of the next plan if no event occurs, or -1 for never [ms].
        **more
            Other columns of the plan.
        """
        model = np.where(pool >= 0, self.model[pool], -1)
        rate = np.maximum(rate, 1)
        return Plan(job, gpus, rate=rate, model=model, keep=True, optional=len(job), wake_ms=wake_ms, **more)

    def best(self, worth: Floats, kind: NDArray[np.int32], most: int) -> Ints:
        """Return the indices of the most valuable jobs, at most `most` per domain, ascending.

        Parameters
        ----------
        worth : array (k,)
            Value of each job. Ties are broken arbitrarily.
        kind : array (k,)
            Kind of demand of each job.
        most : int
            Maximum number of jobs per domain, at least 1.
        """
        if len(worth) <= most:
            return np.arange(len(worth))
        if self.domain[0] == self.domain[-1]:
            return np.sort(np.argpartition(-worth, most - 1)[:most])
        domain = self.kind_domain[kind]
        found = [np.flatnonzero(domain == d) for d in np.unique(domain).tolist()]
        found = [own if len(own) <= most else own[np.argpartition(-worth[own], most - 1)[:most]] for own in found]
        return np.sort(np.concatenate(found))


def accepted_groups(found: Assignment) -> Bools:
    """Return which groups of nodes each kind of demand accepts (K, G)."""
    domain = found.group_domain.astype(np.int64)
    bit = (np.arange(len(domain)) - np.searchsorted(domain, domain)).astype(np.uint64)
    bits = found.kind_accept[:, None] >> bit & np.uint64(1)
    accepts: Bools = (bits == 1) & (found.kind_domain[:, None] == domain)
    return accepts


def make_pools(jobs: Jobs, cluster: Cluster, fit: str) -> Pools:
    """Return the pools of a cluster. With fit 'count', all GPUs of a domain form one pool."""
    found = assign(jobs, cluster)
    kinds = len(found.kind_domain)
    first = np.zeros(kinds, np.int64)
    first[found.kind[::-1]] = np.arange(len(jobs) - 1, -1, -1)
    domain = found.group_domain.astype(np.int64)
    kind_domain = found.kind_domain.astype(np.int64)
    if fit == "count":
        pools = np.arange(found.domains)
        accepts = kind_domain[:, None] == pools
        return Pools(domain, pools, np.full(len(pools), -1), found.kind, kind_domain, first, accepts)
    models = max(len(cluster.models), 1)
    code, inverse = np.unique(domain * models + found.group_model, return_inverse=True)
    accepts = np.zeros((kinds, len(code)), np.bool_)
    np.logical_or.at(accepts.T, inverse, accepted_groups(found).T)
    return Pools(inverse.astype(np.int64), code // models, code % models, found.kind, kind_domain, first, accepts)


def pool_fits(pools: Pools, jobs: Jobs, cluster: Cluster) -> Bools:
    """Return whether gangs of each kind fit on the fewest possible nodes of each pool if all are free (K, P)."""
    found = assign(jobs, cluster)
    fits = np.zeros((len(found.kind_devices), len(pools.model)), np.bool_)
    for group, pool in enumerate(pools.group_pool.tolist()):
        fits[:, pool] |= found.fits_group(group, found.kind_devices)
    return fits


def pool_speeds(pools: Pools, jobs: Jobs, cluster: Cluster, models: Models, *, any_model: bool = True) -> Ints:
    """Return each kind's speed in each pool, or 0 if it may not run there or its speed is unknown [ppm] (K, P).

    With `any_model`, jobs also run on GPU models that they did not request if their speed there is known (D6).
    """
    table = type_speed_table(models, jobs.models, cluster.models)
    job_models = jobs.model[pools.kind_first] if len(jobs) else np.zeros(0, np.int64)
    usable = pools.accepts
    if any_model:
        known = _known_ratio(models, jobs.models, cluster.models)[job_models]
        usable = usable | ((pools.kind_domain[:, None] == pools.domain) & known[:, pools.model])
    return np.where(usable, table[job_models][:, pools.model], 0).astype(np.int64)


def _known_ratio(models: Models, job_models: list[str], models_there: list[str]) -> Bools:
    """Return whether jobs that request one model have a known speed on another. The last row is True."""
    ratio = models.type_speed.ratio
    rows = [[there in ratio.get(a, {}) or a in ratio.get(there, {}) for there in models_there] for a in job_models]
    return np.array([*rows, [True] * len(models_there)], np.bool_).reshape(len(job_models) + 1, len(models_there))


def settle_pools(before: Ints, pools: Pools, job: Ints, low: Ints, free: Ints) -> Ints:
    """Return the pool of each job: its current pool, or else the accepted pool with the most GPUs left."""
    found = before.copy()
    kind = pools.kind[job]
    several = pools.accepts.sum(axis=1) > 1
    waiting = before < 0
    simple = waiting & ~several[kind]
    found[simple] = pools.accepts[kind[simple]].argmax(axis=1)
    left = free - np.bincount(found[found >= 0], low[found >= 0], len(free))
    for place in np.flatnonzero(waiting & several[kind]).tolist():
        mine = np.where(pools.accepts[kind[place]] & (free >= low[place]), left, -np.inf)
        found[place] = int(mine.argmax())
        left[found[place]] -= low[place]
    return found
