"""Virtual clusters of private cells: their jobs are placed in their own cells, others run on what is idle meanwhile.

A job with cells is placed in the private cells of its VC as if these were all there is. Each of its cells that is not
bound yet is bound to a block of a real node (`cells`), and jobs without cells that stand on the GPUs it takes are
stopped. When the last job of a cell has ended the cell is unbound.

Jobs without cells are placed in buddy blocks of GPUs that nobody uses: outside bound cells where there is such a block,
else inside too.

While nodes are missing there may be no block for a cell; its job then waits. A cell bound to a node that left takes no
new job until the node is back or the cell, idle, is bound elsewhere.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.cells.binding import bind, changed, refresh, unbind
from tracekit.replay.engine.blocks import lowest_block, span
from tracekit.replay.engine.buddy import find_block, hold_block, place_blocks
from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.loop import dequeue, free_chain, next_instant, release, start, suspend
from tracekit.replay.engine.nodes import NONE, node_joins, node_leaves, take_chain
from tracekit.replay.engine.ordered import first_queue
from tracekit.replay.engine.progress import overhead_of

__all__ = ["run_cells"]


@inner
def _unblock(s: Any, low: int, high: int) -> None:
    for q in range(low, high):
        s.queues[q].blocked = 0


@inner
def _see_nodes(s: Any, v: Any, h: Any) -> None:
    """Learn which nodes joined and left; every job may be tried again."""
    c = h.c[0]
    if c.seen == s.g[0].change:
        return
    c.seen = s.g[0].change
    for node in range(len(h.hosts)):
        if h.hosts[node].up != s.nodes[node].up:
            h.hosts[node].up = s.nodes[node].up
            changed(h, node)
    for index in range(len(h.cells)):
        here = h.cells[index].node == NONE or s.nodes[h.cells[index].node].up == 1
        if here and v.nodes[index].up == 0:
            node_joins(v.g[0], v.nodes, v.groups, v.domains, v.bits, v.tops, index)
        elif not here and v.nodes[index].up == 1:
            node_leaves(v.g[0], v.nodes, v.groups, v.domains, v.bits, v.tops, index)
    _unblock(s, 0, len(s.queues))


@inner
def _own(s: Any, h: Any, j: int, owner: int) -> None:
    """Note that a job without cells takes its GPUs (owner is the job), or leaves them (NONE)."""
    link = s.jobs[j].take
    while link != NONE:
        take = s.takes[link]
        host = h.hosts[take.node]
        host.soft ^= span(take.gpu, take.gpus)
        changed(h, take.node)
        for at in range(host.base + take.gpu, host.base + take.gpu + take.gpus):
            h.owner[at] = owner
        link = take.next


@inner
def _leave_cells(v: Any, h: Any, job: Any, j: int) -> None:
    """Free what a job holds of its private cells, and unbind those that are idle then."""
    link = h.chain[j]
    take_chain(v.g[0], v.nodes, v.groups, v.domains, v.bits, v.tops, v.takes, link, -1)
    job.take = link
    while link != NONE:
        index = v.takes[link].node
        if h.cells[index].node != NONE and v.nodes[index].free == v.nodes[index].gpus:
            unbind(h, index)
            if v.nodes[index].up == 0:
                node_joins(v.g[0], v.nodes, v.groups, v.domains, v.bits, v.tops, index)
        link = v.takes[link].next
    free_chain(v, job)
    h.chain[j] = NONE


@inner
def _book_ends(s: Any, v: Any, h: Any) -> None:
    """Free the cells of the jobs that ended in this instant."""
    g = s.g[0]
    while g.ended != NONE:
        j = g.ended
        job = s.jobs[j]
        g.ended = job.stopped
        if h.kind[j] == NONE:
            _own(s, h, j, NONE)
        free_chain(s, job)
        if h.kind[j] != NONE:
            _leave_cells(v, h, job, j)
            if h.c[0].failed:
                h.c[0].failed = 0
                _unblock(s, 0, len(s.queues))
            vc = s.demands[job.demand].tenant
            _unblock(s, h.tried[vc, 0], h.tried[vc, 1])


@inner
def _evict(s: Any, h: Any, key: Any, j: int) -> None:
    """Stop a job without cells; it waits again, and may start elsewhere in this pass."""
    job = s.jobs[j]
    _own(s, h, j, NONE)
    release(s, job, s.demands[job.demand].domain)
    free_chain(s, job)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)
    h.evicted[h.c[0].evicted] = j
    h.c[0].evicted += 1


@inner
def _is_new(s: Any, job: Any, node: int) -> int:
    """Return 1 where a job holds nothing on a node, else 0."""
    link = job.take
    while link != NONE:
        if s.takes[link].node == node:
            return 0
        link = s.takes[link].next
    return 1


@inner
def _occupy(s: Any, v: Any, h: Any, key: Any, j: int) -> int:
    """Take the GPUs that a job's private cells are bound to; return the nodes."""
    job = s.jobs[j]
    link = h.chain[j]
    nodes = 0
    while link != NONE:
        take = v.takes[link]
        node = h.cells[take.node].node
        gpu = h.cells[take.node].gpu + take.gpu
        for at in range(h.hosts[node].base + gpu, h.hosts[node].base + gpu + take.gpus):
            if h.owner[at] != NONE:
                _evict(s, h, key, h.owner[at])
        # Only blocks smaller than a node can be several on it.
        nodes += 1 if take.gpus == s.nodes[node].gpus else _is_new(s, job, node)
        hold_block(s, job, node, gpu, take.gpus)
        link = take.next
    return nodes


