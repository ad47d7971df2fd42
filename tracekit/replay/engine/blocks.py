"""Buddy blocks of a node's GPUs, as bits: a block has 2^k GPUs and begins at a multiple of its size.

The GPUs of a node are the bits of one 64-bit number, those in use set. A free block is maximal when the block of twice
its size around it is not free.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.engine.compiled import count_trailing_zeros, inner

__all__ = ["MOST_GPUS", "WHOLE", "doubled", "free_levels", "lowest_block", "maximal", "span"]

MOST_GPUS = 64
"""GPUs that a node may have."""

WHOLE = 7
"""Bit beside those of the levels 0 to 6: a free node of the largest size of its group."""

_ALL = np.uint64(2**64 - 1)
_ZERO = np.uint64(0)

_ALIGNED = tuple(np.uint64(sum(1 << i for i in range(0, 64, 2 ** (k + 1)))) for k in range(6))
"""Where blocks of level k + 1 may begin."""


@inner
def span(gpu: int, gpus: int) -> Any:
    """Return the bits of so many neighbouring GPUs, at least 1 and at most 64."""
    return (_ALL >> np.uint64(64 - gpus)) << np.uint64(gpu)


@inner
def doubled(starts: Any, level: int) -> Any:
    """Return where free blocks of the next level begin, from those of this one."""
    if level >= 6:
        return _ZERO
    return starts & (starts >> np.uint64(1 << level)) & _ALIGNED[level]


@inner
def maximal(starts: Any, larger: Any, level: int) -> Any:
    """Return where maximal free blocks of a level begin, from where free blocks of it and of the next begin."""
    if level >= 6:
        return starts
    return starts & ~(larger | (larger << np.uint64(1 << level)))


@inner
def free_levels(busy: Any, gpus: int) -> int:
    """Return the levels at which a node has a maximal free block, as bits."""
    found = 0
    starts = ~busy & span(0, gpus)
    for level in range(7):
        if starts == _ZERO:
            break
        larger = doubled(starts, level)
        if maximal(starts, larger, level) != _ZERO:
            found |= 1 << level
        starts = larger
    return found


@inner
def lowest_block(busy: Any, gpus: int, level: int) -> Any:
    """Return the first GPU of the lowest maximal free block of a level; there is one."""
    starts = ~busy & span(0, gpus)
    for below in range(level):
        starts = doubled(starts, below)
    return np.int64(count_trailing_zeros(maximal(starts, doubled(starts, level), level)))
