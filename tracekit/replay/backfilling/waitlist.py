"""Waiting jobs by their request, in key order, so that the first job that is short enough is found quickly.

Each queue is a range of places in key order, one for every job that will ever wait in it. A place holds the estimate of
its job while the job waits. The minimum of every 16 places is kept, and the minimum of every 16 of these, and so on: a
search reads a few dozen numbers, no matter how long the queue is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.kernel import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState


_NOBODY = 1 << 62
"""Larger than every estimate."""


class Waitlist(NamedTuple):
    """The arrays of one run; queue q of the state has the places from its `base` to the `base` of the next queue."""

    slot: NDArray[np.int32]
    """Place of each job in a queue, counted from the queue's first (n,)."""
    job: NDArray[np.int64]
    """Job of each place (P,)."""
    rank: NDArray[np.int32]
    """Number of jobs of the run with smaller keys, by place (P,)."""
    least: NDArray[np.int64]
    """Estimates by place [ms], then the minimum of every 16, and so on; each level is padded to a multiple of 16."""
    level: NDArray[np.int64]
    """Where each level begins in `least`, and the end of the last (L + 1,)."""


def make_waitlist(state: EngineState, arrays: Any, key: Any) -> Waitlist:
    """Return the places of all jobs of a state; no job waits yet."""
    n, room = len(state.jobs), len(state.waiting)
    keys = np.empty(n, np.int64)
    kernel.keys(arrays, key, keys)
    order = np.argsort(keys, kind="stable")
    queue_of = state.job_classes["queue"][state.jobs["job_class"]]
    kind = np.uint16 if len(state.queues) < 1 << 16 else np.int64
    order = order[np.argsort(queue_of[order].astype(kind), kind="stable")]
    slot = np.empty(n, np.int32)
    first = np.searchsorted(queue_of[order], np.arange(len(state.queues)))
    slot[order] = np.arange(n) - first[queue_of[order]]
    rank = np.empty(n, np.int32)
    rank[np.argsort(keys, kind="stable")] = np.arange(n)
    job = np.zeros(room, np.int64)
    for form in (state.job_classes["queue"], _relaxed_queue(state)):
        of_job = form[state.jobs["job_class"]]
        there = of_job != NONE
        job[state.queues["base"][of_job[there]] + slot[there]] = np.flatnonzero(there)
    sizes = [room]
    while sizes[-1] > 16:
        sizes.append((sizes[-1] + 15) // 16)
    level = np.concatenate([[0], np.cumsum([(size + 15) // 16 * 16 for size in sizes])]).astype(np.int64)
    return Waitlist(slot, job, rank[job], np.full(level[-1], _NOBODY), level)


def _relaxed_queue(state: EngineState) -> NDArray[np.int64]:
    relaxed = state.job_classes["relaxed"]
    return np.where(relaxed == NONE, NONE, state.job_classes["queue"][relaxed])
