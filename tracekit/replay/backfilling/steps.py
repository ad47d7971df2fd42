"""What reservations leave free: a domain's reservations as a few steps over the believed ends of its running jobs.

What running jobs give back only grows with time, so that a hole is found by walking the steps and, in the one where it
begins, a binary search of the ends (see `ends`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tracekit.replay.backfilling.ends import first_free, free_around, free_at
from tracekit.replay.backfilling.waitlist import ANY
from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.nodes import NONE

__all__ = [
    "begin_steps",
    "fill",
    "give_up",
    "hole",
    "horizon",
    "longest",
    "move_steps",
    "put_off",
    "reserve",
    "run_instead",
    "tidy",
]


@inner
def begin_steps(b: Any, strip: Any, now: int) -> None:
    """Let nothing be reserved from now on."""
    strip.steps = 1
    strip.short = 0
    step = b.steps[strip.step_low]
    step.time = now
    step.reserved = 0
    step.free = step.edge = free_at(b, strip, now)


@inner
def move_steps(b: Any, strip: Any, now: int) -> None:
    """Forget the steps that are past."""
    base = strip.step_low
    past = 0
    while past + 1 < strip.steps and b.steps[base + past + 1].time <= now:
        past += 1
    if past > 0:
        strip.steps -= past
        for k in range(base, base + strip.steps):
            b.steps[k] = b.steps[k + past]
    step = b.steps[base]
    step.time = now
    step.free = free_at(b, strip, now) - step.reserved


@inner
def hole(b: Any, strip: Any, gpus: int, length: int) -> int:
    """Return the first time from which so many GPUs are free for so long, NONE where there is none.

    Notes the last step up to that time, and the first from its end on, for `fill`.
    """
    high = strip.step_low + strip.steps
    since = NONE
    strip.end = high
    for k in range(strip.step_low, high):
        step = b.steps[k]
        if since != NONE and step.time >= since + length:
            strip.end = k
            break
        if step.free >= gpus:
            if since == NONE:
                since = step.time
                strip.begin = k
            continue
        since = NONE
        edge = b.steps[k + 1].edge if k + 1 < high else strip.there
        if edge >= gpus + step.reserved:
            since = first_free(b, strip, gpus + step.reserved)
            strip.begin = k
    return since


@inner
def longest(b: Any, strip: Any, gpus: int, until: int) -> int:
    """Return for how long so many GPUs are free from the best of the times before `until`, ANY where for ever."""
    high = strip.step_low + strip.steps
    since = NONE
    best: Any = np.int64(0)
    for k in range(strip.step_low, high):
        step = b.steps[k]
        if since == NONE and step.time >= until:
            return best
        if step.free >= gpus:
            if since == NONE:
                since = step.time
            continue
        if since != NONE:
            best = max(best, step.time - since)
            since = NONE
        edge = b.steps[k + 1].edge if k + 1 < high else strip.there
        if step.time < until and edge >= gpus + step.reserved:
            since = first_free(b, strip, gpus + step.reserved)
            if since >= until:
                return best
    return best if since == NONE else ANY


@inner
def _insert(b: Any, strip: Any, k: int, time: int) -> None:
    """Let a new step, at which nothing changes yet, begin at a time between two steps, or after the last."""
    for i in range(strip.step_low + strip.steps, k, -1):
        b.steps[i] = b.steps[i - 1]
    strip.steps += 1
    step = b.steps[k]
    step.time = time
    step.reserved = b.steps[k - 1].reserved
    step.edge, free = free_around(b, strip, time)
    step.free = free - step.reserved
    strip.short += step.free < 0


@inner
def _span(b: Any, strip: Any, since: int, until: int) -> tuple[int, int]:
    """Return the steps that begin at two times, the first not before the steps, made where there are none."""
    last = strip.step_low + strip.steps
    while b.steps[last - 1].time > until:
        last -= 1
    if b.steps[last - 1].time == until:
        last -= 1
    else:
        _insert(b, strip, last, until)
    first = last
    while b.steps[first - 1].time > since:
        first -= 1
    if b.steps[first - 1].time == since:
        return first - 1, last
    _insert(b, strip, first, since)
    return first, last + 1


@inner
def _add(b: Any, first: int, last: int, gpus: int) -> None:
    for k in range(first, last):
        b.steps[k].reserved += gpus
        b.steps[k].free -= gpus


@inner
def reserve(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Reserve GPUs for a while."""
    first, last = _span(b, strip, time, time + length)
    _add(b, first, last, gpus)


@inner
def fill(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Reserve GPUs in the hole that was just found."""
    first, last = strip.begin, strip.end
    if last == strip.step_low + strip.steps or b.steps[last].time != time + length:
        _insert(b, strip, last, time + length)
    if b.steps[first].time != time:
        first += 1
        last += 1
        _insert(b, strip, first, time)
    _add(b, first, last, gpus)


@inner
def run_instead(b: Any, strip: Any, length: int, gpus: int) -> None:
    """Turn a reservation that begins now into a running job, which `ends` will tell of."""
    base = strip.step_low
    now = b.steps[base].time
    _, last = _span(b, strip, now, now + length)
    for k in range(base, last):
        b.steps[k].reserved -= gpus
        b.steps[k + 1].edge -= gpus


@inner
def put_off(b: Any, strip: Any, since: int, length: int, gpus: int) -> None:
    """Let a reservation that began before now begin now; some may then have less than they reserved."""
    base = strip.step_low
    now = b.steps[base].time
    first, last = _span(b, strip, max(since + length, now), now + length)
    for k in range(first, last):
        step = b.steps[k]
        strip.short += 0 <= step.free < gpus
        step.reserved += gpus
        step.free -= gpus


@inner
def give_up(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Drop a reservation."""
    first, last = _span(b, strip, time, time + length)
    for k in range(first, last):
        step = b.steps[k]
        strip.short -= -gpus <= step.free < 0
        step.reserved -= gpus
        step.free += gpus


@inner
def tidy(b: Any, strip: Any) -> None:
    """Drop the steps at which nothing begins or ends any more."""
    base = strip.step_low
    kept = base + 1
    for i in range(base + 1, base + strip.steps):
        if b.steps[i].reserved != b.steps[kept - 1].reserved:
            if kept < i:
                b.steps[kept] = b.steps[i]
            kept += 1
    strip.steps = kept - base


@inner
def horizon(b: Any, strip: Any, gpus: int) -> int:
    """Return the first time at which so many GPUs are not free, ANY where there is none."""
    for k in range(strip.step_low, strip.step_low + strip.steps):
        if b.steps[k].free < gpus:
            return b.steps[k].time
    return ANY
