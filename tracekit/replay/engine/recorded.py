"""The recorded schedule, carried out again: jobs start and end when the log says so.

Only the places are the engine's: a gang goes where the placement rule puts it, or on any GPUs of one model that are
free. Where too few are free the job runs all the same, on no node, and counts as busy: the log says that it ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.eventlog import DOWN, FINISH, SUBMIT, UP, log_start, tell
from tracekit.replay.engine.loop import advance, free_chain
from tracekit.replay.engine.nodes import NONE, node_joins, node_leaves, take_chain
from tracekit.replay.engine.placement import place_gang
from tracekit.replay.engine.state import DONE, PPM, RUNNING, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Recorded

__all__ = ["recorded_steps"]

_END, _SUBMIT, _START, _END_AT_ONCE = range(4)
"""Kinds of events, in the order of a moment."""

_EVENTS = 5
"""Events at most in the place of one instant."""


def recorded_steps(state: State, recorded: Recorded) -> Callable[[int], bool]:
    """Return what carries out some of the recorded starts and ends and tells whether more are to come.

    Jobs whose start is -1 are not looked at.
    """
    times, kinds, jobs = _events(state.jobs["submit"], recorded.start_ms, recorded.end_ms)
    done = 0

    def step(instants: int) -> bool:
        nonlocal done
        part = slice(done, done + _EVENTS * instants)
        _carry_out(state, times[part], kinds[part], jobs[part])
        done = part.stop
        return done < len(times)

    return step


def _events(
    submit: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
    """Return time, kind and job of every event, by time, kind and job."""
    known = np.flatnonzero(start >= 0)
    ends = np.where(end[known] > start[known], _END, _END_AT_ONCE)
    times = np.concatenate([submit[known], start[known], end[known]])
    kinds = np.concatenate([np.full(len(known), _SUBMIT), np.full(len(known), _START), ends]).astype(np.int8)
    jobs = np.tile(known, 3)
    order = np.lexsort((jobs, kinds, times))
    return times[order], kinds[order], jobs[order]


@inner
def _change_nodes(s: Any, until: int) -> None:
    """Let nodes join and leave up to a time, that included."""
    g = s.g[0]
    while g.change < g.changes and s.changes[g.change].time <= until:
        change = s.changes[g.change]
        advance(s, change.time)
        g.change += 1
        g.events += 1
        if change.up == s.nodes[change.node].up:
            continue
        if change.up:
            node_joins(g, s.nodes, s.groups, s.domains, s.bits, s.tops, change.node)
        else:
            node_leaves(g, s.nodes, s.groups, s.domains, s.bits, s.tops, change.node)
        tell(s.log, g, UP if change.up else DOWN, NONE, change.node, 0)


@compiled
def _carry_out(s: Any, times: Any, kinds: Any, jobs: Any) -> None:
    g = s.g[0]
    for i in range(len(times)):
        # Ends come before the changes of nodes of their moment.
        _change_nodes(s, times[i] - 1 if kinds[i] == _END else times[i])
        advance(s, times[i])
        g.events += 1
        j = jobs[i]
        job = s.jobs[j]
        if kinds[i] == _SUBMIT:
            job.status = WAITING
            g.pending += 1
            g.submitted += 1
            tell(s.log, g, SUBMIT, j, NONE, 0)
        elif kinds[i] == _START:
            _begin(s, j, job)
        else:
            _end(s, j, job)


@inner
def _begin(s: Any, j: int, job: Any) -> None:
    g = s.g[0]
    job.nodes = place_gang(s, j, s.demands[job.demand])
    if job.nodes == 0:
        g.busy += job.gpus
    job.status = RUNNING
    job.first = g.now
    job.rate = PPM
    g.pending -= 1
    g.running += 1
    log_start(s.log, g, s.takes, j, job)


@inner
def _end(s: Any, j: int, job: Any) -> None:
    g = s.g[0]
    job.status = DONE
    job.end = g.now
    job.ran = g.now - job.first
    job.attained = job.ran * job.gpus
    job.remaining = 0
    g.last_end = g.now
    g.busy_at_end = g.busy_ms
    g.free_at_end = g.free_ms
    g.fragmented_at_end = g.fragmented_ms
    g.running -= 1
    tell(s.log, g, FINISH, j, NONE, 0)
    if job.nodes == 0:
        g.busy -= job.gpus
    else:
        take_chain(g, s.nodes, s.groups, s.domains, s.bits, s.tops, s.takes, job.take, -1)
        free_chain(s, job)
