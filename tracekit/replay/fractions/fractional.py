"""The scheduling pass where jobs share GPUs in thousandths (see `fractions` and `fraction_rules`).

Everything is counted in milli-GPUs. Jobs of one demand wait in one queue, or all of a domain where the first that
cannot start stops the pass. A job that did not fit is looked at again only when a node on which something ended, or
that joined, could hold it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.eventlog import DOWN, START, UP, tell, tell_gpu
from tracekit.replay.engine.heap import heap_pop
from tracekit.replay.engine.loop import advance, dequeue, end_job, free_chain, submit, touch
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import first_queue
from tracekit.replay.engine.progress import schedule_event
from tracekit.replay.engine.state import PPM, RUNNING
from tracekit.replay.fractions.rules import fitting, place
from tracekit.replay.fractions.supply import CHANGES, WHOLE, bar, feasible, release, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.state import State
    from tracekit.replay.fractions.build import Gangs
    from tracekit.replay.fractions.supply import Fractions
    from tracekit.replay.mechanisms import Fractional

__all__ = ["fractional_steps"]

_NEVER = 1 << 62
_INSTANTS = 20_000


def fractional_steps(state: State, nodes: Fractions, gangs: Gangs, mechanism: Fractional) -> Callable[[int], bool]:
    """Return what runs at most so many instants of jobs that share GPUs and tells whether more are to come."""
    return functools.partial(_run, state, nodes, gangs, mechanism.order.key)


@inner
def _partly_free(s: Any, f: Any, node: int) -> int:
    """Return what is free of a node that is there and partly used [milli-GPU]."""
    left: int = f.nodes[node]["milli_left"]
    if s.nodes[node].up == 0 or left == s.nodes[node].gpus * WHOLE:
        return 0
    return left


@inner
def _hold(s: Any, f: Any, gangs: Any, j: int, shape: int, node: int) -> None:
    """Take the chosen GPUs of a node for a part of a job, and chain them to it."""
    g = s.g[0]
    job = s.jobs[j]
    task = f.shapes[shape]
    g.fragmented -= _partly_free(s, f, node)
    take(f, shape, node, gangs.chosen)
    g.fragmented += _partly_free(s, f, node)
    for i in range(task["count"]):
        link = g.free_take
        entry = s.takes[link]
        g.free_take = entry.next
        entry.node = node
        entry.gpu = gangs.chosen[i]
        entry.next = job.take
        job.take = link
    amount = task["count"] * task["milli"]
    g.busy += amount
    g.free -= amount
    s.domains[s.demands[job.demand].domain].free -= amount


@inner
def _give_back(s: Any, f: Any, gangs: Any, j: int) -> None:
    """Free what a job holds. Its chain names the part that was placed last first."""
    g = s.g[0]
    job = s.jobs[j]
    gang = gangs.gangs[job.demand]
    link = job.take
    for part in range(gang.parts if gang.rest != NONE else gang.parts - 1, -1, -1):
        shape = gang.full if part < gang.parts else gang.rest
        task = f.shapes[shape]
        node = s.takes[link].node
        for i in range(task["count"]):
            gangs.chosen[i] = s.takes[link].gpu
            link = s.takes[link].next
        amount = task["count"] * task["milli"]
        g.fragmented -= _partly_free(s, f, node)
        release(f, shape, node, gangs.chosen)
        g.fragmented += _partly_free(s, f, node)
        g.busy -= amount
        if s.nodes[node].up:
            g.free += amount
            s.domains[s.demands[job.demand].domain].free += amount
    free_chain(s, job)


@inner
def _place_parts(s: Any, f: Any, gangs: Any, j: int, gang: Any) -> int:
    """Place a gang of several parts, each on a node of its own; return its nodes, 0 (nothing taken) without room."""
    nodes: int = gang.parts + (gang.rest != NONE)
    # A node that holds a full part holds the rest too, so that these numbers are enough.
    if fitting(f, gang.full) < gang.parts or (gang.rest != NONE and fitting(f, gang.rest) < nodes):
        return 0
    for part in range(nodes):
        shape = gang.full if part < gang.parts else gang.rest
        node = place(f, shape, gangs.chosen)
        _hold(s, f, gangs, j, shape, node)
        bar(f, node, 1)
        gangs.barred[part] = node
    for part in range(nodes):
        bar(f, gangs.barred[part], -1)
    return nodes


@inner
def _place(s: Any, f: Any, gangs: Any, j: int) -> int:
    """Take GPUs for a waiting job; return its nodes, 0 without room."""
    job = s.jobs[j]
    gang = gangs.gangs[job.demand]
    if s.domains[s.demands[job.demand].domain].free < job.gpus:
        return 0
    if gang.parts > 1 or gang.rest != NONE:
        return _place_parts(s, f, gangs, j, gang)
    node = place(f, gang.full, gangs.chosen)
    if node < 0:
        return 0
    _hold(s, f, gangs, j, gang.full, node)
    return 1


@inner
def _start(s: Any, gangs: Any, j: int, nodes: int) -> None:
    g = s.g[0]
    job = s.jobs[j]
    job.status = RUNNING
    job.since = job.begun = job.first = g.now
    job.nodes = nodes
    job.rate = PPM
    g.running += 1
    g.pending -= 1
    schedule_event(s, j)
    tell(s.log, g, START, j, NONE, PPM)
    link = job.take
    while link != NONE and g.log_on:
        tell_gpu(s.log, g, j, s.takes[link].node, s.takes[link].gpu, gangs.gangs[job.demand].milli)
        link = s.takes[link].next


@inner
def _change_nodes(s: Any, f: Any) -> None:
    g = s.g[0]
    while g.change < g.changes and s.changes[g.change].time <= g.now:
        change = s.changes[g.change]
        node = change.node
        g.events += 1
        g.change += 1
        d = s.groups[s.nodes[node].group].domain
        tell(s.log, g, UP if change.up else DOWN, NONE, node, 0)
        touch(s, d, 1)
        if change.up == s.nodes[node].up:
            continue
        sign = 1 if change.up else -1
        left = sign * f.nodes[node]["milli_left"]
        g.fragmented -= _partly_free(s, f, node)
        s.nodes[node].up = change.up
        g.fragmented += _partly_free(s, f, node)
        g.free += left
        s.domains[d].free += left
        bar(f, node, -sign)


@inner
def _next_instant(s: Any, f: Any, gangs: Any, key: Any) -> bool:
    """Carry out every event of the next moment; return False when there is none."""
    g = s.g[0]
    now = _NEVER
    if g.event_size > 0:
        now = s.events[0].key >> 2
    if g.submitted < g.jobs:
        now = min(now, s.jobs[g.submitted].submit)
    elif g.event_size == 0 and g.pending == 0:
        return False
    if g.change < g.changes:
        now = min(now, s.changes[g.change].time)
    if now == _NEVER:
        return False
    advance(s, now)
    while g.event_size > 0 and s.events[0].key >> 2 == now:
        j = s.events[0].job
        heap_pop(s.events, s.event_at, 0, g.event_size)
        g.event_size -= 1
        end_job(s, j)
        _give_back(s, f, gangs, j)
        touch(s, s.demands[s.jobs[j].demand].domain, 1)
    _change_nodes(s, f)
    while g.submitted < g.jobs and s.jobs[g.submitted].submit <= now:
        g.submitted += 1
        submit(s, key, g.submitted - 1)
    return True


@inner
def _could_start(s: Any, f: Any, gangs: Any, j: int, since: int) -> bool:
    """Return whether a job that did not fit may do so after the changes of nodes from number `since` on."""
    gang = gangs.gangs[s.jobs[j].demand]
    changes = f.totals[CHANGES]
    if gang.parts > 1 or gang.rest != NONE or changes - since > len(f.changed):
        return True
    found = False
    for number in range(since, changes):
        found |= feasible(f, gang.full, f.changed[number % len(f.changed)])
    return found


@inner
def _pass(s: Any, f: Any, gangs: Any, d: int, since: int) -> None:
    g = s.g[0]
    domain = s.domains[d]
    low, high = domain.queue_low, domain.queue_high
    if domain.freed:
        for q in range(low, high):
            queue = s.queues[q]
            if queue.size > 0 and queue.blocked:
                queue.blocked = not _could_start(s, f, gangs, s.waiting[queue.base + queue.head].job, since)
    while True:
        q = first_queue(s, low, high)
        if q == NONE:
            break
        j = s.waiting[s.queues[q].base + s.queues[q].head].job
        nodes = _place(s, f, gangs, j)
        if nodes > 0:
            dequeue(s, j)
            _start(s, gangs, j, nodes)
            continue
        s.queues[q].blocked = 1
        if g.skip == 0:
            break
    domain.freed = 0


@compiled
def _run(s: Any, f: Any, gangs: Any, key: Any, instants: int) -> bool:
    g = s.g[0]
    for _ in range(instants):
        since = f.totals[CHANGES]
        if not _next_instant(s, f, gangs, key):
            return False
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            _pass(s, f, gangs, d, since)
        g.touched = 0
    return True
