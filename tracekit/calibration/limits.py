"""Limits that show in a log: what users and VCs held at most while jobs of theirs waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.calibration.delays import in_time
from tracekit.replay.results.sizes import gpus_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs

__all__ = ["most_held_while_waiting"]


def most_held_while_waiting(jobs: Jobs, codes: NDArray[Any], among: NDArray[np.bool_]) -> int:
    """Return the most GPUs that anyone held at once while a job of theirs waited; 0 where nobody waited holding some.

    A limit cannot be below it, and where it binds often it is seen in full.

    Parameters
    ----------
    jobs : Jobs
        With recorded starts and ends.
    codes : array of int, shape (n,)
        Who each job is of, such as `Jobs.user`; -1 nobody known.
    among : array of bool, shape (n,)
        Jobs to learn from.
    """
    size = gpus_of(jobs) / 1000
    known = among & (codes >= 0) & (jobs.recorded_start_ms >= jobs.submit_ms)
    known &= jobs.recorded_end_ms >= jobs.recorded_start_ms
    rows = np.flatnonzero(known)
    if not len(rows):
        return 0
    rows = rows[np.argsort(codes[rows], kind="stable")]
    most = 0.0
    for own in np.split(rows, np.flatnonzero(np.diff(codes[rows])) + 1):
        submit, start, end = jobs.submit_ms[own], jobs.recorded_start_ms[own], jobs.recorded_end_ms[own]
        waits = start > submit
        if not waits.any():
            continue
        # What is held can only be largest right after a start, and a wait lasts until just before the job's own.
        moments = np.concatenate([start, submit])
        held = in_time(moments, start, end, size[own])
        waiting = in_time(moments, submit[waits], start[waits], np.ones(int(waits.sum())))
        most = max(most, float(held[waiting > 0].max(initial=0.0)))
    return int(np.floor(most + 1e-6))
