"""Which GPUs a waiting job could have, and which it takes: idle ones first, then beside running jobs.

The work of the job that is asked for stands in GLOBAL.alone and GLOBAL.work, so that the question can be put to many
running jobs in a row (see `ask`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.heap import heap_pop, heap_push
from tracekit.replay.engine.nodes import NONE, first_with
from tracekit.replay.engine.state import PPM
from tracekit.replay.sharing.pairs import MOST_MS, mean_end, pair_speed, shares
from tracekit.replay.sharing.residents import IDLE, OPEN, gather, seats_of_node

__all__ = ["ask", "choose", "gains", "reach"]

_ONE = np.uint64(1)


@inner
def _left_ms(job: Any, now: int) -> int:
    """Return the work that a running job has left now, rounded up [ms]."""
    left = max(job.remaining - (now - job.since) * job.rate, 0)
    return min((left + PPM - 1) // PPM, MOST_MS)


@inner
def _work_ms(job: Any, speed: int) -> int:
    """Return what a waiting job takes alone at a speed, rounded up [ms]."""
    work = min((job.remaining + PPM - 1) // PPM, MOST_MS)
    return min((work * PPM + speed - 1) // speed, MOST_MS)


@inner
def ask(s: Any, r: Any, j: int, step: int) -> None:
    """Note the work of a waiting job alone, and in `step`, for `gains`."""
    r.g[0].alone = _work_ms(s.jobs[j], PPM)
    r.g[0].work = _work_ms(s.jobs[j], r.speeds[step]) if step > 0 else r.g[0].alone


@inner
def gains(s: Any, r: Any, j: int, step: int, other: int) -> bool:
    """Return whether a waiting job in `step`, asked for before, fits beside a job alone on a GPU, and gains by it."""
    me, them = r.jobs[j], r.jobs[other]
    if r.memory[step, j] + r.memory[them.step, other] > PPM:
        return False
    if r.g[0].test == 0:
        return True
    speed = pair_speed(r.g[0].strength, me.utilization, them.utilization)
    return shares(r.g[0].alone, r.g[0].work, _left_ms(s.jobs[other], s.g[0].now), speed, speed)


@inner
def _usable(s: Any, r: Any, other: int) -> int:
    """Return the GPUs that a job holds alone on nodes that are there."""
    if r.g[0].away == 0:
        return r.jobs[other].alone
    found = 0
    link = r.jobs[other].held
    while link != NONE:
        cell = r.gpus[r.held[link].gpu]
        found += cell.jobs == 1 and s.nodes[cell.node].up == 1
        link = r.held[link].next
    return found


@inner
def _seats_left(s: Any, r: Any, j: int, d: int, model: int, step: int, wanted: int) -> int:
    """Count the GPUs of a model that a job in `step` may share, until there are enough."""
    if r.g[0].test == 0:
        return gather(s, r, d, model, OPEN, PPM - r.memory[step, j], wanted, False)
    domain = r.domains[d]
    found = 0
    ask(s, r, j, step)
    for i in range(domain.base, domain.base + domain.size):
        other = r.candidates[i]
        if r.jobs[other].model == model and gains(s, r, j, step, other):
            found += _usable(s, r, other)
            if found >= wanted:
                break
    return found


@inner
def _there(s: Any, r: Any, d: int, first: int, kind: int) -> int:
    """Count the idle or open GPUs of a model, that of group `first`, in a domain."""
    total: Any = np.int64(0)
    for index in range(first, s.domains[d].group_high):
        if s.groups[index].model == s.groups[first].model:
            total += r.groups[index].idle if kind == IDLE else r.groups[index].open
    return total


@inner
def _begins_model(s: Any, demand: Any, first: int) -> bool:
    """Return whether a group is the first of its model in its domain, and accepted."""
    low = s.domains[demand.domain].group_low
    if first > low and s.groups[first - 1].model == s.groups[first].model:
        return False
    return (demand.accept >> np.uint64(first - low)) & _ONE == _ONE


@inner
def reach(s: Any, r: Any, j: int, demand: Any) -> int:
    """Return a number that the GPUs of one model that a job could have now do not exceed; enough only if it fits."""
    d = demand.domain
    best: Any = np.int64(0)
    for first in range(s.domains[d].group_low, s.domains[d].group_high):
        if not _begins_model(s, demand, first):
            continue
        idle = _there(s, r, d, first, IDLE)
        if idle >= demand.gpus:
            return idle
        most = idle + _there(s, r, d, first, OPEN)
        if most < demand.gpus:
            best = max(best, most)
            continue
        for step in range(len(r.speeds)):
            wanted = demand.gpus - idle
            found = _seats_left(s, r, j, d, s.groups[first].model, step, wanted)
            best = max(best, idle + found)
            if found >= wanted:
                return best
    return best


@inner
def _tightest_idle(s: Any, demand: Any) -> int:
    """Return the node with the fewest idle GPUs that suffice, or NONE."""
    domain = s.domains[demand.domain]
    best = NONE
    best_free = 0
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if (demand.accept >> np.uint64(index - domain.group_low)) & _ONE != _ONE:
            continue
        for free in range(demand.gpus, group.largest + 1):
            node = first_with(group, s.bits, s.tops, free)
            if node != NONE:
                if best == NONE or free < best_free:
                    best, best_free = node, free
                break
    return best


@inner
def _fit_of_node(s: Any, r: Any, j: int, step: int, node: int) -> int:
    """Count the GPUs of a node that a job in `step` could have."""
    seats = r.g[0].seats
    found = 0
    first = r.nodes[node].first
    for gpu in range(first, first + s.nodes[node].gpus):
        cell = r.gpus[gpu]
        if cell.jobs == 0:
            found += 1
        elif cell.jobs < seats and cell.memory + r.memory[step, j] <= PPM:
            found += r.g[0].test == 0 or gains(s, r, j, step, r.seats[gpu * seats])
    return found


@inner
def _tightest_shared(s: Any, r: Any, j: int, demand: Any, step: int) -> int:
    """Return the node with the fewest GPUs, idle or shared, that suffice, or NONE."""
    domain = s.domains[demand.domain]
    best = NONE
    best_fit = 0
    ask(s, r, j, step)
    for index in range(domain.group_low, domain.group_high):
        if (demand.accept >> np.uint64(index - domain.group_low)) & _ONE != _ONE:
            continue
        for node in range(s.groups[index].low, s.groups[index].high):
            if s.nodes[node].up == 0 or s.nodes[node].free + r.nodes[node].open < demand.gpus:
                continue
            fit = _fit_of_node(s, r, j, step, node)
            if fit >= demand.gpus and (best == NONE or fit < best_fit):
                best, best_fit = node, fit
    return best


@inner
def _note_partner(s: Any, r: Any, j: int, other: int, one: bool) -> None:
    """Enter a running job into the heap of partners, by mean end; where one is enough only the best is kept."""
    speed = pair_speed(r.g[0].strength, r.jobs[j].utilization, r.jobs[other].utilization)
    end = mean_end(r.g[0].work, _left_ms(s.jobs[other], s.g[0].now), speed, speed)
    if one and r.g[0].partners == 1:
        best = r.partners[0]
        if best.key < end or (best.key == end and best.job < other):
            return
        r.partner_at[best.job] = NONE
        r.g[0].partners = 0
    heap_push(r.partners, r.partner_at, 0, r.g[0].partners, end, other)
    r.g[0].partners += 1


@inner
def _find_partners(s: Any, r: Any, j: int, d: int, model: int, node: int, step: int, wanted: int) -> None:
    """Fill the heap of partners with those of one model, or of one node where that is not NONE."""
    ask(s, r, j, step)
    # A partner may have no GPU to share only where nodes leave.
    one = wanted == 1 and r.g[0].away == 0
    r.g[0].partners = 0
    if node == NONE:
        domain = r.domains[d]
        for i in range(domain.base, domain.base + domain.size):
            other = r.candidates[i]
            if r.jobs[other].model == model and gains(s, r, j, step, other):
                _note_partner(s, r, j, other, one)
        return
    first = r.nodes[node].first
    for gpu in range(first, first + s.nodes[node].gpus):
        other = r.seats[gpu * r.g[0].seats]
        if r.gpus[gpu].jobs == 1 and r.partner_at[other] == NONE and gains(s, r, j, step, other):
            _note_partner(s, r, j, other, one)


@inner
def _choose_partners(s: Any, r: Any, j: int, d: int, model: int, node: int, step: int, wanted: int) -> int:
    """Choose GPUs of partners by mean end, ties by job, each partner's in the order in which it took them.

    Only on one node where `node` is not NONE. Return the mean end with the last of them, or -1 when there are not
    enough.
    """
    _find_partners(s, r, j, d, model, node, step, wanted)
    end: Any = np.int64(0)
    while wanted > 0 and r.g[0].partners > 0:
        end, other = r.partners[0].key, r.partners[0].job
        heap_pop(r.partners, r.partner_at, 0, r.g[0].partners)
        r.g[0].partners -= 1
        link = r.jobs[other].held
        while link != NONE and wanted > 0:
            gpu = r.held[link].gpu
            cell = r.gpus[gpu]
            elsewhere = node != NONE and cell.node != node
            if cell.jobs == 1 and s.nodes[cell.node].up == 1 and not elsewhere:
                r.chosen[r.g[0].chosen] = gpu
                r.g[0].chosen += 1
                wanted -= 1
            link = r.held[link].next
    for i in range(r.g[0].partners):
        r.partner_at[r.partners[i].job] = NONE
    return end if wanted == 0 else -1


@inner
def _choose_on_node(s: Any, r: Any, j: int, demand: Any, step: int, node: int) -> None:
    room = PPM - r.memory[step, j]
    found = seats_of_node(s, r, node, IDLE, PPM, demand.gpus, True)
    if r.g[0].test:
        model = s.groups[s.nodes[node].group].model
        _choose_partners(s, r, j, demand.domain, model, node, step, demand.gpus - found)
    else:
        seats_of_node(s, r, node, OPEN, room, demand.gpus - found, True)


@inner
def _choose_one_shared(s: Any, r: Any, j: int, demand: Any) -> int:
    """Choose GPUs of the tightest node, idle or shared; return the sub-batches, NONE when there is no such node."""
    for step in range(len(r.speeds)):
        node = _tightest_shared(s, r, j, demand, step)
        if node != NONE:
            _choose_on_node(s, r, j, demand, step, node)
            return step
    return NONE


@inner
def _choose_shared(s: Any, r: Any, j: int, demand: Any, first: int, idle: int) -> int:
    """Choose all idle GPUs of a model and shared ones for the rest; return the sub-batches, NONE when it cannot be."""
    d = demand.domain
    model = s.groups[first].model
    wanted = demand.gpus - idle
    best = NONE
    best_end: Any = np.int64(0)
    for step in range(len(r.speeds)):
        if r.g[0].test == 0:
            if _seats_left(s, r, j, d, model, step, wanted) >= wanted:
                gather(s, r, d, model, IDLE, PPM, idle, True)
                gather(s, r, d, model, OPEN, PPM - r.memory[step, j], wanted, True)
                return step
            continue
        r.g[0].chosen = 0
        end = _choose_partners(s, r, j, d, model, NONE, step, wanted)
        if end >= 0 and (best == NONE or end < best_end):
            best, best_end = step, end
    r.g[0].chosen = 0
    if best != NONE:
        gather(s, r, d, model, IDLE, PPM, idle, True)
        _choose_partners(s, r, j, d, model, NONE, best, wanted)
    return best


@inner
def choose(s: Any, r: Any, j: int, demand: Any) -> int:
    """Choose GPUs for a job that has a place; return its sub-batches as an index."""
    d = demand.domain
    domain = s.domains[d]
    r.g[0].chosen = 0
    if r.g[0].consolidate:
        node = _tightest_idle(s, demand)
        if node != NONE:
            seats_of_node(s, r, node, IDLE, PPM, demand.gpus, True)
            return 0
    for first in range(domain.group_low, domain.group_high):
        if _begins_model(s, demand, first) and _there(s, r, d, first, IDLE) >= demand.gpus:
            gather(s, r, d, s.groups[first].model, IDLE, PPM, demand.gpus, True)
            return 0
    if r.g[0].consolidate:
        step = _choose_one_shared(s, r, j, demand)
        if step != NONE:
            return step
    for first in range(domain.group_low, domain.group_high):
        if _begins_model(s, demand, first):
            step = _choose_shared(s, r, j, demand, first, _there(s, r, d, first, IDLE))
            if step != NONE:
                return step
    return NONE
