"""The compiled side of planners: show the state, carry out a plan.

Nothing is queued: a planner sees every job that waits or runs, and says how many GPUs each should have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.compiled import compiled, inner
from tracekit.replay.loop import free_chain, next_instant, release, start, suspend
from tracekit.replay.nodes import NONE
from tracekit.replay.placement import place_gang
from tracekit.replay.progress import change_rate, overhead_of, settle
from tracekit.replay.state import DONE, PPM, RUNNING, WAITING

__all__ = [
    "ASK",
    "GROUP_UNKNOWN",
    "NAMED_TWICE",
    "NOT_ACTIVE",
    "NO_SPEED",
    "OVER",
    "TOO_MANY",
    "apply_plan",
    "gather",
    "next_plan",
    "settle_running",
]

TOO_MANY, NOT_ACTIVE, NAMED_TWICE, GROUP_UNKNOWN, NO_SPEED = 1, 2, 3, 4, 5
"""What can be wrong with a plan."""

ASK, OVER, MORE = range(3)
"""Why a run stopped."""

_FASTEST = 1_000 * PPM
"""Greatest speed that a plan may give [ppm]."""


@compiled
def next_plan(s: Any, key: Any, round_ms: int, gap_ms: int, instants: int) -> int:
    """Run until the planner is to be asked (ASK), nothing is left to happen (OVER) or so many instants passed (MORE).

    With rounds, events between two of them only ask for a plan at the next one; with a gap, not before it has passed.
    """
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return OVER
        changed = g.touched > 0
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            s.domains[s.touched[i]].freed = 0
        g.touched = 0
        due = g.now
        if gap_ms > 0 and g.asked >= 0:
            due = max(due, g.asked + gap_ms)
        if round_ms > 0:
            due = (due + round_ms - 1) // round_ms * round_ms
        if (g.wake >= 0 and g.wake <= g.now) or (changed and due == g.now):
            g.wake = NONE
            g.asked = g.now
            return ASK
        if changed and (g.wake < 0 or g.wake > due):
            g.wake = due
    return MORE


@compiled
def settle_running(s: Any) -> None:
    """Book what the running jobs did until now; each of them, and no other job, has an entry among the events."""
    g = s.g[0]
    for i in range(g.event_size):
        settle(s.jobs[s.events[i].job], g.now)


@compiled
def gather(s: Any, view: Any) -> int:
    """Write a VIEW row for each job that waits or runs, by index; return how many."""
    g = s.g[0]
    kept = 0
    for i in range(g.active):
        j = s.active[i]
        job = s.jobs[j]
        if job.status == DONE:
            continue
        s.active[kept] = j
        settled = job.since
        if job.status == RUNNING:
            settle(job, g.now)
            settled = job.since
        row = view[kept]
        row.job = j
        row.running = job.status == RUNNING
        row.held = job.gpus if job.status == RUNNING else 0
        row.remaining_ms = (job.remaining + PPM - 1) // PPM
        row.attained = job.attained
        row.overhead_ms = job.overhead
        row.rate = job.rate if job.status == RUNNING else 0
        row.group = s.nodes[s.takes[job.take].node].group if job.status == RUNNING and job.take != NONE else NONE
        row.since_ms = job.stopped if job.status == WAITING else settled
        kept += 1
    g.active = kept
    return kept


@inner
def _check(s: Any, jobs: Any, gpus: Any, rates: Any, groups: Any, wanted: Any) -> int:
    """Mark the jobs named; return 0, or what is wrong with the plan (`g.culprit` is the place)."""
    g = s.g[0]
    for i in range(len(jobs)):
        j = jobs[i]
        g.culprit = i
        if j < 0 or j >= g.submitted or (s.jobs[j].status != WAITING and s.jobs[j].status != RUNNING):
            return NOT_ACTIVE
        if wanted[j]:
            return NAMED_TWICE
        wanted[j] = 1
        if rates[i] <= 0 or rates[i] > _FASTEST:
            return NO_SPEED
        domain = s.domains[s.demands[s.jobs[j].demand].domain]
        if groups[i] != NONE and (groups[i] < domain.group_low or groups[i] >= domain.group_high):
            return GROUP_UNKNOWN
        if gpus[i] < 0:
            return TOO_MANY
    return 0


@inner
def _count(s: Any, jobs: Any, gpus: Any, optional: Any, keep: bool, wanted: Any) -> int:
    """Compare what is asked with what there is, domain by domain; return 0 or TOO_MANY."""
    g = s.g[0]
    for d in range(len(s.domains)):
        s.domains[d].held = s.domains[d].free
    for i in range(g.event_size):
        j = s.events[i].job
        if not keep or wanted[j]:
            s.domains[s.demands[s.jobs[j].demand].domain].held += s.jobs[j].gpus
    for i in range(len(jobs)):
        domain = s.domains[s.demands[s.jobs[jobs[i]].demand].domain]
        g.culprit = i
        if gpus[i] > domain.held:
            if not optional[i]:
                return TOO_MANY
        else:
            domain.held -= np.int32(gpus[i])
    return 0


@inner
def _moves(s: Any, job: Any, gpus: int, group: int, model: int) -> bool:
    """Return whether a running job that is to have these GPUs must leave its own."""
    if job.gpus != gpus:
        return True
    if job.take == NONE:
        return False
    index = s.nodes[s.takes[job.take].node].group
    return (group >= 0 and index != group) or (model >= 0 and s.groups[index].model != model)


@inner
def _sort(values: Any, count: int) -> None:
    """Sort the first `count` numbers, ascending."""
    gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            value = values[i]
            place = i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 2


@inner
def _unnamed(s: Any, wanted: Any, stopped: Any) -> int:
    """Write the running jobs that are not named, by index; return how many."""
    g = s.g[0]
    count = 0
    for i in range(g.event_size):
        j = s.events[i].job
        if wanted[j] == 0:
            stopped[count] = j
            count += 1
    _sort(stopped, count)
    return count


@inner
def _lose(s: Any, job: Any) -> None:
    """Book a stopped job that did not start again as preempted."""
    job.evicted = 0
    free_chain(s, job)
    job.preemptions += 1
    job.overhead += overhead_of(s, job.gpus)


@inner
def _narrow(s: Any, demand: Any, group: int, model: int, any_model: bool) -> Any:
    """Return the groups that a plan leaves to a job, as bits."""
    domain = s.domains[demand.domain]
    accept = demand.accept
    if model != NONE:
        named = np.uint64(0)
        for index in range(domain.group_low, domain.group_high):
            if s.groups[index].model == model:
                named |= np.uint64(1) << np.uint64(index - domain.group_low)
        accept = named if any_model else accept & named
    if group != NONE:
        accept &= np.uint64(1) << np.uint64(group - domain.group_low)
    return accept


@compiled
def apply_plan(
    s: Any,
    key: Any,
    jobs: Any,
    gpus: Any,
    rates: Any,
    groups: Any,
    models: Any,
    optional: Any,
    keep: bool,
    any_model: bool,
    resize_ms: int,
    wanted: Any,
    stopped: Any,
) -> int:
    """Carry out a plan; return 0, or what is wrong with it (`g.culprit` is the place in the plan), nothing done.

    Parameters
    ----------
    jobs, gpus, rates, groups, models : arrays (k,)
        Jobs by domain and in the order in which they are placed, GPUs and speed [ppm] for each, and the group of nodes
        and the GPU model or NONE.
    optional : array (k,) of bool
        Which may be more than there is room for.
    keep : bool
        Whether jobs that are not named go on.
    any_model : bool
        Whether a model named may be another than the job asks for.
    resize_ms : int
        Cost of a change in the number of GPUs [ms].
    wanted : array (n,)
        Zeros; all zero again afterwards.
    stopped : array (events,)
        Room to work in.
    """
    wrong = _check(s, jobs, gpus, rates, groups, wanted)
    if not wrong:
        wrong = _count(s, jobs, gpus, optional, keep, wanted)
    if wrong:
        return wrong
    unnamed = 0 if keep else _unnamed(s, wanted, stopped)
    for i in range(len(jobs)):
        wanted[jobs[i]] = 0
    low = 0
    for d in range(len(s.domains)):
        for i in range(unnamed):
            if s.demands[s.jobs[stopped[i]].demand].domain == d:
                _stop(s, key, stopped[i])
                _lose(s, s.jobs[stopped[i]])
        high = low
        while high < len(jobs) and s.demands[s.jobs[jobs[high]].demand].domain == d:
            high += 1
        _apply_part(s, key, jobs, gpus, rates, groups, models, low, high, any_model, resize_ms)
        low = high
    return 0


@inner
def _apply_part(
    s: Any,
    key: Any,
    jobs: Any,
    gpus: Any,
    rates: Any,
    groups: Any,
    models: Any,
    low: int,
    high: int,
    any_model: bool,
    resize_ms: int,
) -> None:
    """Carry out the part of a plan that concerns one domain."""
    # Those that change size or place leave first, so that all room is there when they are placed anew.
    for i in range(low, high):
        job = s.jobs[jobs[i]]
        if job.status == RUNNING and _moves(s, job, gpus[i], groups[i], models[i]):
            _stop(s, key, jobs[i])
    for i in range(low, high):
        if gpus[i] > 0:
            _give(s, key, jobs[i], gpus[i], rates[i], groups[i], models[i], any_model, resize_ms)
    for i in range(low, high):
        # Its new size found no place: it waits, as if it had been stopped.
        if s.jobs[jobs[i]].evicted:
            _lose(s, s.jobs[jobs[i]])


@inner
def _give(
    s: Any, key: Any, j: int, gpus: int, rate: int, group: int, model: int, any_model: bool, resize_ms: int
) -> None:
    """Let a job that still runs go on at a rate, or place one that does not."""
    job = s.jobs[j]
    if job.status == RUNNING:
        change_rate(s, j, max(rate * job.pace // PPM, 1))
        return
    demand = s.demands[job.demand]
    scratch = s.demands[len(s.demands) - 1]
    scratch.accept = _narrow(s, demand, group, model, any_model)
    scratch.domain = demand.domain
    scratch.scope = s.g[0].scope
    scratch.gpus = gpus
    _start(s, key, j, scratch, rate, resize_ms)


@inner
def _stop(s: Any, key: Any, j: int) -> None:
    """Take a running job off its GPUs; `evicted` is the row of its stop in the log, plus 1."""
    job = s.jobs[j]
    settle(job, s.g[0].now)
    release(s, job, s.demands[job.demand].domain)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)


@inner
def _charge(s: Any, job: Any, cost: int) -> None:
    """Charge a job that goes on elsewhere, in the row of its stop too."""
    g = s.g[0]
    if g.log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = cost
    job.overhead += cost
    job.migrations += 1
    job.evicted = 0


@inner
def _start(s: Any, key: Any, j: int, demand: Any, rate: int, resize_ms: int) -> None:
    """Place a waiting or moving job; where there is no place it waits."""
    g = s.g[0]
    job = s.jobs[j]
    old_gpus = job.gpus
    old = job.take
    job.take = NONE
    domain = s.domains[demand.domain]
    nodes = 0
    if g.by_count:
        if domain.free >= demand.gpus:
            domain.free -= demand.gpus
            g.busy += demand.gpus
            g.free -= demand.gpus
            nodes = 1
    else:
        nodes = place_gang(s, j, demand)
    if nodes == 0:
        job.take = old
        return
    fresh = job.take
    job.take = old
    free_chain(s, job)
    job.take = fresh
    job.gpus = demand.gpus
    if job.evicted:
        _charge(s, job, resize_ms if old_gpus != job.gpus else overhead_of(s, job.gpus))
    start(s, key, j, nodes, rate)
