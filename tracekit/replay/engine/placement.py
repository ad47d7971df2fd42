"""Where a gang goes: rules for whole GPUs, each a few bit scans.

A gang never mixes GPU models. Within a group (nodes of one domain, model and rack), with `largest` the GPUs of its
largest node:

- at most `largest` GPUs go to one node: the one with the fewest free GPUs that suffice (best-fit, and consolidate),
  with the most (worst-fit, also called spread), or the first (first-fit); the lowest index on ties;
- more GPUs take wholly free nodes of the largest size, lowest index first, and for a remainder one more node, the one
  with the most free GPUs that has enough.

Relaxed, a gang takes nodes by most free GPUs first until it has enough: inside one group (scope 1), or anywhere among
nodes of one model (scope 2).

The rule `buddy` has blocks instead (see `buddy`), and never relaxes: scattered GPUs are no blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.buddy import place_blocks
from tracekit.replay.engine.compiled import either, inner
from tracekit.replay.engine.nodes import NONE, first_with, take_gpus, take_seat

__all__ = ["BEST_FIT", "BUDDY", "FIRST_FIT", "RULES", "WORST_FIT", "accepts", "hold", "hold_seat", "place_gang"]

BEST_FIT, WORST_FIT, FIRST_FIT, BUDDY = range(4)

RULES = {
    "consolidate": BEST_FIT,
    "best-fit": BEST_FIT,
    "worst-fit": WORST_FIT,
    "spread": WORST_FIT,
    "first-fit": FIRST_FIT,
    "buddy": BUDDY,
}
"""Names of the rules for one node, and that of blocks."""

_ONE = np.uint64(1)


@inner
def accepts(demand: Any, group: int, low: int) -> bool:
    """Return whether a demand may go to a group of a domain whose first group is `low`."""
    return (demand.accept >> np.uint64(group - low)) & _ONE == _ONE


@inner
def _node_of_group(s: Any, group: Any, gpus: int, rule: int) -> int:
    """Return the node of a group that a rule takes for a gang that fits into one, or NONE."""
    best = NONE
    if rule == WORST_FIT:
        for free in range(group.largest, gpus - 1, -1):
            best = first_with(group, s.bits, s.tops, free)
            if best != NONE:
                break
        return best
    for free in range(gpus, group.largest + 1):
        node = first_with(group, s.bits, s.tops, free)
        if node == NONE:
            continue
        if rule == BEST_FIT:
            return node
        if best == NONE or node < best:
            best = node
    return best


@inner
def _one_node(s: Any, demand: Any, domain: Any, rule: int) -> int:
    """Return the node for a gang that fits into one, over all groups that it accepts, or NONE."""
    best = NONE
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if demand.gpus > group.largest or not accepts(demand, index, domain.group_low):
            continue
        node = _node_of_group(s, group, demand.gpus, rule)
        if node == NONE:
            continue
        less = best == NONE or s.nodes[node].free < s.nodes[best].free
        more = best == NONE or s.nodes[node].free > s.nodes[best].free
        if (rule == BEST_FIT and less) or (rule == WORST_FIT and more) or best == NONE:
            best = node
    return best


def _hold_number(s: Any, job: Any, node: Any, gpus: Any) -> None:
    g = s.g[0]
    link = g.free_take
    take = s.takes[link]
    g.free_take = take.next
    take.node = node
    take.gpus = gpus
    take.next = job.take
    job.take = link
    take_gpus(g, s.nodes, s.groups, s.domains, s.bits, s.tops, node, gpus)


@inner
def hold_seat(s: Any, job: Any, node: int, gpu: int) -> None:
    """Let a job join a GPU, and chain it to the job."""
    g = s.g[0]
    link = g.free_take
    take = s.takes[link]
    g.free_take = take.next
    take.node = node
    take.gpu = gpu
    take.gpus = 1
    take.next = job.take
    job.take = link
    take_seat(g, s.nodes, s.groups, s.domains, s.bits, s.tops, s.takes, node, gpu, 1)


def _hold_seats(s: Any, job: Any, node: Any, gpus: Any) -> None:
    first = s.nodes[node].seat
    left = s.nodes[node].free - gpus
    for gpu in range(s.nodes[node].gpus - 1, -1, -1):
        if s.takes[first + gpu].gpus > 0:
            continue
        if left > 0:
            left -= 1
        else:
            hold_seat(s, job, node, gpu)


hold = either(_hold_number, _hold_seats, field="seat")
"""Take GPUs of a node that no job has, the lowest, and chain them to the job."""


@inner
def _whole_nodes(s: Any, job: Any, demand: Any, group: Any) -> int:
    """Place a gang larger than a node in a group; return its nodes, 0 when it does not fit."""
    wanted = demand.gpus // group.largest
    rest = demand.gpus % group.largest
    row = group.bits + group.largest * group.words
    found = 0
    for word in range(group.words):
        bits = s.bits[row + word]
        while bits != np.uint64(0) and found < wanted:
            bits &= bits - _ONE
            found += 1
        if found == wanted:
            break
    if found < wanted:
        return 0
    if rest > 0 and not _has_other(s, group, wanted, rest):
        return 0
    for _ in range(wanted):
        hold(s, job, first_with(group, s.bits, s.tops, group.largest), group.largest)
    if rest == 0:
        return wanted
    for free in range(group.largest, rest - 1, -1):
        node = first_with(group, s.bits, s.tops, free)
        if node != NONE:
            hold(s, job, node, rest)
            break
    return wanted + 1


@inner
def _has_other(s: Any, group: Any, wanted: int, rest: int) -> bool:
    """Return whether a node for the remainder is left beside `wanted` free nodes of the largest size."""
    row = group.bits + group.largest * group.words
    found = 0
    for word in range(group.words):
        bits = s.bits[row + word]
        while bits != np.uint64(0):
            bits &= bits - _ONE
            found += 1
            if found > wanted:
                return True
    for free in range(group.largest - 1, rest - 1, -1):
        if first_with(group, s.bits, s.tops, free) != NONE:
            return True
    return False


@inner
def _free_of(s: Any, group: Any, enough: int) -> int:
    """Return the free GPUs of a group's nodes, or any number from `enough` on."""
    total = 0
    for free in range(group.largest, 0, -1):
        row = group.bits + free * group.words
        for word in range(group.words):
            bits = s.bits[row + word]
            while bits != np.uint64(0):
                bits &= bits - _ONE
                total += free
                if total >= enough:
                    return total
    return total


