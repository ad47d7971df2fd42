"""AlloX: jobs and places in the queues of machines of several types, matched for the least mean completion time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.pools import Pools, make_pools, pool_speeds
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Allox", "match_queues"]

_SPARE = 4
"""Places in a machine's queue in addition to those that all jobs need."""


def match_queues(time_ms: NDArray[np.float64], ready_ms: list[NDArray[np.float64]]) -> NDArray[np.int64]:
    """Return which job goes next on each machine, for the smallest sum of completion times.

    The job that is k-th from the end of a machine's queue delays k jobs by its run time, itself included, and waits for
    the machine to be ready: its cost. Each machine and k is matched with at most one job.

    Parameters
    ----------
    time_ms : array (m, J)
        Run time of each job on each type [ms]; infinite if it may not run there.
    ready_ms : list of J arrays
        When each machine of a type is free, ascending [ms from now].

    Returns
    -------
    array (s, 2)
        Rows (job, type) of the jobs that start now, on free machines.
    """
    from scipy.optimize import linear_sum_assignment

    m = len(time_ms)
    if m == 1:
        ends = np.array([line[0] if len(line) else np.inf for line in ready_ms]) + time_ms[0]
        best = int(ends.argmin())
        begins = np.isfinite(ends[best]) and ready_ms[best][0] <= 0
        return np.array([[0, best]] if begins else np.zeros((0, 2)), np.int64)
    kind, machine, place, ready = [], [], [], []
    for j, times in enumerate(ready_ms):
        size = min(len(times), m)
        if not size:
            continue
        depth = min(m, -(-m // size) + _SPARE)
        kind.append(np.full(size * depth, j))
        machine.append(np.repeat(np.arange(size), depth))
        place.append(np.tile(np.arange(1, depth + 1), size))
        ready.append(np.repeat(times[:size], depth))
    if not kind:
        return np.zeros((0, 2), np.int64)
    of, which, k, wait = (np.concatenate(c) for c in (kind, machine, place, ready))
    cost = k * time_ms[:, of] + wait
    # A cost that no schedule reaches, so matchings with the fewest such costs are cheapest.
    able = np.isfinite(cost)
    never = (float(cost[able].max(initial=1.0)) + 1.0) * (m + 1)
    job, column = linear_sum_assignment(np.where(able, cost, never))
    real = able[job, column] & (wait[column] <= 0)
    job, column = job[real], column[real]
    # The first of a queue is the one that is farthest from its end.
    order = np.lexsort((-k[column], which[column], of[column]))
    job, column = job[order], column[order]
    first = np.ones(len(job), np.bool_)
    first[1:] = (of[column][1:] != of[column][:-1]) | (which[column][1:] != which[column][:-1])
    return np.column_stack([job[first], of[column[first]]])


class _Matching:
    """Plans after events."""

    def __init__(
        self, jobs: Jobs, cluster: Cluster, models: Models, share: float, candidates: int, *, busy: bool
    ) -> None:
        self.share, self.candidates, self.busy = share, candidates, busy
        self.gpus = jobs.devices.astype(np.int64)
        self.pools: Pools = make_pools(jobs, cluster, "place")
        self.speed = pool_speeds(self.pools, jobs, cluster, models)
        highest = self.speed.max(axis=1, initial=0)
        # If all types that a kind of job may use are equally fast, and are those that it accepts, times do not matter.
        open_to = (self.speed == highest[:, None]) & self.pools.accepts
        self.alike = bool((open_to == (self.speed > 0)).all() and (highest[highest > 0] == 1_000_000).all())

    def plan(self, view: View) -> Plan:
        """Return which jobs start now, and where."""
        room = np.bincount(self.pools.group_pool[view.node_group], view.node_free, len(self.pools.model))
        free = room.astype(np.int64)
        if free.sum() <= 0:
            return self._named(np.zeros(0, np.int64), None, None)
        job, held = view.job, view.held
        waiting = np.flatnonzero(held == 0)
        # Only the oldest, but at least as many jobs as there are GPUs.
        waiting = waiting[: max(int(self.share * len(waiting)), int(free.sum()))]
        who = job[waiting]
        left = view.remaining_ms[waiting].astype(np.float64)
        if self.alike:
            return self._shortest(who, left, free)
        return self._matched(view, who, left, free)

    def _named(self, job: NDArray[np.int64], model: NDArray[np.int64] | None, rate: NDArray[np.int64] | None) -> Plan:
        return Plan(job, self.gpus[job], rate=rate, model=model, keep=True, optional=len(job))

    def _shortest(self, who: NDArray[np.int64], left: NDArray[np.float64], free: NDArray[np.int64]) -> Plan:
        """Return the shortest first: on equal machines this is the best matching."""
        fits = np.flatnonzero(self.gpus[who] <= free.max(initial=0))
        order = fits[np.argsort(left[fits], kind="stable")]
        kind = self.pools.kind[who[order]]
        # Of each kind at most as many jobs as there are GPUs in total.
        by_kind = np.argsort(kind, kind="stable")
        start = np.searchsorted(kind[by_kind], kind[by_kind])
        near = np.zeros(len(kind), np.bool_)
        near[by_kind] = (np.arange(len(kind)) - start) * self.gpus[who[order]][by_kind] < free.sum()
        return self._named(who[order[near]], None, None)

    def _ready(self, view: View, free: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Return when each GPU of each pool is free, ascending [ms from now]."""
        if not self.busy:
            return [np.zeros(count) for count in free.tolist()]
        held = view.held
        runs = np.flatnonzero(held > 0)
        ends = view.remaining_ms[runs] / view.rate[runs] * 1e6 + view.overhead_ms[runs]
        runs, ends = runs[np.argsort(ends)], np.sort(ends)
        pool = self.pools.group_pool[view.group[runs]]
        lines = []
        for p, count in enumerate(free.tolist()):
            there = pool == p
            lines.append(np.concatenate([np.zeros(count), np.repeat(ends[there], held[runs[there]])]))
        return lines

    def _matched(self, view: View, who: NDArray[np.int64], left: NDArray[np.float64], free: NDArray[np.int64]) -> Plan:
        ready = self._ready(view, free)
        begins: list[tuple[float, int, int]] = []
        kind = self.pools.kind[who]
        domain, sizes = self.pools.kind_domain[kind], self.gpus[who]
        most = np.zeros(int(self.pools.domain.max(initial=0)) + 1, np.int64)
        np.maximum.at(most, self.pools.domain, free)
        code = domain * (int(self.gpus.max(initial=0)) + 1) + sizes
        code[(domain < 0) | (sizes > most[domain])] = -1
        for c in np.unique(code[code >= 0]).tolist():
            own = np.flatnonzero(code == c)
            g = int(sizes[own[0]])
            low, high = np.searchsorted(self.pools.domain, [domain[own[0]], domain[own[0]] + 1]).tolist()
            speed = self.speed[kind[own], low:high] / 1e6
            time = np.divide(left[own, None], speed, out=np.full(speed.shape, np.inf), where=speed > 0)
            if len(own) > self.candidates:
                time_least = time.min(axis=1)
                near = np.argpartition(time_least, self.candidates)[: self.candidates]
                near = near[np.lexsort((near, time_least[near]))]
                own, time = own[near], time[near]
            found = match_queues(time, [ready[p][g - 1 :: g][: self.candidates] for p in range(low, high)])
            begins += [(float(time[i, j]), int(who[own[i]]), low + j) for i, j in found.tolist()]
        begins.sort()
        chosen = []
        for _, first, p in begins:
            if self.gpus[first] <= free[p]:
                free[p] -= self.gpus[first]
                chosen.append((first, p))
        job, at = np.array(chosen, np.int64).reshape(-1, 2).T
        return self._named(job, self.pools.model[at], np.maximum(self.speed[self.pools.kind[job], at], 1))


class Allox(Policy):
    """Min-cost matching of jobs with places in queues."""

    card: ClassVar[Card] = Card(
        name="allox",
        title="jobs matched to queue positions on machines of several types, for the lowest mean completion time",
        rule=(
            "After each event the waiting jobs are matched to positions in the queues of the machines, to "
            "minimize the sum of completion times. Position k from the end of a queue costs k times the job's run "
            "time on that type, plus the time until the machine is free. The first job in the queue of a free "
            "machine starts; the others are matched again at the next event. Running jobs are neither stopped nor "
            "moved. For gangs, a machine is as many GPUs of one type as the gang has. Each size is matched "
            "separately, and the chosen jobs start in the order of their run times while there is room. Gangs are "
            "not spread over more nodes than needed."
        ),
        parameters=(
            Parameter(
                "alpha",
                1.0,
                "share of the waiting jobs to consider, the oldest first, but at least as many jobs as GPUs are free",
                minimum=0.0,
                maximum=1.0,
            ),
            Parameter(
                "machines",
                "all",
                "match with all machines, including busy ones from the time they become free, or with free "
                "machines only",
                ("all", "free"),
            ),
            Parameter(
                "candidates",
                32,
                "how many jobs of each size (the shortest) and machines of each type (the soonest free) a "
                "matching considers",
                minimum=1,
                maximum=1000,
            ),
        ),
        assumptions=("D1", "D6", "M4"),
        equal_to=(
            "If all types are equally fast: sjf,scan=skip.",
            "With one GPU and alpha=0: fifo.",
        ),
        sources=(
            "Le et al., AlloX (EuroSys'20): costs and matching; alpha and machines=free as in Gavel's version.",
            (
                "Gavel's simulator documents mean completion times of 59,492, 64,495 and 54,834 s for three seeds "
                "of its generator. On the same jobs this policy gives 0.9 to 1.1 % less, which is 520 to 590 s; "
                "unlike that simulator it has no rounds of 360 s. We do not know what else explains the "
                "difference."
            ),
            (
                "Own choices: gangs, which the paper does not have; when busy machines become free, from the "
                "remaining run times; the limit on what a matching considers, and at least five positions in each "
                "machine's queue; no matching between types on which all jobs are equally fast, because shortest "
                "first is optimal there."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans after events."""
        p = self.parameters
        matching = _Matching(jobs, cluster, models, p["alpha"], p["candidates"], busy=p["machines"] == "all")
        return Planner(matching.plan, any_model=True, scope=0)
