"""Believed ends of running jobs, a sorted list for each domain, and how many GPUs are free from each on."""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.backfilling.waitlist import ANY
from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.heap import heap_pop, heap_push, heap_remove
from tracekit.replay.engine.nodes import NONE

__all__ = ["believe", "believed_length", "count_nodes", "first_free", "forget", "free_around", "free_at", "outlived"]


@inner
def _first_after(ends: Any, low: int, high: int, time: int) -> int:
    """Return the first of ends [low, high) that is later than a time: often the very first."""
    if low < high and ends[low].time > time:
        return low
    while low < high:
        middle = (low + high) >> 1
        if ends[middle].time > time:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def _before(ends: Any, strip: Any, place: int) -> int:
    """Return the GPUs that are free just before the end at a place, or in the end where there is none."""
    return ends[place].free - ends[place].gpus if place < strip.high else strip.there


@inner
def _enter(ends: Any, strip: Any, time: int, gpus: int, job: int) -> None:
    """Enter a running job: until its end fewer GPUs are free."""
    place = _first_after(ends, strip.low, strip.high, time)
    free = _before(ends, strip, place)
    for i in range(strip.low, place):
        ends[i - 1] = ends[i]
        ends[i - 1].free -= gpus
    strip.low -= 1
    entry = ends[place - 1]
    entry.time = time
    entry.free = free
    entry.gpus = gpus
    entry.job = job


@inner
def _remove(b: Any, strip: Any, job: int) -> int:
    """Take a running job out; return when it was believed to end."""
    ends = b.ends
    place = strip.low
    # Most jobs end when they should, and so as the first.
    if ends[place].job != job:
        place = _first_after(ends, strip.low, strip.high, b.end[job] - 1)
        while ends[place].job != job:
            place += 1
    time = ends[place].time
    gpus = ends[place].gpus
    for i in range(place, strip.low, -1):
        ends[i] = ends[i - 1]
        ends[i].free += gpus
    strip.low += 1
    return time


@inner
def believe(s: Any, b: Any, j: int, end: int) -> None:
    """Book a running job with the end that is believed now."""
    d = s.demands[s.jobs[j].demand].domain
    b.end[j] = end
    _enter(b.ends, b.strips[d], end, s.jobs[j].gpus, j)
    if s.events[s.event_at[j]].key >> 2 > end:
        heap_push(b.late, b.late_at, 0, b.facts[0].late, end, j)
        b.facts[0].late += 1


@inner
def believed_length(b: Any, job: Any) -> int:
    """Return how long a job is believed to hold its GPUs [ms]: no time at all only where that is known."""
    return job.estimate if b.facts[0].exact else max(job.estimate, 1)


@inner
def forget(s: Any, b: Any, d: int, j: int) -> None:
    """Take note of a job that ended. If it was believed to run on, reservations may now begin sooner."""
    if _remove(b, b.strips[d], j) != s.g[0].now:
        b.strips[d].stale = 1
    if b.facts[0].late > 0 and b.late_at[j] != NONE:
        heap_remove(b.late, b.late_at, 0, b.facts[0].late, j)
        b.facts[0].late -= 1


@inner
def outlived(s: Any, b: Any) -> None:
    """Double the estimates of running jobs that should have ended."""
    now = s.g[0].now
    while b.facts[0].late > 0 and b.late[0].key <= now:
        j = b.late[0].job
        heap_pop(b.late, b.late_at, 0, b.facts[0].late)
        b.facts[0].late -= 1
        length = max(s.jobs[j].estimate, 1)
        while s.jobs[j].first + length <= now:
            length *= 2
        strip = b.strips[s.demands[s.jobs[j].demand].domain]
        strip.stale = 1
        _remove(b, strip, j)
        believe(s, b, j, s.jobs[j].first + length)


@inner
def count_nodes(s: Any, b: Any) -> None:
    """Count the GPUs that are there anew."""
    for d in range(len(b.strips)):
        strip = b.strips[d]
        there = np.int64(0)
        for k in range(s.domains[d].group_low, s.domains[d].group_high):
            for index in range(s.groups[k].low, s.groups[k].high):
                there += s.nodes[index].gpus * s.nodes[index].up
        for i in range(strip.low, strip.high):
            b.ends[i].free += there - strip.there
        strip.there = there
        strip.stale = 1


@inner
def free_at(b: Any, strip: Any, time: int) -> int:
    """Return the GPUs free at a time by what is believed of running jobs."""
    return _before(b.ends, strip, _first_after(b.ends, strip.low, strip.high, time))


@inner
def free_around(b: Any, strip: Any, time: int) -> tuple[int, int]:
    """Return the GPUs free just before a time, and at it, by what is believed of running jobs."""
    place = _first_after(b.ends, strip.low, strip.high, time - 1)
    edge = _before(b.ends, strip, place)
    while place < strip.high and b.ends[place].time == time:
        place += 1
    return edge, _before(b.ends, strip, place)


@inner
def first_free(b: Any, strip: Any, gpus: int) -> int:
    """Return the first believed end from which so many GPUs are free by what is believed of running jobs, or ANY."""
    low, high = strip.low, strip.high
    while low < high:
        middle = (low + high) >> 1
        if b.ends[middle].free >= gpus:
            high = middle
        else:
            low = middle + 1
    return b.ends[low].time if low < strip.high else ANY
