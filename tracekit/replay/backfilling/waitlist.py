"""Waiting jobs by what they ask for, in the order of their keys, so that the first short enough is found quickly.

Each queue is a stretch of places, one for every job that will ever stand in it, in the order of the keys. A place holds
the estimate of its job while that waits. The least of every 16 places is kept, and the least of every 16 of these, and
so on: a search looks at a few dozen numbers however long the queue is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.loop import dequeue, enqueue
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.progress import key_now

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State

__all__ = [
    "ANY",
    "NO_JOB",
    "NO_PLACE",
    "OPEN",
    "Waitlist",
    "first_place",
    "join_queue",
    "leave_queue",
    "make_waitlist",
    "place_after",
    "relax",
    "stretch",
]

ANY = (1 << 62) - 1
"""A limit that every waiting job keeps."""

OPEN, NO_PLACE, NO_JOB = range(3)
"""What a pass knows of a queue (its `blocked`): nothing; its jobs have no place now; they have, but none may start."""

_NOBODY = 1 << 62


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


def make_waitlist(state: State, key: Any) -> Waitlist:
    """Return the places of all jobs of a state, nobody waiting yet."""
    n, room = len(state.jobs), len(state.waiting)
    keys = np.empty(n, np.int64)
    _keys(state, key, keys)
    order = np.argsort(keys, kind="stable")
    queue_of = state.demands["queue"][state.jobs["demand"]]
    kind = np.uint16 if len(state.queues) < 1 << 16 else np.int64
    order = order[np.argsort(queue_of[order].astype(kind), kind="stable")]
    slot = np.empty(n, np.int32)
    first = np.searchsorted(queue_of[order], np.arange(len(state.queues)))
    slot[order] = np.arange(n) - first[queue_of[order]]
    rank = np.empty(n, np.int32)
    rank[np.argsort(keys, kind="stable")] = np.arange(n)
    job = np.zeros(room, np.int64)
    for form in (state.demands["queue"], _relaxed_queue(state)):
        of_job = form[state.jobs["demand"]]
        there = of_job != NONE
        job[state.queues["base"][of_job[there]] + slot[there]] = np.flatnonzero(there)
    sizes = [room]
    while sizes[-1] > 16:
        sizes.append((sizes[-1] + 15) // 16)
    level = np.concatenate([[0], np.cumsum([(size + 15) // 16 * 16 for size in sizes])]).astype(np.int64)
    return Waitlist(slot, job, rank[job], np.full(level[-1], _NOBODY), level)


def _relaxed_queue(state: State) -> NDArray[np.int64]:
    relaxed = state.demands["relaxed"]
    return np.where(relaxed == NONE, NONE, state.demands["queue"][relaxed])


@compiled
def _keys(s: Any, key: Any, keys: Any) -> None:
    for j in range(len(keys)):
        keys[j] = key_now(s, key, s.jobs[j])


@inner
def _put(w: Any, place: int, value: int) -> None:
    before = w.least[place]
    w.least[place] = value
    for k in range(1, len(w.level) - 1):
        place >>= 4
        above = w.level[k] + place
        if value >= w.least[above]:
            if before > w.least[above]:
                break
            # It was the least of its 16, or as small.
            low = w.level[k - 1] + (place << 4)
            value = w.least[low]
            for i in range(low + 1, low + 16):
                value = min(value, w.least[i])
        before = w.least[above]
        if value == before:
            break
        w.least[above] = value


@inner
def join_queue(s: Any, w: Any, j: int) -> None:
    """Note a job that has been put into its queue."""
    queue = s.queues[s.demands[s.jobs[j].demand].queue]
    _put(w, queue.base + w.slot[j], s.jobs[j].estimate)
    if queue.blocked == NO_JOB:
        queue.blocked = OPEN


@inner
def leave_queue(s: Any, w: Any, j: int) -> None:
    """Take a job out of its queue."""
    dequeue(s, j)
    _put(w, s.queues[s.demands[s.jobs[j].demand].queue].base + w.slot[j], _NOBODY)


@inner
def relax(s: Any, w: Any, j: int) -> None:
    """Let a job whose patience ended wait for GPUs farther apart."""
    leave_queue(s, w, j)
    s.jobs[j].demand = s.demands[s.jobs[j].demand].relaxed
    enqueue(s, j, s.jobs[j].key)
    join_queue(s, w, j)


@inner
def stretch(queues: Any, waiting: Any, q: int) -> int:
    """Return the end of a queue's places."""
    return queues[q + 1].base if q + 1 < len(queues) else len(waiting)


@inner
def first_place(w: Any, low: int, high: int, limit: int) -> int:
    """Return the first of the places [low, high) whose job waits and has an estimate of at most `limit`, or NONE."""
    k = 0
    place = low
    while True:
        base = w.level[k]
        if base + place >= w.level[k + 1] or place << (4 * k) >= high:
            return NONE
        end = (place | 15) + 1
        while place < end and w.least[base + place] > limit:
            place += 1
        if place < end:
            break
        place >>= 4
        k += 1
        if k == len(w.level) - 1:
            return NONE
    while k > 0:
        k -= 1
        place <<= 4
        while w.least[w.level[k] + place] > limit:
            place += 1
    return place if place < high else NONE


@inner
def place_after(w: Any, low: int, high: int, rank: int) -> int:
    """Return the first of the places [low, high) whose job comes after a rank; `high` when there is none."""
    while low < high:
        middle = (low + high) >> 1
        if w.rank[middle] > rank:
            high = middle
        else:
            low = middle + 1
    return low
