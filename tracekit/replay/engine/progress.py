"""What a running job gets done, and when something happens to it next.

Progress is settled whenever something about a running job changes, so that its rate may change at any event.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import either, inner
from tracekit.replay.engine.eventlog import RATE, tell
from tracekit.replay.engine.heap import heap_push, heap_remove
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.state import KIND_FINISH, KIND_TIMER, PPM

__all__ = ["change_rate", "held", "key_now", "overhead_of", "schedule_event", "settle", "unschedule_event"]


def _asked(job: Any) -> Any:
    return job.gpus


def _in_blocks(job: Any) -> Any:
    return job.gpus + job.spare


held = either(_asked, _in_blocks, field="spare")
"""The GPUs that a running job holds."""


@inner
def settle(job: Any, now: int) -> None:
    """Book what a running job did since it was last looked at."""
    elapsed = now - job.since
    if elapsed == 0:
        return
    job.since = now
    job.ran += elapsed
    job.attained += elapsed * held(job)
    idle = min(elapsed, job.overhead)
    job.overhead -= idle
    job.overhead_done += idle
    job.remaining = max(job.remaining - (elapsed - idle) * job.rate, 0)


@inner
def key_now(s: Any, key: Any, job: Any) -> int:
    """Return the key of a job that is settled: smaller goes first."""
    remaining = (job.remaining + PPM - 1) // PPM
    if s.g[0].stall == 0:
        remaining += job.overhead
    return key(job.submit, job.gpus, job.estimate, remaining, job.attained, s.level_values[job.level], job.value)


@inner
def overhead_of(s: Any, gpus: int) -> int:
    """Return what a preemption or migration of a gang costs [ms]."""
    return s.overheads[min(gpus, len(s.overheads) - 1)]


@inner
def schedule_event(s: Any, j: int) -> None:
    """Enter the next event of a running, settled job: its end, or before it the crossing of a threshold."""
    g = s.g[0]
    job = s.jobs[j]
    # A division by a constant costs a fraction of one by a variable, and full speed is the usual one.
    left = (job.remaining + PPM - 1) // PPM if job.rate == PPM else (job.remaining + job.rate - 1) // job.rate
    end = g.now + job.overhead + left
    entry = end * 4 + KIND_FINISH
    if job.level < g.levels:
        missing = s.thresholds[job.level] - (job.attained - job.base)
        crossing = g.now + (missing + held(job) - 1) // held(job)
        if crossing < end:
            entry = crossing * 4 + KIND_TIMER
    if s.event_at[j] != NONE:
        heap_remove(s.events, s.event_at, 0, g.event_size, j)
        g.event_size -= 1
    heap_push(s.events, s.event_at, 0, g.event_size, entry, j)
    g.event_size += 1


@inner
def unschedule_event(s: Any, j: int) -> None:
    """Take the next event of a job out of the heap, if it has one."""
    g = s.g[0]
    if s.event_at[j] != NONE:
        heap_remove(s.events, s.event_at, 0, g.event_size, j)
        g.event_size -= 1


@inner
def change_rate(s: Any, j: int, rate: int) -> None:
    """Let a running job go on at another rate [ppm]."""
    g = s.g[0]
    job = s.jobs[j]
    if job.rate == rate:
        return
    settle(job, g.now)
    job.rate = rate
    schedule_event(s, j)
    tell(s.log, g, RATE, j, NONE, rate)
