"""The events of the recorded schedule, in order (see recorded.pxi for what becomes of them)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.engine.build import build, open_nodes
from tracekit.replay.engine.ordered import Ordered
from tracekit.replay.engine.setting import Run
from tracekit.replay.kernel import END, END_AT_ONCE, START_RUN, SUBMIT_JOB
from tracekit.replay.keys import by_arrival
from tracekit.replay.recording.over_capacity import violations, violations_note

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.setting import Setting
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.recording.mechanism import RecordedSchedule

__all__ = ["prepare"]

_EVENTS = 5
"""Events at most in the place of one instant."""


def prepare(recorded: RecordedSchedule, setting: Setting) -> Run:
    """Return a run that carries out the recorded starts and ends; jobs whose start is -1 are left out."""
    state = build(setting, Ordered(by_arrival), kind="Recorded")
    # What did run had a place: a gang may be anywhere among nodes of one model.
    state.job_classes["scope"] = 2
    arrays = open_nodes(state, setting.cluster)
    times, kinds, jobs = _events(state.jobs["submit"], recorded.start_ms, recorded.end_ms)
    done = 0

    def step(instants: int) -> bool:
        nonlocal done
        part = slice(done, done + _EVENTS * instants)
        kernel.carry_out(arrays, times[part], kinds[part], jobs[part])
        done = part.stop
        return done < len(times)

    def complete(outcome: Outcome) -> Outcome:
        found = violations(setting.jobs, setting.cluster, setting.assignment, recorded, setting.trace)
        return replace(outcome, notes=(*recorded.notes, violations_note(found)), violations=found)

    return Run(state, step, complete)


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
