"""The compiled side of planners: show the state, carry out a plan.

Nothing is queued: a planner sees every job that waits or runs, and says how many GPUs each should have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.compiled import compiled
from tracekit.replay.eventlog import RATE, tell
from tracekit.replay.loop import free_chain, next_instant, release, start, suspend
from tracekit.replay.nodes import NONE, chain_fits, take_chain
from tracekit.replay.placement import place_gang
from tracekit.replay.progress import overhead_of, schedule_event, settle
from tracekit.replay.state import DONE, PPM, RUNNING, WAITING

__all__ = ["GROUP_UNKNOWN", "NOT_ACTIVE", "NO_ROOM", "TOO_MANY", "apply_plan", "gather", "next_plan"]

TOO_MANY, NOT_ACTIVE, NO_ROOM, GROUP_UNKNOWN = 1, 2, 3, 4
"""What can be wrong with a plan."""


@compiled
def next_plan(s: Any, key: Any, round_ms: int) -> bool:
    """Run until the planner is to be asked; return False when nothing is left to happen.

    With rounds, events between two of them only ask for a plan at the next one.
    """
    g = s.g[0]
    while next_instant(s, key):
        changed = g.touched > 0
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            s.domains[s.touched[i]].freed = 0
        g.touched = 0
        if g.wake >= 0 and g.wake <= g.now:
            g.wake = NONE
            return True
        if not changed:
            continue
        if round_ms == 0:
            return True
        due = (g.now + round_ms - 1) // round_ms * round_ms
        if due == g.now:
            g.wake = NONE
            return True
        if g.wake < 0 or g.wake > due:
            g.wake = due
    return False


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


@compiled
def _wants(s: Any, jobs: Any, gpus: Any, rates: Any, wanted: Any, wanted_rate: Any) -> int:
    """Note each job's wish; return 0, or what is wrong with the plan (`g.culprit` is the place)."""
    g = s.g[0]
    for i in range(g.active):
        wanted[s.active[i]] = 0
    for i in range(len(jobs)):
        j = jobs[i]
        g.culprit = i
        if j < 0 or j >= g.submitted or gpus[i] < 0 or rates[i] <= 0:
            return NOT_ACTIVE
        status = s.jobs[j].status
        if (status != WAITING and status != RUNNING) or wanted[j] != 0:
            return NOT_ACTIVE
        wanted[j] = gpus[i]
        wanted_rate[j] = rates[i]
    for d in range(len(s.domains)):
        s.domains[d].touched = 0
    for i in range(len(jobs)):
        d = s.demands[s.jobs[jobs[i]].demand].domain
        g.culprit = i
        s.domains[d].touched += gpus[i]
        if s.domains[d].touched > s.domains[d].free + s.domains[d].held:
            return TOO_MANY
    return 0


@compiled
def apply_plan(
    s: Any, key: Any, jobs: Any, gpus: Any, rates: Any, groups: Any, wanted: Any, wanted_rate: Any, resize_ms: int
) -> int:
    """Carry out a plan; return 0, or what is wrong with it (`g.culprit` is the place in the plan), nothing done.

    Parameters
    ----------
    jobs, gpus, rates, groups : arrays (k,)
        Jobs in the order in which they are placed, GPUs and speed [ppm] for each, and the group of nodes or NONE.
    wanted, wanted_rate : arrays (n,)
        Room to work in.
    resize_ms : int
        Cost of a change in the number of GPUs, or of moving to other nodes [ms].
    """
    g = s.g[0]
    for d in range(len(s.domains)):
        s.domains[d].held = 0
    for i in range(g.active):
        job = s.jobs[s.active[i]]
        if job.status == RUNNING:
            s.domains[s.demands[job.demand].domain].held += job.gpus
    wrong = _wants(s, jobs, gpus, rates, wanted, wanted_rate)
    for d in range(len(s.domains)):
        s.domains[d].touched = 0
    if wrong:
        return wrong
    for i in range(g.active):
        j = s.active[i]
        job = s.jobs[j]
        if job.status != RUNNING:
            continue
        if wanted[j] == 0:
            _stop(s, key, j)
            free_chain(s, job)
            job.evicted = 0
            job.preemptions += 1
            job.overhead += overhead_of(s, job.gpus)
    # Those that change size or group leave first, so that all room is there when they are placed anew.
    for i in range(len(jobs)):
        job = s.jobs[jobs[i]]
        moves = groups[i] != NONE and job.take != NONE and s.nodes[s.takes[job.take].node].group != groups[i]
        if job.status == RUNNING and gpus[i] > 0 and (job.gpus != gpus[i] or moves):
            _stop(s, key, jobs[i])
    scratch = s.demands[len(s.demands) - 1]
    for i in range(len(jobs)):
        j = jobs[i]
        job = s.jobs[j]
        if gpus[i] == 0:
            continue
        if job.status == RUNNING:
            _change_rate(s, j, rates[i])
            continue
        demand = s.demands[job.demand]
        scratch.accept = demand.accept
        scratch.domain = demand.domain
        scratch.scope = g.scope
        scratch.gpus = gpus[i]
        if groups[i] != NONE:
            low = s.domains[demand.domain].group_low
            scratch.accept &= np.uint64(1) << np.uint64(groups[i] - low)
        _start(s, key, j, scratch, rates[i], resize_ms)
    for i in range(len(jobs)):
        job = s.jobs[jobs[i]]
        if job.evicted:
            # Its new size found no place: it waits, as if it had been stopped.
            job.evicted = 0
            free_chain(s, job)
            job.preemptions += 1
            job.overhead += overhead_of(s, job.gpus)
    return 0


@compiled
def _stop(s: Any, key: Any, j: int) -> None:
    job = s.jobs[j]
    settle(job, s.g[0].now)
    release(s, job, s.demands[job.demand].domain)
    suspend(s, key, j)
    job.evicted = 1


@compiled
def _change_rate(s: Any, j: int, rate: int) -> None:
    g = s.g[0]
    job = s.jobs[j]
    full = rate * job.pace // PPM
    if job.rate != full:
        settle(job, g.now)
        job.rate = max(full, 1)
        schedule_event(s, j)
        tell(s.log, g, RATE, j, NONE, job.rate)


@compiled
def _start(s: Any, key: Any, j: int, demand: Any, rate: int, resize_ms: int) -> None:
    """Place a waiting or moving job; where there is no place it waits."""
    g = s.g[0]
    job = s.jobs[j]
    moving = job.evicted
    if moving and job.gpus == demand.gpus and not g.by_count and chain_fits(s.nodes, s.takes, job.take):
        take_chain(g, s.nodes, s.groups, s.domains, s.bits, s.tops, s.takes, job.take, 1)
        job.evicted = 0
        start(s, key, j, job.nodes, rate)
        return
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
    if moving:
        job.evicted = 0
        job.migrations += 1
        job.overhead += resize_ms if old_gpus != job.gpus else overhead_of(s, job.gpus)
    start(s, key, j, nodes, rate)
