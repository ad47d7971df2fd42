"""Bind private cells to blocks of real nodes.

A free block is one that no private cell is bound to; what runs on it does not matter. The smallest free block that
suffices is taken, and of equals the one with the fewest GPUs in use by jobs that must make way; a larger one is halved,
the half with fewer of these being taken. By this rule of buddies a cell finds its block whatever the order in which
cells come and go.

Each chain keeps one bit a node for each size of block and number of such GPUs. Nodes that changed are entered anew only
when the next job is tried.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.blocks import doubled, maximal, span
from tracekit.replay.engine.compiled import count_trailing_zeros, inner
from tracekit.replay.engine.nodes import NONE, first_with, node_joins, node_leaves

__all__ = ["bind", "changed", "refresh", "rows_of", "unbind"]

LEVELS = 7

_ZERO, _ONE = np.uint64(0), np.uint64(1)
_MASKS = tuple(np.uint64(number) for number in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
_SHIFTS = (np.uint64(8), np.uint64(16), np.uint64(32))
_MOST = np.uint64(127)


def rows_of(level: int) -> int:
    """Return how many rows all blocks below a level need: one for each number of GPUs from 0 to the whole block."""
    return (1 << level) - 1 + level


@inner
def _row(level: int, used: int) -> int:
    return (1 << level) - 1 + level + used


@inner
def _ones(bits: Any) -> Any:
    bits -= (bits >> _ONE) & _MASKS[0]
    bits = (bits & _MASKS[1]) + ((bits >> np.uint64(2)) & _MASKS[1])
    bits = (bits + (bits >> np.uint64(4))) & _MASKS[2]
    for shift in _SHIFTS:
        bits += bits >> shift
    return np.int64(bits & _MOST)


@inner
def _used(soft: Any, gpu: Any, level: int) -> Any:
    """Return how many GPUs of a block are in use by jobs that must make way."""
    return _ones(soft & span(gpu, 1 << level))


@inner
def _best(starts: Any, soft: Any, level: int) -> Any:
    """Return 64 * used GPUs + first GPU of the block with the fewest, the lowest of equals."""
    best = np.int64(1 << 20)
    while starts != _ZERO:
        gpu = np.int64(count_trailing_zeros(starts))
        best = min(best, _used(soft, gpu, level) * 64 + gpu)
        starts &= starts - _ONE
    return best


@inner
def _enter(chain: Any, bits: Any, tops: Any, row: int, bit: int) -> None:
    word = bit >> 6
    bits[chain.bits + row * chain.words + word] |= _ONE << np.uint64(bit & 63)
    tops[chain.tops + row * chain.summary + (word >> 6)] |= _ONE << np.uint64(word & 63)


@inner
def _leave(chain: Any, bits: Any, tops: Any, row: int, bit: int) -> None:
    word = bit >> 6
    at = chain.bits + row * chain.words + word
    bits[at] &= ~(_ONE << np.uint64(bit & 63))
    if bits[at] == _ZERO:
        tops[chain.tops + row * chain.summary + (word >> 6)] &= ~(_ONE << np.uint64(word & 63))


@inner
def changed(h: Any, node: int) -> None:
    """Note that the blocks of a node are other ones, or are used otherwise."""
    if h.hosts[node].changed == 0:
        h.hosts[node].changed = 1
        h.changed[h.c[0].changed] = node
        h.c[0].changed += 1


@inner
def _reopen(s: Any, o: Any, index: int, bound: Any) -> None:
    """Enter a node into the index of GPUs that nobody uses and that are outside bound cells."""
    node = o.nodes[index]
    if node.up:
        node_leaves(o.g[0], o.nodes, o.groups, o.domains, o.bits, o.tops, index)
    node.busy = (s.nodes[index].busy | bound) & span(0, node.gpus)
    node.free = node.gpus - _ones(node.busy)
    if s.nodes[index].up:
        node_joins(o.g[0], o.nodes, o.groups, o.domains, o.bits, o.tops, index)


@inner
def _enter_rows(h: Any, node: int) -> None:
    """Enter a node into the rows of its free blocks."""
    host = h.hosts[node]
    chain = h.chains[host.chain]
    starts = ~host.bound & span(0, host.width)
    if host.up == 0:
        starts = _ZERO
    for level in range(LEVELS):
        larger = doubled(starts, level)
        found = maximal(starts, larger, level)
        row = NONE
        if found != _ZERO:
            row = _row(level, _best(found, host.soft, level) >> 6)
        old = h.rows[node, level]
        if row != old:
            if old != NONE:
                _leave(chain, h.bits, h.tops, old, host.bit)
            if row != NONE:
                _enter(chain, h.bits, h.tops, row, host.bit)
            h.rows[node, level] = row
        starts = larger


@inner
def refresh(s: Any, o: Any, h: Any) -> None:
    """Enter the nodes that changed into the rows of their free blocks, and into those of `o`."""
    c = h.c[0]
    for i in range(c.changed):
        h.hosts[h.changed[i]].changed = 0
        _enter_rows(h, h.changed[i])
        _reopen(s, o, h.changed[i], h.hosts[h.changed[i]].bound)
    c.changed = 0


@inner
def _find(h: Any, chain: Any, level: int) -> int:
    """Return node * 8 + level of the best free block of at least a level, or NONE."""
    for size in range(level, chain.largest + 1):
        for used in range((1 << size) + 1):
            at = first_with(chain, h.bits, h.tops, _row(size, used))
            if at != NONE:
                return h.members[at] * 8 + size
    return NONE


@inner
def bind(h: Any, index: int) -> bool:
    """Bind a private cell to a free block; return False where there is none, for which nodes must be missing.

    The rows of all nodes are up to date before (see `refresh`) and, of this chain, after.
    """
    cell = h.cells[index]
    found = _find(h, h.chains[cell.chain], cell.level)
    if found == NONE:
        return False
    host = h.hosts[found >> 3]
    size = found & 7
    starts = ~host.bound & span(0, host.width)
    for level in range(size):
        starts = doubled(starts, level)
    gpu = _best(maximal(starts, doubled(starts, size), size), host.soft, size) & 63
    while size > cell.level:
        size -= 1
        other = gpu + (1 << size)
        if _used(host.soft, other, size) < _used(host.soft, gpu, size):
            gpu = other
    cell.node = found >> 3
    cell.gpu = gpu
    host.bound |= span(gpu, 1 << size)
    _enter_rows(h, cell.node)
    changed(h, cell.node)
    return True


@inner
def unbind(h: Any, index: int) -> None:
    """Give the block of a private cell back."""
    cell = h.cells[index]
    h.hosts[cell.node].bound &= ~span(cell.gpu, 1 << cell.level)
    changed(h, cell.node)
    cell.node = NONE
