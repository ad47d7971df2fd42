"""The scheduling pass of ordering policies: jobs by key, with or without eviction.

Waiting jobs of one domain and demand stand in one queue, and only its first can be the next to start, so that a pass
looks at queues, not at jobs. A queue whose first job did not fit is blocked until GPUs come free, a node changes, a
level rises, an earlier job evicts others, or another job becomes its first: nothing else can make room for it, because
the jobs it could evict only become fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner, outlined
from tracekit.replay.engine.eventlog import forgive_stop
from tracekit.replay.engine.heap import heap_push
from tracekit.replay.engine.loop import (
    dequeue,
    enqueue,
    free_chain,
    next_instant,
    rank_again,
    release,
    start,
    suspend,
    unrank,
)
from tracekit.replay.engine.nodes import NONE, chain_fits, take_chain
from tracekit.replay.engine.placement import place_gang
from tracekit.replay.engine.progress import held, key_now, overhead_of, settle
from tracekit.replay.engine.state import DRIFT_ANY, DRIFT_TIME, WAITING
from tracekit.replay.engine.victims import UNTOLD, first_victims, rank_limit, room_without

__all__ = [
    "first_queue",
    "hold_again",
    "list_pass",
    "run_ordered",
    "settle_evictions",
    "take",
    "take_again",
    "take_apart",
]


@inner
def first_queue(s: Any, low: int, high: int) -> int:
    """Return the queue, not blocked, whose first job has the smallest key; NONE when there is none."""
    best = NONE
    best_key = np.int64(0)
    best_job = np.int64(0)
    for q in range(low, high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked:
            continue
        entry = s.waiting[queue.base + queue.head]
        if best == NONE or entry.key < best_key or (entry.key == best_key and entry.job < best_job):
            best, best_key, best_job = q, entry.key, entry.job
    return best


@inner
def take(s: Any, j: int, demand: Any) -> int:
    """Give a job without GPUs what it asks for; return the nodes it spans (1 by count), 0 when there is no place."""
    g = s.g[0]
    if not g.by_count:
        return place_gang(s, j, demand)
    domain = s.domains[demand.domain]
    if domain.free < demand.gpus:
        return 0
    domain.free -= demand.gpus
    g.busy += demand.gpus
    g.free -= demand.gpus
    return 1


@outlined
def take_apart(s: Any, j: int, demand: Any) -> int:
    """Like `take`, compiled once for all the places that ask."""
    return take(s, j, demand)


@inner
def take_again(s: Any, j: int, demand: Any) -> int:
    """Like `take`; a job that was evicted in this very pass goes where it was if its nodes still have room."""
    g = s.g[0]
    job = s.jobs[j]
    if job.evicted and not g.by_count and chain_fits(s.nodes, s.takes, job.take):
        take_chain(g, s.nodes, s.groups, s.domains, s.bits, s.tops, s.takes, job.take, 1)
        forgive_stop(s.log, g, job)
        return job.nodes
    if s.domains[demand.domain].free < demand.gpus:
        return 0
    old = job.take
    job.take = NONE
    nodes = take(s, j, demand)
    if nodes == 0 or not job.evicted:
        job.take = old if nodes == 0 else job.take
    elif g.by_count:
        forgive_stop(s.log, g, job)
    else:
        _move(s, job, old)
    return nodes


@inner
def _move(s: Any, job: Any, old: int) -> None:
    """Book that an evicted job, which held the chain `old`, goes on elsewhere."""
    fresh = job.take
    job.take = old
    free_chain(s, job)
    job.take = fresh
    job.evicted = 0
    job.migrations += 1
    job.overhead += overhead_of(s, job.gpus)


@inner
def _rank_key(s: Any, d: int) -> int:
    """Return the key, now, of the domain's running job that is last in rank; there is one."""
    g = s.g[0]
    key = -s.ranks[s.domains[d].rank_base].key
    return key - g.now if g.drift == DRIFT_TIME else key


@inner
def _rank_anew(s: Any, key: Any, d: int) -> None:
    """Order a domain's running jobs by their keys of this moment."""
    g = s.g[0]
    domain = s.domains[d]
    for size in range(domain.rank_size):
        mirrored = s.ranks[domain.rank_base + size].job
        job = s.jobs[g.jobs - 1 - mirrored]
        settle(job, g.now)
        job.key = key_now(s, key, job)
        heap_push(s.ranks, s.rank_at, domain.rank_base, size, -job.key, mirrored)


