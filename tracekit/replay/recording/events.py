"""The recorded schedule, carried out again: jobs start and end when the log says so.

Only the places are the engine's: a gang goes where the placement rule puts it, or on any GPUs of one model that are
free. Where too few are free the job runs all the same, on no node, and counts as busy: the log says that it ran.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.setting import Run
from tracekit.replay.kernel import END, END_AT_ONCE, START_RUN, SUBMIT_JOB
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.mechanisms import Recorded

__all__ = ["prepare"]

_EVENTS = 5
"""Events at most in the place of one instant."""


def prepare(recorded: Recorded, setting: Setting) -> Run:
    """Return a run that carries out the recorded starts and ends; jobs whose start is -1 are not looked at."""
    state = build(setting, Ordered(by_arrival), kind="Recorded")
    # What did run had a place: a gang may be anywhere among nodes of one model.
    state.demands["scope"] = 2
    arrays = open_nodes(state, setting.cluster)
    times, kinds, jobs = _events(state.jobs["submit"], recorded.start_ms, recorded.end_ms)
    done = 0

    def step(instants: int) -> bool:
        nonlocal done
        part = slice(done, done + _EVENTS * instants)
        kernel.carry_out(arrays, times[part], kinds[part], jobs[part])
        done = part.stop
        return done < len(times)

    return Run(state, step)


def _events(
    submit: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
    """Return time, kind and job of every event, by time, kind and job."""
    known = np.flatnonzero(start >= 0)
    ends = np.where(end[known] > start[known], END, END_AT_ONCE)
    times = np.concatenate([submit[known], start[known], end[known]])
    kinds = np.concatenate([np.full(len(known), SUBMIT_JOB), np.full(len(known), START_RUN), ends]).astype(np.int8)
    jobs = np.tile(known, 3)
    order = np.lexsort((jobs, kinds, times))
    return times[order], kinds[order], jobs[order]
