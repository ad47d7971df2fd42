"""A binary heap of (key, job) in a stretch of an array, smallest first, that knows where each job is.

The position array makes removal and re-keying exact, so that no stale entries pile up and memory is bounded by the
jobs that are in the heap. Ties go to the smaller job.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import inner

__all__ = ["heap_pop", "heap_push", "heap_remove"]


@inner
def _rise(heap: Any, at: Any, base: int, place: int, key: int, job: int) -> None:
    while place > 0:
        parent = (place - 1) >> 1
        above = heap[base + parent]
        if above.key < key or (above.key == key and above.job < job):
            break
        heap[base + place].key = above.key
        heap[base + place].job = above.job
        at[above.job] = place
        place = parent
    heap[base + place].key = key
    heap[base + place].job = job
    at[job] = place


@inner
def _sink(heap: Any, at: Any, base: int, size: int, place: int, key: int, job: int) -> None:
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        below = heap[base + child]
        if child + 1 < size:
            other = heap[base + child + 1]
            # Which is smaller cannot be foretold: counted, not asked, it costs no wrong guess.
            child += (other.key < below.key) | ((other.key == below.key) & (other.job < below.job))
            below = heap[base + child]
        if key < below.key or (key == below.key and job < below.job):
            break
        heap[base + place].key = below.key
        heap[base + place].job = below.job
        at[below.job] = place
        place = child
    heap[base + place].key = key
    heap[base + place].job = job
    at[job] = place


@inner
def heap_push(heap: Any, at: Any, base: int, size: int, key: int, job: int) -> None:
    """Add a job to a heap that has `size` entries; the caller counts it."""
    _rise(heap, at, base, size, key, job)


@inner
def heap_pop(heap: Any, at: Any, base: int, size: int) -> None:
    """Take the first entry off a heap of `size` entries, at least one; the caller counts it."""
    at[heap[base].job] = -1
    if size > 1:
        last = heap[base + size - 1]
        _sink(heap, at, base, size - 1, 0, last.key, last.job)


@inner
def heap_remove(heap: Any, at: Any, base: int, size: int, job: int) -> None:
    """Take a job off a heap of `size` entries in which it is; the caller counts it."""
    place = at[job]
    at[job] = -1
    if place == size - 1:
        return
    last = heap[base + size - 1]
    key, other = last.key, last.job
    if place > 0:
        above = heap[base + ((place - 1) >> 1)]
        if key < above.key or (key == above.key and other < above.job):
            _rise(heap, at, base, place, key, other)
            return
    _sink(heap, at, base, size - 1, place, key, other)