@inner
def _could_free(s: Any, d: int, j: int, wanted: int) -> bool:
    """Return whether the free GPUs and those of running jobs after job j in rank are enough by number."""
    g = s.g[0]
    domain = s.domains[d]
    total = domain.free
    limit = rank_limit(s, j)
    for i in range(domain.rank_base, domain.rank_base + domain.rank_size):
        if -s.ranks[i].key > limit:
            total += held(s.jobs[g.jobs - 1 - s.ranks[i].job])
            if total >= wanted:
                return True
    return False


@inner
def _may_evict(s: Any, key: Any, d: int, j: int) -> bool:
    """Return whether there are jobs after job j in rank; they are in order then."""
    g = s.g[0]
    domain = s.domains[d]
    if g.preemptive == 0 or domain.rank_size == 0:
        return False
    if not domain.ranked:
        _rank_anew(s, key, d)
        domain.ranked = 1
    return _rank_key(s, d) > s.jobs[j].key


@inner
def _next_victims(s: Any, d: int, j: int, demand: Any, gone: int) -> int:
    """Append to the `gone` jobs of `scratch` those to release next for waiting job j; return how many it has then."""
    domain = s.domains[d]
    if gone == 0:
        count = first_victims(s, d, j, demand)
        if count != UNTOLD:
            return count
        if not _could_free(s, d, j, demand.gpus):
            return 0
    if domain.rank_size == 0 or _rank_key(s, d) <= s.jobs[j].key:
        return gone
    s.scratch[gone] = s.g[0].jobs - 1 - s.ranks[domain.rank_base].job
    return gone + 1


@inner
def _settle_victims(s: Any, key: Any, d: int, j: int, count: int, placed: bool) -> None:
    """Evict those of the jobs released for job j that held something on its nodes; the others hold theirs again."""
    g = s.g[0]
    domain = s.domains[d]
    evicted = g.evicted
    for i in range(count):
        victim = s.scratch[i]
        if not placed or not (g.by_count or _meet(s, s.jobs[victim].take, s.jobs[j].take)):
            hold_again(s, s.jobs[victim], d)
            rank_again(s, victim, domain)
        else:
            s.evicted[g.evicted] = victim
            g.evicted += 1
    for i in range(evicted, g.evicted):
        victim = s.evicted[i]
        suspend(s, key, victim)
        s.jobs[victim].evicted = max(g.log_size, 1)
    if placed:
        _unblock_after(s, domain.queue_low, domain.queue_high, s.jobs[j].key)


@inner
def _meet(s: Any, first: int, second: int) -> bool:
    """Return whether two chains have a node in common."""
    link = first
    while link != NONE:
        other = second
        while other != NONE:
            if s.takes[other].node == s.takes[link].node:
                return True
            other = s.takes[other].next
        link = s.takes[link].next
    return False


@inner
def hold_again(s: Any, job: Any, d: int) -> None:
    """Give a job that was released just now what it held."""
    g = s.g[0]
    if g.by_count:
        s.domains[d].free -= job.gpus
        g.busy += job.gpus
        g.free -= job.gpus
    else:
        take_chain(g, s.nodes, s.groups, s.domains, s.bits, s.tops, s.takes, job.take, 1)


@inner
def settle_evictions(s: Any, key: Any) -> None:
    """Book what the pass did to the jobs it evicted: those that did not start again were preempted."""
    g = s.g[0]
    for i in range(g.evicted):
        j = s.evicted[i]
        job = s.jobs[j]
        if job.evicted == 0:
            continue
        job.evicted = 0
        free_chain(s, job)
        job.preemptions += 1
        cost = overhead_of(s, job.gpus)
        if cost > 0 and job.status == WAITING:
            job.overhead += cost
            moved = key_now(s, key, job)
            # The cost is part of some keys: a job may now be first that was never tried.
            if moved != job.key:
                if s.waiting_at[j] == 0:
                    s.queues[s.demands[job.demand].queue].blocked = 0
                dequeue(s, j)
                enqueue(s, j, moved)
    g.evicted = 0


@inner
def _patience_ended(s: Any, low: int, high: int) -> bool:
    """Return whether a queue that cannot start holds a job that waited longer than the age cap."""
    g = s.g[0]
    for q in range(low, high):
        queue = s.queues[q]
        if queue.size > 0 and queue.blocked:
            job = s.jobs[s.waiting[queue.base + queue.head].job]
            if g.now - job.submit >= g.age_cap:
                return True
    return False


