"""Planners take running jobs off their GPUs, and let them go on elsewhere: what that costs, and what the log says."""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.eventlog import forgive_stop
from tracekit.replay.engine.loop import free_chain, release, start, suspend
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.progress import overhead_of, settle

__all__ = ["go_on", "lose_job", "stop_job"]


@inner
def stop_job(s: Any, key: Any, j: int) -> None:
    """Take a running job off its GPUs; `evicted` is the row of its stop in the log, plus 1."""
    job = s.jobs[j]
    settle(job, s.g[0].now)
    release(s, job, s.demands[job.demand].domain)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)


@inner
def lose_job(s: Any, job: Any) -> None:
    """Book a stopped job that did not start again as preempted."""
    job.evicted = 0
    free_chain(s, job)
    job.preemptions += 1
    job.overhead += overhead_of(s, job.gpus)


@inner
def _charge(s: Any, job: Any, cost: int) -> None:
    """Charge a job that goes on elsewhere, in the row of its stop too."""
    g = s.g[0]
    if g.log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = cost
    job.overhead += cost
    job.migrations += 1
    job.evicted = 0


@inner
def _same_seats(s: Any, old: int, new: int) -> bool:
    """Return whether two chains of equally many links name the same GPUs."""
    while old != NONE:
        link = new
        while link != NONE and (s.takes[link].node != s.takes[old].node or s.takes[link].gpu != s.takes[old].gpu):
            link = s.takes[link].next
        if link == NONE:
            return False
        old = s.takes[old].next
    return True


@inner
def go_on(s: Any, key: Any, j: int, old: int, nodes: int, gpus: int, rate: int, resize_ms: int, beside: Any) -> None:
    """Run a waiting or moving job on the GPUs that it was just given; `old` is the chain that it had.

    Where jobs share GPUs (`beside` is not None) it may be back where it was, and then it is charged nothing.
    """
    job = s.jobs[j]
    old_gpus = job.gpus
    fresh = job.take
    if beside is not None and job.evicted and old_gpus == gpus and _same_seats(s, old, fresh):
        forgive_stop(s.log, s.g[0], job)
    job.take = old
    free_chain(s, job)
    job.take = fresh
    job.gpus = gpus
    if job.evicted:
        _charge(s, job, resize_ms if old_gpus != gpus else overhead_of(s, gpus))
    start(s, key, j, nodes, rate)
