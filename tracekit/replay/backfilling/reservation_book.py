"""What conservative backfilling keeps between passes: believed ends, reservations, and who has none yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.backfilling.ends import forget, outlived
from tracekit.replay.backfilling.waitlist import ANY, first_place, join_queue, leave_queue
from tracekit.replay.engine.compiled import inner
from tracekit.replay.engine.loop import enqueue, free_chain
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.state import WAITING, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Backfill

__all__ = ["SPARE_STEPS", "Book", "begin_line", "leave_line", "make_book", "set_next", "take_note"]

_STRIP = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("low", "high", "there", "step_low", "steps", "short"),
            *("plan_low", "planned", "last", "due", "stale", "open", "begin", "end"),
        )
    ]
)
_END = np.dtype([("time", np.int64), ("free", np.int64), ("gpus", np.int64), ("job", np.int64)])
_STEP = np.dtype([("time", np.int64), ("reserved", np.int64), ("free", np.int64), ("edge", np.int64)])
_PLAN = np.dtype([(name, np.int64) for name in ("time", "length", "gpus", "queue", "place", "rank")])
_LINE = np.dtype([(name, np.int64) for name in ("place", "rank", "high", "gpus", "due", "fit", "first")])
_FACTS = np.dtype([(name, np.int64) for name in ("late", "exact", "depth", "started")])


SPARE_STEPS = 8
"""Steps of a domain beyond two for each reservation, from which on those are dropped at which nothing changes."""


class Book(NamedTuple):
    """The arrays of one run."""

    strips: NDArray[np.void]
    """Of each domain: where its running jobs are in `ends`, the GPUs of its nodes that are there, where its steps are
    and in how many more is reserved than is free, where its plan is, the rank of the last job planned, the first time
    planned, whether to plan anew, a queue whose jobs are known to have a place, or NONE, and the steps around the hole
    that was found last (D,)."""
    ends: NDArray[np.void]
    """Believed ends of running jobs, ascending; `free`: GPUs free from then on if nothing else starts."""
    end: NDArray[np.int64]
    """When each running job is believed to end [ms] (n,)."""
    late: NDArray[np.void]
    """HEAP of running jobs that will outlive what is believed, by believed end."""
    late_at: NDArray[np.int32]
    """Position of each job in `late`, NONE when it is not there (n,)."""
    steps: NDArray[np.void]
    """Times at which reservations begin or end, what is reserved from then on, and what is free then. `edge`: what is
    free just before by what is believed of running jobs alone."""
    plan: NDArray[np.void]
    """Waiting jobs of each domain that have been planned, in order: when their reservations begin, NONE for never, for
    how long and how much, and where they are in the waitlist."""
    started: NDArray[np.int64]
    """Jobs started in this pass."""
    lines: NDArray[np.void]
    """Of each queue: the place and the rank of its first job that waits and is not planned, NONE and ANY without; where
    its places end; the GPUs that its jobs ask for; when one of them last stood among the first whose reservations
    begin; a place before which none of them may start in this pass; and the place of the first that waits, planned or
    not, `high` without (Q,)."""
    facts: NDArray[np.void]
    """Sizes and settings (1,)."""


def make_book(state: State, mechanism: Backfill) -> Book:
    """Return the book of a state before the first instant, its nodes there."""
    n = len(state.jobs)
    domain_of = state.groups["domain"][state.nodes["group"]]
    gpus = state.nodes["gpus"].astype(np.int64)
    room = np.bincount(domain_of, weights=gpus, minlength=len(state.domains)).astype(np.int64)
    there = np.bincount(domain_of, weights=gpus * state.nodes["up"], minlength=len(state.domains)).astype(np.int64)
    jobs = np.bincount(state.demands["domain"][state.jobs["demand"]], minlength=len(state.domains))
    planned = np.minimum(jobs, mechanism.depth or n)
    strips = np.zeros(len(state.domains), _STRIP)
    strips["low"] = strips["high"] = np.cumsum(room)
    strips["there"], strips["stale"] = there, 1
    strips["plan_low"] = np.cumsum(planned) - planned
    steps = 2 * (planned + room) + SPARE_STEPS + 4
    strips["step_low"] = np.cumsum(steps) - steps
    return Book(
        strips,
        ends=np.zeros(int(room.sum()), _END),
        end=np.zeros(n, np.int64),
        late=np.zeros(min(n, int(room.sum())), records("HEAP")),
        late_at=np.full(n, NONE, np.int32),
        steps=np.zeros(int(steps.sum()), _STEP),
        plan=np.zeros(int(planned.sum()), _PLAN),
        started=np.zeros(int(room.max(initial=0)) + 1, np.int64),
        lines=_lines(state),
        facts=np.array([(0, mechanism.order.estimate_ms is None, mechanism.depth or n, 0)], _FACTS),
    )


def _lines(state: State) -> NDArray[np.void]:
    lines = np.zeros(len(state.queues), _LINE)
    lines["place"] = lines["due"] = NONE
    lines["rank"] = ANY
    lines["high"] = lines["first"] = np.append(state.queues["base"][1:], len(state.waiting))
    lines["gpus"][state.demands["queue"]] = state.demands["gpus"]
    return lines


@inner
def set_next(b: Any, w: Any, q: int, low: int) -> None:
    """Look from a place on for the first job of a queue that waits."""
    line = b.lines[q]
    line.place = first_place(w, low, line.high, ANY)
    line.rank = w.rank[line.place] if line.place != NONE else ANY


@inner
def begin_line(b: Any, w: Any, q: int) -> None:
    """Take a queue's first job that waits for the first that is not planned."""
    line = b.lines[q]
    there = line.first < line.high
    line.place = line.first if there else NONE
    line.rank = w.rank[line.first] if there else ANY


@inner
def leave_line(s: Any, b: Any, w: Any, j: int) -> None:
    """Take a job out of its queue."""
    q = s.demands[s.jobs[j].demand].queue
    line = b.lines[q]
    place = s.queues[q].base + w.slot[j]
    leave_queue(s, w, j)
    if place == line.first:
        found = first_place(w, place + 1, line.high, ANY)
        line.first = found if found != NONE else line.high


@inner
def _join_line(s: Any, b: Any, w: Any, j: int) -> None:
    """Put a job, which stands in its queue, among those that wait there."""
    q = s.demands[s.jobs[j].demand].queue
    join_queue(s, w, j)
    b.lines[q].first = min(b.lines[q].first, s.queues[q].base + w.slot[j])


@inner
def _expect(s: Any, b: Any, w: Any, j: int) -> None:
    """Take note of a waiting job that is not planned."""
    demand = s.demands[s.jobs[j].demand]
    strip = b.strips[demand.domain]
    place = s.queues[demand.queue].base + w.slot[j]
    rank = w.rank[place]
    if rank < strip.last:
        strip.stale = 1
    line = b.lines[demand.queue]
    if rank < line.rank:
        line.place = place
        line.rank = rank


@inner
def take_note(s: Any, b: Any, w: Any, submitted: int) -> None:
    """Bring the book and the waitlist up to what the instant did; node changes are seen by `count_nodes`."""
    g = s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        forget(s, b, s.demands[s.jobs[j].demand].domain, j)
        free_chain(s, s.jobs[j])
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        leave_line(s, b, w, j)
        s.jobs[j].demand = s.demands[s.jobs[j].demand].relaxed
        enqueue(s, j, s.jobs[j].key)
        _join_line(s, b, w, j)
        b.strips[s.demands[s.jobs[j].demand].domain].stale = 1
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            _join_line(s, b, w, j)
            _expect(s, b, w, j)
    outlived(s, b)