@inner
def _unblock_after(s: Any, low: int, high: int, key: int) -> None:
    """Try again what comes after a job that evicted others: they may have held more than it took."""
    for q in range(low, high):
        queue = s.queues[q]
        if queue.size > 0 and queue.blocked and s.waiting[queue.base + queue.head].key >= key:
            queue.blocked = 0


@inner
def _could_host(s: Any, j: int, demand: Any, index: int) -> bool:
    """Return whether a node could now be part of job j's place, with every job after j in rank evicted from it."""
    node = s.nodes[index]
    group = s.groups[node.group]
    if node.up == 0 or demand.scope > 0:
        return demand.scope > 0
    room = room_without(s, index, rank_limit(s, j))
    if demand.gpus <= group.largest:
        return room >= demand.gpus
    rest = demand.gpus % group.largest
    return room == group.largest or (rest > 0 and room >= rest)


@inner
def _unblock_where_loose(s: Any, d: int, low: int, high: int) -> None:
    """Try again those queues whose first job could use nodes that became looser, as many as it lacked.

    On every other node it has what it had when it was tried, or less.
    """
    g = s.g[0]
    for q in range(low, high):
        queue = s.queues[q]
        if queue.size == 0 or not queue.blocked:
            continue
        j = s.waiting[queue.base + queue.head].job
        demand = s.demands[s.jobs[j].demand]
        for i in range(g.loosened):
            index = s.loosened[i]
            if s.groups[s.nodes[index].group].domain == d and _could_host(s, j, demand, index):
                queue.blocked -= 1
                if not queue.blocked:
                    break


@inner
def _unblock(s: Any, d: int, low: int, high: int, victims: Any) -> None:
    """Try again the queues of a domain that may have got room since they were blocked."""
    g = s.g[0]
    if s.domains[d].freed or g.age_cap > 0 or g.drift == DRIFT_ANY:
        for q in range(low, high):
            s.queues[q].blocked = 0
    elif victims is not None and g.loosened > 0:
        _unblock_where_loose(s, d, low, high)


@inner
def _make_room(s: Any, key: Any, d: int, j: int) -> int:
    """Give a waiting job its GPUs, if need be those of jobs after it in rank; return the nodes it spans, 0 for none.

    The last in rank is released first. Those that hold nothing on the nodes it then takes go on as if nothing had been;
    when even all of them are not enough, every one does.
    """
    demand = s.demands[s.jobs[j].demand]
    gone = 0
    while True:
        nodes = take_again(s, j, demand)
        if nodes > 0 or (gone == 0 and not _may_evict(s, key, d, j)):
            break
        count = _next_victims(s, d, j, demand, gone)
        if count == gone:
            break
        for i in range(gone, count):
            unrank(s, s.scratch[i], d)
            release(s, s.jobs[s.scratch[i]], d)
        gone = count
    if gone > 0:
        _settle_victims(s, key, d, j, gone, nodes > 0)
    return nodes


@inner
def list_pass(s: Any, key: Any, d: int, victims: Any) -> None:
    """Start what can start in a domain; `victims` is None where no job evicts another, and that code is left out."""
    g = s.g[0]
    domain = s.domains[d]
    low, high = domain.queue_low, domain.queue_high
    _unblock(s, d, low, high, victims)
    domain.ranked = g.drift != DRIFT_ANY
    while True:
        q = first_queue(s, low, high)
        if q == NONE or (g.age_cap > 0 and _patience_ended(s, low, high)):
            break
        queue = s.queues[q]
        j = s.waiting[queue.base + queue.head].job
        if victims is None:
            demand = s.demands[s.jobs[j].demand]
            nodes = take(s, j, demand) if domain.free >= demand.gpus else 0
        else:
            g.lacking = 1
            nodes = _make_room(s, key, d, j)
        if nodes > 0:
            dequeue(s, j)
            start(s, key, j, nodes, g.speed)
            if g.capped:
                s.jobs[j].stopped = g.begun
                g.begun = j
            continue
        queue.blocked = g.lacking
        if not g.skip:
            break
    if victims is not None and g.evicted > 0:
        settle_evictions(s, key)
    domain.freed = 0


@compiled
def run_ordered(s: Any, key: Any, victims: Any, instants: int) -> bool:
    """Run at most so many instants of an ordering policy; return False when nothing is left to happen.

    `victims` is None where no job evicts another, else anything: compiled code without eviction is half as long.
    """
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            list_pass(s, key, d, victims)
        g.touched = 0
        g.loosened = 0
    return True
