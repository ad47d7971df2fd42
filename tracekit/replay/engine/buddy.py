"""Buddy placement: a gang gets one aligned block of 2^k GPUs, rounded up, or whole nodes.

- A gang whose rounded size is at most the largest node goes into the smallest maximal free block that suffices: of the
  blocks of that size the one on the lowest node, and there the lowest. Nothing smaller is broken up for it.
- A larger one takes free nodes of the largest size, as many as it needs, in the first group that has them.

It holds all GPUs of its blocks; `spare` of the job counts those that it did not ask for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.blocks import lowest_block
from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.nodes import NONE, first_with, take_block

__all__ = ["find_block", "hold_block", "place_blocks"]

_ONE = np.uint64(1)


@inner
def _accepts(demand: Any, group: int, low: int) -> bool:
    return (demand.accept >> np.uint64(group - low)) & _ONE == _ONE


@inner
def hold_block(s: Any, job: Any, node: int, gpu: int, gpus: int) -> None:
    """Take a block of a node and chain it to the job."""
    g = s.g[0]
    link = g.free_take
    take = s.takes[link]
    g.free_take = take.next
    take.node = node
    take.gpu = gpu
    take.gpus = gpus
    take.next = job.take
    job.take = link
    take_block(g, s.nodes, s.groups, s.domains, s.bits, s.tops, take)


@inner
def find_block(s: Any, demand: Any, domain: Any, level: int) -> int:
    """Return node * 8 + level of the best block of at least a level, or NONE."""
    for size in range(level, 7):
        for index in range(domain.group_low, domain.group_high):
            group = s.groups[index]
            if (1 << size) > group.largest or not _accepts(demand, index, domain.group_low):
                continue
            node = first_with(group, s.bits, s.tops, size)
            if node != NONE:
                return node * 8 + size
    return NONE


@inner
def _whole_free(s: Any, group: Any, enough: int) -> bool:
    """Return whether a group has so many free nodes of its largest size."""
    row = group.bits + group.largest * group.words
    found = 0
    for word in range(group.words):
        bits = s.bits[row + word]
        while bits != np.uint64(0):
            bits &= bits - _ONE
            found += 1
            if found >= enough:
                return True
    return False


@inner
def place_blocks(s: Any, job: Any, demand: Any, domain: Any) -> int:
    """Take blocks for a job without GPUs; return the nodes it spans, 0 (nothing taken) when it cannot be placed."""
    size, level = 1, 0
    while size < demand.gpus:
        size *= 2
        level += 1
    found = find_block(s, demand, domain, level)
    if found != NONE:
        node = s.nodes[found >> 3]
        hold_block(s, job, found >> 3, lowest_block(node.busy, node.gpus, found & 7), size)
        job.spare = size - demand.gpus
        return 1
    for index in range(domain.group_low, domain.group_high):
        group = s.groups[index]
        if size <= group.largest or not _accepts(demand, index, domain.group_low):
            continue
        wanted = (demand.gpus + group.largest - 1) // group.largest
        if _whole_free(s, group, wanted):
            for _ in range(wanted):
                hold_block(s, job, first_with(group, s.bits, s.tops, group.largest), 0, group.largest)
            job.spare = wanted * group.largest - demand.gpus
            return wanted
    return 0