@inner
def _place_inside(s: Any, v: Any, h: Any, key: Any, j: int) -> int:
    """Place a job in the cells of its VC; return the nodes it spans, 0 when it cannot be placed."""
    job = s.jobs[j]
    demand = v.demands[v.jobs[h.kind[j]].demand]
    domain = v.domains[demand.domain]
    if domain.free < demand.gpus or place_blocks(v, job, demand, domain) == 0:
        return 0
    h.chain[j] = job.take
    job.take = NONE
    link = h.chain[j]
    bound = True
    while link != NONE and bound:
        index = v.takes[link].node
        if h.cells[index].node == NONE:
            bound = bind(h, index)
        link = v.takes[link].next
    if bound:
        return _occupy(s, v, h, key, j)
    _leave_cells(v, h, job, j)
    h.c[0].failed = 1
    return 0


@inner
def _place_apart(s: Any, o: Any, job: Any, demand: Any) -> int:
    """Take a block outside bound cells for a job without GPUs; return 1, or 0 where there is none."""
    size, level = 1, 0
    while size < demand.gpus:
        size *= 2
        level += 1
    found = find_block(o, demand, o.domains[demand.domain], level)
    if found == NONE:
        return 0
    node = o.nodes[found >> 3]
    hold_block(s, job, found >> 3, lowest_block(node.busy, node.gpus, found & 7), size)
    job.spare = size - demand.gpus
    return 1


@inner
def _place_outside(s: Any, o: Any, h: Any, j: int) -> int:
    """Place a job without cells on idle GPUs; return the nodes it spans, 0 when it cannot be placed."""
    job = s.jobs[j]
    demand = s.demands[job.demand]
    domain = s.domains[demand.domain]
    if domain.free < demand.gpus:
        return 0
    nodes = _place_apart(s, o, job, demand)
    if nodes == 0:
        nodes = place_blocks(s, job, demand, domain)
    if nodes > 0:
        _own(s, h, j, j)
        if job.evicted > 0:
            job.evicted = 0
            job.migrations += 1
            job.overhead += overhead_of(s, job.gpus)
    return nodes


@inner
def _settle_evictions(s: Any, h: Any) -> None:
    """Book the jobs that were evicted in this pass and did not start again."""
    c = h.c[0]
    for i in range(c.evicted):
        job = s.jobs[h.evicted[i]]
        if job.evicted > 0:
            job.evicted = 0
            job.preemptions += 1
            job.overhead += overhead_of(s, job.gpus)
    c.evicted = 0


@inner
def _cell_pass(s: Any, v: Any, o: Any, h: Any, key: Any, d: int) -> None:
    """Start what can start in a domain: first jobs with cells, then the others."""
    domain = s.domains[d]
    low, high = domain.queue_low, h.others[d]
    for outside in range(2):
        if outside:
            low, high = high, domain.queue_high
            if domain.freed or h.c[0].evicted > 0:
                _unblock(s, low, high)
        while True:
            q = first_queue(s, low, high)
            if q == NONE:
                break
            queue = s.queues[q]
            j = s.waiting[queue.base + queue.head].job
            refresh(s, o, h)
            nodes = _place_outside(s, o, h, j) if outside else _place_inside(s, v, h, key, j)
            if nodes == 0:
                queue.blocked = 1
            else:
                dequeue(s, j)
                start(s, key, j, nodes, s.g[0].speed)
    if h.c[0].evicted > 0:
        _settle_evictions(s, h)
    domain.freed = 0


@compiled
def run_cells(s: Any, v: Any, o: Any, h: Any, key: Any, instants: int) -> bool:
    """Run at most so many instants; return False when nothing is left to happen.

    `s` are the nodes, `v` the private cells, `o` the nodes without the GPUs of bound cells, `h` what ties them.
    """
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        _see_nodes(s, v, h)
        _book_ends(s, v, h)
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            _cell_pass(s, v, o, h, key, s.touched[i])
        g.touched = 0
    return True
