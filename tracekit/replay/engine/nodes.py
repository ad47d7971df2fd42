"""Which nodes have how many free GPUs, indexed: no question looks at all nodes.

Each group keeps, for every number of free GPUs, one bit a node; a second layer tells which words hold a bit. The first
node with exactly f free GPUs is two bit scans away, and the lowest index comes first, which is the rule for ties.

Under buddy placement nodes have the fields of BLOCK_NODE too, which chooses the functions for blocks. A node then
stands in the row of each level at which it has a maximal free block, and, wholly free and of the largest size, in the
last row.

Where jobs share GPUs by a plan, nodes have the field of SEAT_NODE: the place of their first GPU among the takes. Each
link of a chain then is one GPU, which is busy while any job has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.blocks import WHOLE, free_levels, span
from tracekit.replay.engine.compiled import count_trailing_zeros, either, inner

__all__ = [
    "NONE",
    "chain_fits",
    "delist",
    "enlist",
    "first_with",
    "node_joins",
    "node_leaves",
    "take_block",
    "take_chain",
    "take_gpus",
    "take_seat",
]

NONE = -1
"""No node, no job, end of a chain."""

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


def _enter_blocks(groups: Any, bits: Any, tops: Any, node: Any) -> None:
    group = groups[node.group]
    node.blocks = free_levels(node.busy, node.gpus)
    if node.busy == _ZERO and node.gpus == group.largest:
        node.blocks |= 1 << WHOLE
    word = node.bit >> 6
    for level in range(WHOLE + 1):
        if (node.blocks >> level) & 1:
            row = group.largest if level == WHOLE else level
            bits[group.bits + row * group.words + word] |= _ONE << np.uint64(node.bit & 63)
            tops[group.tops + row * group.summary + (word >> 6)] |= _ONE << np.uint64(word & 63)


def _leave_blocks(groups: Any, bits: Any, tops: Any, node: Any) -> None:
    group = groups[node.group]
    word = node.bit >> 6
    for level in range(WHOLE + 1):
        if (node.blocks >> level) & 1:
            row = group.largest if level == WHOLE else level
            at = group.bits + row * group.words + word
            bits[at] &= ~(_ONE << np.uint64(node.bit & 63))
            if bits[at] == _ZERO:
                tops[group.tops + row * group.summary + (word >> 6)] &= ~(_ONE << np.uint64(word & 63))


def _enter_number(groups: Any, bits: Any, tops: Any, node: Any) -> None:
    group = groups[node.group]
    word = node.bit >> 6
    row = group.bits + node.free * group.words
    bits[row + word] |= _ONE << np.uint64(node.bit & 63)
    tops[group.tops + node.free * group.summary + (word >> 6)] |= _ONE << np.uint64(word & 63)


def _leave_number(groups: Any, bits: Any, tops: Any, node: Any) -> None:
    group = groups[node.group]
    word = node.bit >> 6
    row = group.bits + node.free * group.words
    bits[row + word] &= ~(_ONE << np.uint64(node.bit & 63))
    if bits[row + word] == _ZERO:
        tops[group.tops + node.free * group.summary + (word >> 6)] &= ~(_ONE << np.uint64(word & 63))


_enter = either(_enter_number, _enter_blocks, field="busy")
_leave = either(_leave_number, _leave_blocks, field="busy")


@inner
def first_with(group: Any, bits: Any, tops: Any, free: int) -> int:
    """Return the lowest node of a group with exactly `free` free GPUs, or NONE."""
    top = group.tops + free * group.summary
    for i in range(group.summary):
        if tops[top + i] != _ZERO:
            word = i * 64 + np.int64(count_trailing_zeros(tops[top + i]))
            found = bits[group.bits + free * group.words + word]
            return group.low + word * 64 + np.int64(count_trailing_zeros(found))
    return NONE


@inner
def take_gpus(g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, index: int, gpus: int) -> None:
    """Take GPUs that a node has free, or free -`gpus` of it.

    On a node that left, only a chain that is put back takes any, and what is freed only comes back with the node.
    """
    node = nodes[index]
    g.busy += gpus
    if node.up == 0:
        node.free -= gpus
        return
    _leave(groups, bits, tops, node)
    if node.free == node.gpus:
        g.fragmented += node.free
    node.free -= gpus
    g.fragmented -= gpus
    if node.free == node.gpus:
        g.fragmented -= node.free
    g.free -= gpus
    domains[groups[node.group].domain].free -= gpus
    _enter(groups, bits, tops, node)


@inner
def node_joins(g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, index: int) -> None:
    """Put a node into the index."""
    node = nodes[index]
    node.up = 1
    g.free += node.free
    if node.free != node.gpus:
        g.fragmented += node.free
    domains[groups[node.group].domain].free += node.free
    _enter(groups, bits, tops, node)


@inner
def node_leaves(g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, index: int) -> None:
    """Take a node out of the index; the jobs on it run on."""
    node = nodes[index]
    _leave(groups, bits, tops, node)
    node.up = 0
    g.free -= node.free
    if node.free != node.gpus:
        g.fragmented -= node.free
    domains[groups[node.group].domain].free -= node.free


@inner
def enlist(s: Any, link: int, job: int, key: int) -> None:
    """Enter a link of a running job's chain among those of its node, by rank: the last in rank first."""
    take = s.takes[link]
    take.job = job
    take.key = key
    before = NONE
    after = s.nodes[take.node].holder
    while after != NONE and (s.takes[after].key > key or (s.takes[after].key == key and s.takes[after].job > job)):
        before = after
        after = s.takes[after].after
    take.before = before
    take.after = after
    if before == NONE:
        s.nodes[take.node].holder = link
    else:
        s.takes[before].after = link
    if after != NONE:
        s.takes[after].before = link


