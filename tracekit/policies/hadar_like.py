"""Hadar, as far as its rule is known: jobs buy GPUs of one type at prices that rise with use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.policies.pools import Pools, make_pools, pool_fits, pool_speeds
from tracekit.replay.mechanisms import Plan, Planner, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["HadarLike"]

_LEAST = 1e-3
"""Need of a job that has nothing left [GPU*ms]."""


class _Market:
    """Prices and bundles, round by round."""

    def __init__(self, policy: HadarLike, jobs: Jobs, cluster: Cluster, models: Models) -> None:
        p = policy.parameters
        self.utility, self.refused, self.candidates = p["utility"], p["refused"], p["candidates"]
        self.preempt, self.margin = p["preempt"], p["margin"]
        self.round_ms = round(p["round"] * 1000)
        self.cost_ms = overheads(models, p["overhead"], jobs)
        self.gpus, self.submit_ms, self.work_ms = jobs.devices.astype(np.int64), jobs.submit_ms, jobs.work_ms
        self.pools: Pools = make_pools(jobs, cluster, "place")
        speed = pool_speeds(self.pools, jobs, cluster, models)
        self.speed = np.where(pool_fits(self.pools, jobs, cluster), speed, 0)
        """Speed of each kind in each pool; 0 if it may not run there [ppm] (K, P)."""
        self.view: View | None = None
        self.seen: NDArray[np.int64] = np.zeros(0, np.int64)
        """Jobs of the last plan."""
        self.there: NDArray[np.int64] = np.zeros(0, np.int64)
        """GPUs of the pools then."""

    def plan(self, view: View) -> Plan:
        """Return which jobs run until the next event, and where."""
        if self.view is not view:
            self.view, self.seen = view, np.zeros(0, np.int64)
        job, running = view.job, self.pools.held(view)
        there = self.pools.gpus(view)
        # Nothing has changed since the last call: the planned jobs found no place, and others may have the GPUs.
        news = not (np.array_equal(job, self.seen) and np.array_equal(there, self.there))
        self.seen, self.there = job, there
        offers = self.preempt and news
        kept = np.zeros(len(job), np.bool_) if offers else running >= 0
        # GPUs that nodes took with them are still their jobs'.
        size = np.maximum(there, self.pools.used(running, view.held))
        free = size - self.pools.used(running[kept], view.held[kept])
        rows = self._looked_at(view, running, kept, free)
        if not len(rows) or (len(self.pools.model) == 1 and not (running[rows] < 0).any()):
            return _nothing()
        need, worth = self._worth(view, running, rows)
        chosen, order = self._bought(job[rows], worth, need, size, free, running[rows])
        return self._named(job[rows], running[rows], worth, chosen, order, view.now_ms if offers else -1)

    def _looked_at(
        self, view: View, running: NDArray[np.int64], kept: NDArray[np.bool_], free: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the places of the jobs that are offered GPUs: of waiting jobs the best of each domain."""
        job = view.job
        kind = self.pools.kind[job]
        fits = ((self.gpus[job, None] <= free) & (self.speed[kind] > 0)).any(axis=1)
        waiting = np.flatnonzero((running < 0) & fits)
        if len(waiting) > self.candidates:
            worth = self._worth(view, running, waiting)[1].max(axis=1)
            waiting = waiting[self.pools.best(worth, kind[waiting], self.candidates)]
        return np.sort(np.concatenate([np.flatnonzero((running >= 0) & ~kept), waiting]))

    def _worth(
        self, view: View, running: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the need of jobs in each pool [GPU*ms], and their utility there per GPU*ms (m, P)."""
        job = view.job[rows]
        speed = self.speed[self.pools.kind[job]]
        left = view.remaining_ms[rows, None] / np.maximum(speed / 1e6, 1e-9) + view.overhead_ms[rows, None]
        moves = (running[rows, None] >= 0) & (running[rows, None] != np.arange(speed.shape[1]))
        left = left + np.where(moves, self.cost_ms[self.gpus[job], None], 0)
        need = np.maximum(self.gpus[job, None] * left, _LEAST)
        utility = np.ones(left.shape)
        if self.utility != "jobs":
            utility = utility * np.maximum(self.gpus[job] * self.work_ms[job], _LEAST)[:, None]
        if self.utility == "throughput":
            utility = utility / np.maximum((view.now_ms - self.submit_ms[job])[:, None] + left, _LEAST)
        return need, np.where(speed > 0, utility / need, 0.0)

    def _bought(
        self,
        job: NDArray[np.int64],
        worth: NDArray[np.float64],
        need: NDArray[np.float64],
        size: NDArray[np.int64],
        free: NDArray[np.int64],
        running: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the pool of each job that is offered GPUs, -1 none, and the order in which they were offered."""
        from tracekit.replay.kernel import buy_bundles

        order = np.lexsort((job, running < 0, -worth.max(axis=1, initial=0.0)))
        able = worth > 0
        high = worth.max(axis=0, initial=0.0)
        # A price that no job may use is never read.
        high[high <= 0] = 1.0
        first, part = np.unique(self.pools.domain, return_index=True, return_inverse=True)[1:]
        low = np.minimum.reduceat(np.min(worth, axis=0, initial=np.inf, where=able), first)[part]
        low = np.minimum(low, high)
        chosen = np.full(len(job), -1)
        gpus = self.gpus[job]
        for priced in (True, False) if self.refused == "run" else (True,):
            buy_bundles(
                order, gpus, worth, need, low, np.log(high / low), size, free, running, self.margin, priced, chosen
            )
        return chosen, order

    def _named(
        self,
        job: NDArray[np.int64],
        before: NDArray[np.int64],
        worth: NDArray[np.float64],
        chosen: NDArray[np.int64],
        order: NDArray[np.int64],
        offered_ms: int,
    ) -> Plan:
        """Return the plan: which jobs stop, start or move, and which get the GPUs of jobs that find no place."""
        stops = order[(before[order] >= 0) & (chosen[order] < 0)]
        goes = order[(chosen[order] >= 0) & (chosen[order] != before[order])]
        late = order[(chosen[order] < 0) & (before[order] < 0)] if self.refused == "run" else order[:0]
        line = np.concatenate([stops, goes, late])
        if not len(line):
            return _nothing()
        pool = np.where(chosen[line] >= 0, chosen[line], worth[line].argmax(axis=1))
        named = job[line]
        gpus = np.where(np.arange(len(line)) < len(stops), 0, self.gpus[named])
        rate = np.maximum(self.speed[self.pools.kind[named], pool], 1)
        wake = offered_ms + max(self.round_ms, 1) if offered_ms >= 0 else -1
        model = self.pools.model[pool]
        return Plan(named, gpus, rate=rate, model=model, keep=True, optional=len(named), wake_ms=wake)


def _nothing() -> Plan:
    return Plan(np.zeros(0, np.int64), np.zeros(0, np.int64), keep=True)


class HadarLike(Policy):
    """Prices for the GPUs of each type."""

    card: ClassVar[Card] = Card(
        name="hadar-like",
        title="jobs buy GPUs of the type that is worth most to them, at prices that rise with use (after Hadar)",
        rule=(
            "In rounds, when a job has arrived or ended, all jobs are offered GPUs, the job with the greatest "
            "utility per GPU and time first. Each type has a price per GPU and time. With none of its GPUs in "
            "use, the price is the least utility that any considered job has on any type; with all in use, it is "
            "the greatest utility on this type; in between it rises exponentially with the share in use. A job "
            "may buy its gang on a type with enough free GPUs if its utility there is at least what it would pay "
            "until its end at the current price. It takes the type that leaves it the largest surplus. A job that "
            "finds every type too expensive waits or (refused=run) gets GPUs that would be idle, of the type that "
            "is worth most to it. Jobs that end up without GPUs are stopped, and jobs move if another type has "
            "become better for them by margin; with preempt=off running jobs keep what they have. GPUs that are "
            "bought by number but do not fit on nodes are filled in the next round, and no job is stopped for "
            "that. A gang's GPUs are of one type, on the fewest nodes."
        ),
        parameters=(
            Parameter("round", 360.0, "length of a round; 0: at every event [s]"),
            Parameter(
                "utility",
                "jobs",
                "the value of a job's end: the same for every job, its GPU time, or its GPU time over the time "
                "from submission to the end",
                ("jobs", "work", "throughput"),
            ),
            Parameter(
                "refused", "run", "a job that finds every type too expensive waits, or gets idle GPUs", ("wait", "run")
            ),
            Parameter("preempt", True, "running jobs are offered GPUs again, and may be stopped or moved"),
            Parameter(
                "margin", 0.1, "share of its utility that a running job must gain by moving to another type", maximum=1
            ),
            Parameter(
                "candidates",
                500,
                "waiting jobs that a round considers in each part of a divided cluster, those of greatest utility",
                minimum=1,
                maximum=100_000,
            ),
            OVERHEAD,
        ),
        assumptions=("D1", "D6", "M9"),
        equal_to=(
            "With one type, preempt=off, round=0: ssf,scan=skip; with utility=work: fifo,scan=skip.",
            "With one type, one-GPU jobs and round=0: srtf.",
        ),
        sources=(
            (
                "Sultana et al., Hadar (IPDPS'24; arXiv 2503.10918), abstracts: GPU types are distinguished, a "
                "primal-dual framework with a dual subroutine, decisions in space and time; prices that rise "
                "exponentially with use come from online primal-dual algorithms."
            ),
            (
                "Own choices: one type per gang, while the paper mixes types inside a job, because the engine "
                "gives a gang GPUs of one model; the utilities and the bounds of the prices; jobs are offered "
                "GPUs one after the other instead of the dual subroutine; refused=run; remaining run times are "
                "known; a type that a job does not name is used if its speed there is known; the length of a "
                "round, as in Gavel."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in rounds."""
        market = _Market(self, jobs, cluster, models)
        return Planner(market.plan, round_ms=market.round_ms, any_model=True, scope=0, overhead_ms=market.cost_ms)