@inner
def _emptiest(s: Any, domain: Any, only: int, model: int, demand: Any) -> int:
    """Return the node with most free GPUs in one group, or in all accepted groups of a model."""
    best = NONE
    best_free = 0
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if (only != NONE and index != only) or group.model != model or not accepts(demand, index, domain.group_low):
            continue
        for free in range(group.largest, best_free, -1):
            node = first_with(group, s.bits, s.tops, free)
            if node != NONE:
                best, best_free = node, free
                break
    return best


@inner
def _gather(s: Any, job: Any, demand: Any, domain: Any, only: int, model: int) -> int:
    """Take nodes by most free GPUs until the gang, which fits, is complete; return how many nodes."""
    missing = np.int64(demand.gpus)
    count = 0
    while missing > 0:
        node = _emptiest(s, domain, only, model, demand)
        gpus = int(min(missing, np.int64(s.nodes[node].free)))
        hold(s, job, node, gpus)
        missing -= gpus
        count += 1
    return count


@inner
def _anywhere(s: Any, job: Any, demand: Any, domain: Any, scope: int) -> int:
    if scope == 1:
        for index in range(domain.group_low, domain.group_high):
            if accepts(demand, index, domain.group_low) and _free_of(s, s.groups[index], demand.gpus) >= demand.gpus:
                return _gather(s, job, demand, domain, index, s.groups[index].model)
        return 0
    for first in range(domain.group_low, domain.group_high):
        model = s.groups[first].model
        if first > domain.group_low and s.groups[first - 1].model == model:
            continue
        free = 0
        for index in range(first, domain.group_high):
            group = s.groups[index]
            if group.model == model and accepts(demand, index, domain.group_low):
                free += _free_of(s, group, demand.gpus)
        if free >= demand.gpus:
            return _gather(s, job, demand, domain, NONE, model)
    return 0


@inner
def place_gang(s: Any, j: int, demand: Any) -> int:
    """Take GPUs for a job without any; return the nodes it spans, 0 (nothing taken) when it cannot be placed."""
    job = s.jobs[j]
    domain = s.domains[demand.domain]
    if domain.free < demand.gpus:
        return 0
    return _place(s, job, demand, domain)


def _place_numbers(s: Any, job: Any, demand: Any, domain: Any) -> Any:
    node = _one_node(s, demand, domain, s.g[0].rule)
    if node != NONE:
        hold(s, job, node, demand.gpus)
        return 1
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if demand.gpus > group.largest and accepts(demand, index, domain.group_low):
            nodes = _whole_nodes(s, job, demand, group)
            if nodes > 0:
                return nodes
    if demand.scope > 0:
        return _anywhere(s, job, demand, domain, demand.scope)
    return 0


_place = either(_place_numbers, place_blocks, field="busy")
