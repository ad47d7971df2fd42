"""What reservations leave free: a domain's reservations as a few steps over the believed ends of its running jobs.

What running jobs give back only grows with time, so that a hole is found by walking the steps and, in the one where it
begins, a binary search of the ends (see `ends`).
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.backfilling.ends import first_free, free_around, free_at
from tracekit.replay.backfilling.waitlist import ANY
from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.nodes import NONE

__all__ = ["begin_steps", "give_up", "hole", "horizon", "move_steps", "put_off", "reserve", "run_instead", "tidy"]


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
    """Return the first time from which so many GPUs are free for so long, NONE where there is none."""
    high = strip.step_low + strip.steps
    since = NONE
    for k in range(strip.step_low, high):
        step = b.steps[k]
        if since != NONE and step.time >= since + length:
            break
        if step.free >= gpus:
            if since == NONE:
                since = step.time
            continue
        since = NONE
        edge = b.steps[k + 1].edge if k + 1 < high else strip.there
        if edge >= gpus + step.reserved:
            since = first_free(b, strip, gpus + step.reserved)
    return since


@inner
def _step(b: Any, strip: Any, time: int) -> int:
    """Return the step that begins at a time, made where there is none."""
    k = strip.step_low + strip.steps
    while b.steps[k - 1].time > time:
        k -= 1
    if b.steps[k - 1].time == time:
        return k - 1
    for i in range(strip.step_low + strip.steps, k, -1):
        b.steps[i] = b.steps[i - 1]
    strip.steps += 1
    step = b.steps[k]
    step.time = time
    step.reserved = b.steps[k - 1].reserved
    step.edge, free = free_around(b, strip, time)
    step.free = free - step.reserved
    strip.short += step.free < 0
    return k


@inner
def reserve(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Reserve GPUs for a while."""
    first = _step(b, strip, time)
    last = _step(b, strip, time + length)
    for k in range(first, last):
        b.steps[k].reserved += gpus
        b.steps[k].free -= gpus


@inner
def run_instead(b: Any, strip: Any, length: int, gpus: int) -> None:
    """Turn a reservation that begins now into a running job, which `ends` will tell of."""
    base = strip.step_low
    last = _step(b, strip, b.steps[base].time + length)
    for k in range(base, last):
        b.steps[k].reserved -= gpus
        b.steps[k + 1].edge -= gpus


@inner
def put_off(b: Any, strip: Any, since: int, length: int, gpus: int) -> None:
    """Let a reservation that began before now begin now; some may then have less than they reserved."""
    base = strip.step_low
    now = b.steps[base].time
    first = _step(b, strip, max(since + length, now))
    last = _step(b, strip, now + length)
    for k in range(first, last):
        step = b.steps[k]
        strip.short += 0 <= step.free < gpus
        step.reserved += gpus
        step.free -= gpus


@inner
def give_up(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Drop a reservation."""
    first = _step(b, strip, time)
    last = _step(b, strip, time + length)
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
