"""Waiting jobs by what they ask for, in the order of their keys, so that the first short enough is found quickly.

Each queue is a stretch of places, one for every job that will ever stand in it, in the order of the keys. A place holds
the estimate of its job while that waits. The least of every 16 places is kept, and the least of every 16 of these, and
so on: a search looks at a few dozen numbers however long the queue is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.kernel import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState

__all__ = ["Waitlist", "make_waitlist"]

_NOBODY = 1 << 62
"""Longer than every estimate."""


class Waitlist(NamedTuple):
    """The arrays of one run; queue q of the state has the places from its `base` to that of the next."""

    slot: NDArray[np.int32]
    """Place of each job in a queue, counted from the queue's first (n,)."""
    job: NDArray[np.int64]
    """Job of each place (P,)."""
    rank: NDArray[np.int32]
    """How many jobs of the run have smaller keys, by place (P,)."""
    least: NDArray[np.int64]
    """Estimates by place [ms], then the least of every 16, and so on; each level is filled up to whole 16s."""
    level: NDArray[np.int64]
    """Where each level begins in `least`, and its end (L + 1,)."""


def make_waitlist(state: EngineState, arrays: Any, key: Any) -> Waitlist:
    """Return the places of all jobs of a state, nobody waiting yet."""
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