@inner
def delist(s: Any, link: int) -> None:
    """Take a link out of the jobs of its node."""
    take = s.takes[link]
    if take.before == NONE:
        s.nodes[take.node].holder = take.after
    else:
        s.takes[take.before].after = take.after
    if take.after != NONE:
        s.takes[take.after].before = take.before


def _has_number(node: Any, take: Any) -> Any:
    return node.free >= take.gpus


def _has_block(node: Any, take: Any) -> Any:
    return node.busy & span(take.gpu, take.gpus) == _ZERO


_is_free = either(_has_number, _has_block, field="busy")


@inner
def chain_fits(nodes: Any, takes: Any, first: int) -> bool:
    """Return whether the nodes of a chain still have what it names; a job may go back to a node that is leaving."""
    link = first
    while link != NONE:
        take = takes[link]
        if not _is_free(nodes[take.node], take):
            return False
        link = take.next
    return True


def _mark_number(node: Any, take: Any) -> None:
    pass


def _mark_block(node: Any, take: Any) -> None:
    node.busy ^= span(take.gpu, take.gpus)


_mark = either(_mark_number, _mark_block, field="busy")


@inner
def take_block(g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, take: Any) -> None:
    """Take the block of GPUs that a link names, where nodes have blocks."""
    _mark(nodes[take.node], take)
    take_gpus(g, nodes, groups, domains, bits, tops, take.node, take.gpus)


@inner
def take_seat(
    g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, takes: Any, node: int, gpu: int, sign: int
) -> None:
    """Let a job join (sign 1) or leave (sign -1) a GPU that jobs may share."""
    cell = takes[nodes[node].seat + gpu]
    if cell.gpus == (0 if sign > 0 else 1):
        take_gpus(g, nodes, groups, domains, bits, tops, node, sign)
    cell.gpus += sign


def _take_seats(
    g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, takes: Any, first: Any, sign: Any
) -> None:
    link = first
    while link != NONE:
        take_seat(g, nodes, groups, domains, bits, tops, takes, takes[link].node, takes[link].gpu, sign)
        link = takes[link].next


def _take_numbers(
    g: Any, nodes: Any, groups: Any, domains: Any, bits: Any, tops: Any, takes: Any, first: Any, sign: Any
) -> None:
    link = first
    while link != NONE:
        take = takes[link]
        _mark(nodes[take.node], take)
        take_gpus(g, nodes, groups, domains, bits, tops, take.node, sign * take.gpus)
        link = take.next


take_chain = either(_take_numbers, _take_seats, field="seat")
"""Take (sign 1) or free (sign -1) what a chain names."""
