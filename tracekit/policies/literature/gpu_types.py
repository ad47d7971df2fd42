"""Policies for several GPU types: jobs buy GPUs at prices (Hadar) or are matched to queue positions (AlloX)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.policies.interface import Card, Parameter
from tracekit.policies.literature.turns import Turns
from tracekit.policies.parameters import OVERHEAD
from tracekit.policies.plans import Planned
from tracekit.policies.pools import NOTHING, pool_fits
from tracekit.replay.assumptions.speeds import PPM

if TYPE_CHECKING:
    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.replay.mechanisms import Plan, View


_LEAST = 1e-3
"""Need of a job with no work left [GPU*ms]."""


class _Market(Turns):
    """Plans based on prices and purchases in each round."""

    any_model = True

    def set_up(self) -> None:
        """Exclude types on which gangs do not fit."""
        super().set_up()
        p, jobs = self.p, self.jobs
        self.utility, self.refused, self.candidates = p["utility"], p["refused"], p["candidates"]
        self.preempt, self.margin = p["preempt"], p["margin"]
        self.round_ms = round(p["round"] * 1000)
        self.settings.update(round_ms=self.round_ms, scope=0)
        self.submit_ms, self.work_ms = jobs.submit_ms, jobs.work_ms
        self.speed = np.where(pool_fits(self.pools, jobs, self.cluster), self.speed, 0)

    def begin(self, view: View) -> None:
        self.seen: Ints = np.zeros(0, np.int64)
        """Jobs of the last plan."""
        self.there: Ints = np.zeros(0, np.int64)
        """GPUs of the pools at the last plan."""

    def plan(self, view: View) -> Plan:
        """Return the plan until the next event."""
        job, running = view.job, self.pools.held(view)
        there = self.pools.gpus(view)
        # If nothing has changed since the last call, the planned jobs did not fit, so other jobs may take the GPUs.
        news = not (np.array_equal(job, self.seen) and np.array_equal(there, self.there))
        self.seen, self.there = job, there
        offers = self.preempt and news
        kept = np.zeros(len(job), np.bool_) if offers else running >= 0
        # Jobs keep the GPUs of nodes that left.
        size = self.pools.capacity(view, running)
        free = size - self.pools.used(running[kept], view.held[kept])
        rows = self._looked_at(view, running, kept, free)
        if not len(rows) or (len(self.pools.model) == 1 and not (running[rows] < 0).any()):
            return NOTHING
        need, worth = self._worth(view, running, rows)
        chosen, order = self._bought(job[rows], worth, need, size, free, running[rows])
        return self._named(job[rows], running[rows], worth, chosen, order, view.now_ms if offers else -1)

    def _looked_at(self, view: View, running: Ints, kept: Bools, free: Ints) -> Ints:
        """Return the indices of the jobs that are offered GPUs, with only the best waiting jobs of each domain."""
        job = view.job
        kind = self.pools.kind[job]
        fits = ((self.gpus[job, None] <= free) & (self.speed[kind] > 0)).any(axis=1)
        waiting = np.flatnonzero((running < 0) & fits)
        if len(waiting) > self.candidates:
            worth = self._worth(view, running, waiting)[1].max(axis=1)
            waiting = waiting[self.pools.best(worth, kind[waiting], self.candidates)]
        return np.sort(np.concatenate([np.flatnonzero((running >= 0) & ~kept), waiting]))

    def _worth(self, view: View, running: Ints, rows: Ints) -> tuple[Floats, Floats]:
        """Return the GPU time that each job needs in each pool [GPU*ms], and its utility there per GPU*ms (m, P)."""
        job = view.job[rows]
        speed = self.speed[self.pools.kind[job]]
        left = view.remaining_ms[rows, None] / np.maximum(speed / 1e6, 1e-9) + view.overhead_ms[rows, None]
        moves = (running[rows, None] >= 0) & (running[rows, None] != np.arange(speed.shape[1]))
        left = left + np.where(moves, self.overhead_ms[self.gpus[job], None], 0)
        need = np.maximum(self.gpus[job, None] * left, _LEAST)
        utility = np.ones(left.shape)
        if self.utility != "jobs":
            utility = utility * np.maximum(self.gpus[job] * self.work_ms[job], _LEAST)[:, None]
        if self.utility == "throughput":
            utility = utility / np.maximum((view.now_ms - self.submit_ms[job])[:, None] + left, _LEAST)
        return need, np.where(speed > 0, utility / need, 0.0)

    def _bought(
        self, job: Ints, worth: Floats, need: Floats, size: Ints, free: Ints, running: Ints
    ) -> tuple[Ints, Ints]:
        """Return the pool of each job that is offered GPUs, or -1 for none, and the order of the offers."""
        from tracekit.replay.kernel import buy_bundles

        order = np.lexsort((job, running < 0, -worth.max(axis=1, initial=0.0)))
        able = worth > 0
        high = worth.max(axis=0, initial=0.0)
        # If no job may use a pool, its price is never read.
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

    def _named(self, job: Ints, before: Ints, worth: Floats, chosen: Ints, order: Ints, offered_ms: int) -> Plan:
        """Return the plan: jobs that stop, start or move, and jobs that replace jobs that do not fit."""
        stops = order[(before[order] >= 0) & (chosen[order] < 0)]
        goes = order[(chosen[order] >= 0) & (chosen[order] != before[order])]
        late = order[(chosen[order] < 0) & (before[order] < 0)] if self.refused == "run" else order[:0]
        line = np.concatenate([stops, goes, late])
        if not len(line):
            return NOTHING
        pool = np.where(chosen[line] >= 0, chosen[line], worth[line].argmax(axis=1))
        named = job[line]
        gpus = np.where(np.arange(len(line)) < len(stops), 0, self.gpus[named])
        wake = offered_ms + max(self.round_ms, 1) if offered_ms >= 0 else -1
        return self.pools.plan(named, gpus, pool, self.speed[self.pools.kind[named], pool], wake)


class HadarLike(Planned):
    """Jobs buy GPUs of the type that is worth most to them, at prices that rise with use (after Hadar).

    In each round after an arrival or end, all jobs are offered GPUs, the job with the greatest utility per GPU time
    first. Each type has a price per GPU and time. While none of its GPUs are in use, the price is the least utility
    that any considered job has on any type. When all of them are in use, it is the greatest utility on this type. In
    between, it rises exponentially with the share in use. A job may buy the GPUs for its gang on a type with enough
    free GPUs if its utility there is at least the cost until its end at the current price. It takes the type with the
    largest surplus. If every type is too expensive, the job waits. With refused=run, it gets GPUs that would otherwise
    be idle, of the type worth most to it. Jobs that end up without GPUs are stopped, and jobs move if another type has
    become better for them by `margin`. With preempt=off, running jobs keep their GPUs. If purchased GPUs do not fit on
    nodes, other jobs get them in the next round, without stopping any job. A gang's GPUs are of one type, on the fewest
    nodes.

    Equal to
    --------
    - With one type, preempt=off and round=0, the policy equals ssf,scan=skip. With utility=work, it equals
      fifo,scan=skip.
    - With one type, one-GPU jobs and round=0, the policy equals srtf.

    Sources
    -------
    - Sultana et al., Hadar (IPDPS'24; arXiv 2503.10918), abstracts: GPU types are distinguished, a primal-dual
      framework with a dual subroutine, decisions in space and time; prices that rise exponentially with use come from
      online primal-dual algorithms.
    - Our choices: one type per gang, because the engine gives a gang GPUs of one model, while the paper mixes types
      inside a job; the utilities and the bounds of the prices; jobs are offered GPUs one after another instead of by
      the dual subroutine; refused=run; remaining run times are known; a job also runs on types that it did not request
      if its speed there is known; the length of a round, as in Gavel.
    """

    plans = _Market
    card = Card(
        name="hadar-like",
        parameters=(
            Parameter("round", 360.0, "length of a round, or 0 for every event [s]"),
            Parameter(
                "utility",
                "jobs",
                "value of a finished job: equal for all jobs, its GPU time, or its GPU time divided by the time from "
                "submission to end",
                ("jobs", "work", "throughput"),
            ),
            Parameter(
                "refused",
                "run",
                "whether a job that finds every type too expensive waits, or gets idle GPUs",
                ("wait", "run"),
            ),
            Parameter("preempt", True, "whether running jobs are also offered GPUs, and may be stopped or moved"),
            Parameter(
                "margin", 0.1, "share of its utility that a running job must gain by moving to another type", maximum=1
            ),
            Parameter(
                "candidates",
                500,
                "number of waiting jobs that a round considers in each part of a divided cluster, the greatest utility "
                "first",
                minimum=1,
                maximum=100_000,
            ),
            OVERHEAD,
        ),
        assumptions=("D1", "D6", "M9"),
    )


_SPARE = 4
"""Extra queue positions per machine beyond those that all jobs need."""


def match_queues(time_ms: Floats, ready_ms: list[Floats]) -> Ints:
    """Return the next job of each machine that minimizes the sum of completion times.

    The k-th job from the end of a machine's queue delays k jobs, including itself, by its run time, and waits until the
    machine is free. Its cost is the sum of both. Each pair of a machine and k gets at most one job.

    Parameters
    ----------
    time_ms : array (m, J)
        Run time of each job on each type, infinite if the job may not run there [ms].
    ready_ms : list of J arrays
        Time until each machine of a type is free, ascending [ms].

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
    # This cost exceeds that of any schedule, so the cheapest matchings avoid it.
    able = np.isfinite(cost)
    never = (float(cost[able].max(initial=1.0)) + 1.0) * (m + 1)
    job, column = linear_sum_assignment(np.where(able, cost, never))
    real = able[job, column] & (wait[column] <= 0)
    job, column = job[real], column[real]
    # The first job of a queue is the farthest from its end.
    order = np.lexsort((-k[column], which[column], of[column]))
    job, column = job[order], column[order]
    first = np.ones(len(job), np.bool_)
    first[1:] = (of[column][1:] != of[column][:-1]) | (which[column][1:] != which[column][:-1])
    return np.column_stack([job[first], of[column[first]]])


class _Matching(Turns):
    """Plans that are made after each event."""

    any_model = True

    def set_up(self) -> None:
        """Find out whether the types differ."""
        super().set_up()
        p = self.p
        self.share, self.candidates, self.busy = p["alpha"], p["candidates"], p["machines"] == "all"
        self.settings["scope"] = 0
        highest = self.speed.max(axis=1, initial=0)
        # Types do not matter if every kind may use exactly the types that it accepts, and all types are equally fast.
        open_to = (self.speed == highest[:, None]) & self.pools.accepts
        self.alike = bool((open_to == (self.speed > 0)).all() and (highest[highest > 0] == PPM).all())

    def plan(self, view: View) -> Plan:
        """Return the jobs that start now, and their pools."""
        room = np.bincount(self.pools.group_pool[view.node_group], view.node_free, len(self.pools.model))
        free = room.astype(np.int64)
        if free.sum() <= 0:
            return NOTHING
        job, held = view.job, view.held
        waiting = np.flatnonzero(held == 0)
        # Consider only the oldest jobs, but at least as many as there are free GPUs.
        waiting = waiting[: max(int(self.share * len(waiting)), int(free.sum()))]
        who = job[waiting]
        left = view.remaining_ms[waiting].astype(np.float64)
        if self.alike:
            return self._shortest(who, left, free)
        return self._matched(view, who, left, free)

    def _shortest(self, who: Ints, left: Floats, free: Ints) -> Plan:
        """Return the shortest jobs first, which is the best matching on equal machines."""
        fits = np.flatnonzero(self.gpus[who] <= free.max(initial=0))
        order = fits[np.argsort(left[fits], kind="stable")]
        kind = self.pools.kind[who[order]]
        # Keep at most as many jobs of each kind as fit on all free GPUs.
        by_kind = np.argsort(kind, kind="stable")
        start = np.searchsorted(kind[by_kind], kind[by_kind])
        near = np.zeros(len(kind), np.bool_)
        near[by_kind] = (np.arange(len(kind)) - start) * self.gpus[who[order]][by_kind] < free.sum()
        job = who[order[near]]
        return self.pools.plan(job, self.gpus[job], np.full(len(job), -1), np.full(len(job), PPM))

    def _ready(self, view: View, free: Ints) -> list[Floats]:
        """Return the time until each GPU of each pool is free, ascending [ms]."""
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

    def _matched(self, view: View, who: Ints, left: Floats, free: Ints) -> Plan:
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
        return self.pools.plan(job, self.gpus[job], at, self.speed[self.pools.kind[job], at])


class Allox(Planned):
    """Jobs are matched to queue positions on machines of several types, for the lowest mean completion time.

    After each event, the waiting jobs are matched to positions in the machines' queues so that the sum of completion
    times is minimal. A position costs k times the job's run time on that type, with k counted from the end of the
    queue, plus the time until the machine is free. The first job in a free machine's queue starts, and the others are
    matched again at the next event. Running jobs are neither stopped nor moved. A gang's machine is a set of GPUs of
    one type, as many as it needs. Each gang size is matched separately, and the chosen jobs start in order of run time
    while there is room. Gangs are not spread over more nodes than needed.

    Equal to
    --------
    - If all types are equally fast, the policy equals sjf,scan=skip.
    - With one GPU and alpha=0, the policy equals fifo.

    Sources
    -------
    - Le et al., AlloX (EuroSys'20): costs and matching. `alpha` and machines=free are as in Gavel's version.
    - Gavel's simulator documents mean completion times of 59,492, 64,495 and 54,834 s for three seeds of its generator.
      On the same jobs, this policy gives 0.9 to 1.1 % less, which is 520 to 590 s. Unlike that simulator, it has no 360
      s rounds. We cannot explain the rest of the difference.
    - Our choices: gangs, which are not in the paper; busy machines become free according to remaining run times; the
      limit on the jobs and machines that a matching considers, and at least five positions in each machine's queue; no
      matching between types on which all jobs are equally fast, because shortest first is optimal there.
    """

    plans = _Matching
    card = Card(
        name="allox",
        parameters=(
            Parameter(
                "alpha",
                1.0,
                "share of the waiting jobs to consider, the oldest first, but at least as many jobs as there are free "
                "GPUs",
                minimum=0.0,
                maximum=1.0,
            ),
            Parameter(
                "machines",
                "all",
                "whether jobs are matched to all machines, including busy machines once they become free, or to free "
                "machines only",
                ("all", "free"),
            ),
            Parameter(
                "candidates",
                32,
                "number of jobs of each size (the shortest) and machines of each type (those free soonest) in a "
                "matching",
                minimum=1,
                maximum=1000,
            ),
        ),
        assumptions=("D1", "D6", "M4"),
    )
