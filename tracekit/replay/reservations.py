"""The scheduling pass of conservative backfilling.

In the order of the queue, each waiting job gets a reservation: the first time from which enough GPUs of the domain are
free, by number, for as long as it is believed to run. What running jobs give back only grows with time and is kept as
one sorted list of their believed ends; reservations lie over it as a few steps. So a hole is found by walking the steps
and a binary search, and not by walking all ends.

Reservations are made anew in each pass, but a pass in which no waiting job has a place, or which has given away the
free GPUs, needs no more of them. Behind the jobs that may have one, others start where they delay none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.replay.backfill import head_queue
from tracekit.replay.compiled import compiled, inner
from tracekit.replay.heap import heap_pop, heap_push, heap_remove
from tracekit.replay.loop import free_chain, next_instant, release, start
from tracekit.replay.nodes import NONE
from tracekit.replay.ordered import take
from tracekit.replay.state import PPM, WAITING, records
from tracekit.replay.waitlist import (
    ANY,
    NO_JOB,
    NO_PLACE,
    OPEN,
    first_place,
    join_queue,
    leave_queue,
    make_waitlist,
    place_after,
    relax,
    stretch,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.mechanisms import Backfill
    from tracekit.replay.state import State

__all__ = ["run_conservative"]

_STRIP = np.dtype([("low", np.int64), ("high", np.int64), ("there", np.int64)])
_END = np.dtype([("time", np.int64), ("free", np.int64), ("gpus", np.int64), ("job", np.int64)])
_STEP = np.dtype([("time", np.int64), ("reserved", np.int64), ("free", np.int64)])
_FACTS = np.dtype([(name, np.int64) for name in ("late", "exact", "depth", "steps", "started")])


class Book(NamedTuple):
    """The arrays of one run."""

    strips: NDArray[np.void]
    """Where each domain's running jobs are in `ends`, and the GPUs of its nodes that are there (D,)."""
    ends: NDArray[np.void]
    """Believed ends of running jobs, ascending; `free`: GPUs free from then on if nothing else starts."""
    end: NDArray[np.int64]
    """When each running job is believed to end [ms] (n,)."""
    late: NDArray[np.void]
    """HEAP of running jobs that will outlive what is believed, by believed end."""
    late_at: NDArray[np.int32]
    """Position of each job in `late`, NONE when it is not there (n,)."""
    steps: NDArray[np.void]
    """Times at which reservations begin or end in this pass, what is reserved from then on, and what is free then."""
    started: NDArray[np.int64]
    """Jobs started in this pass."""
    cursor: NDArray[np.int64]
    """Place in the waitlist of each queue's next job (Q,)."""
    facts: NDArray[np.void]
    """Sizes and settings (1,)."""


def _make_book(state: State, mechanism: Backfill) -> Book:
    n = len(state.jobs)
    domain_of = state.groups["domain"][state.nodes["group"]]
    gpus = state.nodes["gpus"].astype(np.int64)
    room = np.bincount(domain_of, weights=gpus, minlength=len(state.domains)).astype(np.int64)
    there = np.bincount(domain_of, weights=gpus * state.nodes["up"], minlength=len(state.domains)).astype(np.int64)
    strips = np.zeros(len(state.domains), _STRIP)
    strips["low"] = strips["high"] = np.cumsum(room)
    strips["there"] = there
    most = int(room.max(initial=0))
    planned = min(mechanism.depth or n, n)
    return Book(
        strips,
        ends=np.zeros(int(room.sum()), _END),
        end=np.zeros(n, np.int64),
        late=np.zeros(min(n, int(room.sum())), records("HEAP")),
        late_at=np.full(n, NONE, np.int32),
        # A job without length starts and takes no step.
        steps=np.zeros(2 * planned + most + 4, _STEP),
        started=np.zeros(most + 1, np.int64),
        cursor=np.zeros(len(state.queues), np.int64),
        facts=np.array([(0, mechanism.order.estimate_ms is None, mechanism.depth or n, 0, 0)], _FACTS),
    )


# ---- running jobs ----


@inner
def _first_after(ends: Any, low: int, high: int, time: int) -> int:
    """Return the first of ends [low, high) that is later than a time."""
    while low < high:
        middle = (low + high) >> 1
        if ends[middle].time > time:
            high = middle
        else:
            low = middle + 1
    return low


@inner
def _before(ends: Any, strip: Any, place: int) -> int:
    """Return the GPUs that are free just before the end at a place, or in the end where there is none."""
    return ends[place].free - ends[place].gpus if place < strip.high else strip.there


@compiled
def _enter(ends: Any, strip: Any, time: int, gpus: int, job: int) -> None:
    """Enter a running job: until its end fewer GPUs are free."""
    place = _first_after(ends, strip.low, strip.high, time)
    free = _before(ends, strip, place)
    for i in range(strip.low, place):
        ends[i - 1] = ends[i]
        ends[i - 1].free -= gpus
    strip.low -= 1
    entry = ends[place - 1]
    entry.time = time
    entry.free = free
    entry.gpus = gpus
    entry.job = job


@compiled
def _remove(ends: Any, strip: Any, time: int, job: int) -> None:
    """Take a running job out."""
    place = _first_after(ends, strip.low, strip.high, time - 1)
    while ends[place].job != job:
        place += 1
    gpus = ends[place].gpus
    for i in range(place, strip.low, -1):
        ends[i] = ends[i - 1]
        ends[i].free += gpus
    strip.low += 1


@inner
def _believe(s: Any, b: Any, j: int, end: int) -> None:
    """Book a running job with the end that is believed now."""
    d = s.demands[s.jobs[j].demand].domain
    b.end[j] = end
    _enter(b.ends, b.strips[d], end, s.jobs[j].gpus, j)
    if s.events[s.event_at[j]].key >> 2 > end:
        heap_push(b.late, b.late_at, 0, b.facts[0].late, end, j)
        b.facts[0].late += 1


@inner
def _outlived(s: Any, b: Any) -> None:
    """Double the estimates of running jobs that should have ended."""
    now = s.g[0].now
    while b.facts[0].late > 0 and b.late[0].key <= now:
        j = b.late[0].job
        heap_pop(b.late, b.late_at, 0, b.facts[0].late)
        b.facts[0].late -= 1
        length = max(s.jobs[j].estimate, 1)
        while s.jobs[j].first + length <= now:
            length *= 2
        _remove(b.ends, b.strips[s.demands[s.jobs[j].demand].domain], b.end[j], j)
        _believe(s, b, j, s.jobs[j].first + length)


@inner
def _take_note(s: Any, b: Any, w: Any, submitted: int) -> None:
    """Bring the book and the waitlist up to what the instant did; node changes are seen by `_count_nodes`."""
    g = s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        _remove(b.ends, b.strips[s.demands[s.jobs[j].demand].domain], b.end[j], j)
        if b.late_at[j] != NONE:
            heap_remove(b.late, b.late_at, 0, b.facts[0].late, j)
            b.facts[0].late -= 1
        free_chain(s, s.jobs[j])
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        relax(s, w, j)
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            join_queue(s, w, j)
    _outlived(s, b)


@compiled
def _count_nodes(s: Any, b: Any) -> None:
    """Count the GPUs that are there anew."""
    for d in range(len(b.strips)):
        strip = b.strips[d]
        there = np.int64(0)
        for k in range(s.domains[d].group_low, s.domains[d].group_high):
            for index in range(s.groups[k].low, s.groups[k].high):
                there += s.nodes[index].gpus * s.nodes[index].up
        for i in range(strip.low, strip.high):
            b.ends[i].free += there - strip.there
        strip.there = there


# ---- reservations ----


@inner
def _free_at(b: Any, strip: Any, time: int) -> int:
    """Return the GPUs free at a time by what is believed of running jobs."""
    return _before(b.ends, strip, _first_after(b.ends, strip.low, strip.high, time))


@inner
def _first_free(b: Any, strip: Any, gpus: int) -> int:
    """Return the first believed end from which so many GPUs are free by what is believed of running jobs, or ANY."""
    low, high = strip.low, strip.high
    while low < high:
        middle = (low + high) >> 1
        if b.ends[middle].free >= gpus:
            high = middle
        else:
            low = middle + 1
    return b.ends[low].time if low < strip.high else ANY


@compiled
def _hole(b: Any, strip: Any, gpus: int, length: int) -> int:
    """Return the first time from which so many GPUs are free for so long, NONE where there is none."""
    count = b.facts[0].steps
    since = NONE
    for k in range(count):
        step = b.steps[k]
        if since != NONE and step.time >= since + length:
            break
        if step.free >= gpus:
            if since == NONE:
                since = step.time
            continue
        since = NONE
        time = _first_free(b, strip, gpus + step.reserved)
        if time < (b.steps[k + 1].time if k + 1 < count else ANY):
            since = time
    return since


@inner
def _step(b: Any, strip: Any, time: int) -> int:
    """Return the step that begins at a time, made where there is none."""
    k = b.facts[0].steps
    while b.steps[k - 1].time > time:
        k -= 1
    if b.steps[k - 1].time == time:
        return k - 1
    for i in range(b.facts[0].steps, k, -1):
        b.steps[i] = b.steps[i - 1]
    b.facts[0].steps += 1
    step = b.steps[k]
    step.time = time
    step.reserved = b.steps[k - 1].reserved
    step.free = _free_at(b, strip, time) - step.reserved
    return k


@compiled
def _reserve(b: Any, strip: Any, time: int, length: int, gpus: int) -> None:
    """Reserve GPUs for a while."""
    if length == 0:
        return
    first = _step(b, strip, time)
    last = _step(b, strip, time + length)
    for k in range(first, last):
        b.steps[k].reserved += gpus
        b.steps[k].free -= gpus


@inner
def _horizon(b: Any, gpus: int) -> int:
    """Return the first time at which so many GPUs are not free, ANY where there is none."""
    for k in range(b.facts[0].steps):
        if b.steps[k].free < gpus:
            return b.steps[k].time
    return ANY


# ---- the pass ----


@inner
def _has_place(s: Any, d: int, q: int) -> bool:
    """Return whether a queue's jobs, some of which wait, have a place now."""
    j = s.waiting[s.queues[q].base].job
    if s.domains[d].free < s.jobs[j].gpus or take(s, j, s.demands[s.jobs[j].demand]) == 0:
        return False
    release(s, s.jobs[j], d)
    free_chain(s, s.jobs[j])
    return True


@inner
def _least(s: Any, d: int) -> int:
    """Return the least GPUs of waiting jobs that have a place now, ANY where none has; note which queues have."""
    domain = s.domains[d]
    least = ANY
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked == NO_PLACE:
            continue
        if _has_place(s, d, q):
            queue.blocked = OPEN
            least = min(least, s.jobs[s.waiting[queue.base].job].gpus)
        else:
            queue.blocked = NO_PLACE
    return least


@compiled
def _begin(s: Any, key: Any, b: Any, w: Any, d: int, j: int) -> bool:
    """Start a waiting job if it has a place."""
    job = s.jobs[j]
    nodes = take(s, j, s.demands[job.demand]) if s.domains[d].free >= job.gpus else 0
    if nodes == 0:
        return False
    leave_queue(s, w, j)
    start(s, key, j, nodes, PPM)
    b.started[b.facts[0].started] = j
    b.facts[0].started += 1
    _reserve(b, b.strips[d], s.g[0].now, max(job.estimate, 1), job.gpus)
    return True


@inner
def _front(s: Any, b: Any, w: Any, d: int) -> int:
    """Return the queue whose next job comes first, NONE when all are at their ends."""
    domain = s.domains[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        if b.cursor[q] != NONE and (best == NONE or w.rank[b.cursor[q]] < w.rank[b.cursor[best]]):
            best = q
    return best


@inner
def _go_ahead(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start jobs from the head of the queue as long as they have places: what is free now stays free for them."""
    domain = s.domains[d]
    while True:
        q = head_queue(s.queues, s.waiting, domain.queue_low, domain.queue_high)
        if q == NONE or s.queues[q].blocked == NO_PLACE:
            return
        j = s.waiting[s.queues[q].base].job
        # By number there may be fewer than by place: jobs on nodes that left count against those that are there.
        if b.steps[0].free < s.jobs[j].gpus:
            return
        if not _begin(s, key, b, w, d, j):
            s.queues[q].blocked = NO_PLACE
            return


@inner
def _plan(s: Any, key: Any, b: Any, w: Any, d: int, least: int) -> int:
    """Reserve for the first jobs of the queue and start what is due; return the rank of the last."""
    domain = s.domains[d]
    now = s.g[0].now
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        b.cursor[q] = first_place(w, queue.base, stretch(s.queues, s.waiting, q), ANY) if queue.size > 0 else NONE
    after = NONE
    count = 0
    while count < b.facts[0].depth:
        q = _front(s, b, w, d)
        if q == NONE or b.steps[0].free < least:
            break
        j = w.job[b.cursor[q]]
        after = w.rank[b.cursor[q]]
        b.cursor[q] = first_place(w, b.cursor[q] + 1, stretch(s.queues, s.waiting, q), ANY)
        job = s.jobs[j]
        count += 1
        time = _hole(b, b.strips[d], job.gpus, max(job.estimate, 1))
        if time == now and s.queues[q].blocked != NO_PLACE:
            if _begin(s, key, b, w, d, j):
                count -= 1
                continue
            s.queues[q].blocked = NO_PLACE
        if time != NONE:
            _reserve(b, b.strips[d], time, max(job.estimate, 1), job.gpus)
    return after


@inner
def _next(s: Any, b: Any, w: Any, d: int, after: int) -> int:
    """Return the place of the first job after a rank that may start now beside all reservations, NONE without."""
    domain = s.domains[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        limit = _horizon(b, s.jobs[s.waiting[queue.base].job].gpus)
        if limit < ANY:
            limit -= s.g[0].now
        place = NONE
        if limit > 0:
            high = stretch(s.queues, s.waiting, q)
            place = first_place(w, place_after(w, queue.base, high, after), high, limit)
        if place == NONE:
            queue.blocked = NO_JOB
        elif best == NONE or w.rank[place] < w.rank[best]:
            best = place
    return best


@inner
def _pass(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    domain = s.domains[d]
    now = s.g[0].now
    if domain.freed:
        domain.freed = 0
        for q in range(domain.queue_low, domain.queue_high):
            s.queues[q].blocked = OPEN
    b.facts[0].started = 0
    b.facts[0].steps = 1
    b.steps[0].time = now
    b.steps[0].reserved = 0
    b.steps[0].free = _free_at(b, b.strips[d], now)
    _go_ahead(s, key, b, w, d)
    least = _least(s, d)
    after = _plan(s, key, b, w, d, least)
    while after != NONE and least <= b.steps[0].free:
        place = _next(s, b, w, d, after)
        if place == NONE:
            break
        j = w.job[place]
        if _begin(s, key, b, w, d, j):
            after = w.rank[place]
        else:
            s.queues[s.demands[s.jobs[j].demand].queue].blocked = NO_PLACE
    for i in range(b.facts[0].started):
        j = b.started[i]
        length = s.jobs[j].estimate if b.facts[0].exact else max(s.jobs[j].estimate, 1)
        _believe(s, b, j, now + length)


@compiled
def _run(s: Any, key: Any, b: Any, w: Any, instants: int) -> bool:
    """Run at most so many instants; return False when nothing is left to happen."""
    g = s.g[0]
    for _ in range(instants):
        submitted, change = g.submitted, g.change
        if not next_instant(s, key):
            return False
        _take_note(s, b, w, submitted)
        if g.change > change:
            _count_nodes(s, b)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            _pass(s, key, b, w, d)
        g.touched = 0
    return True


def run_conservative(state: State, mechanism: Backfill, instants: int, progress: Callable[[int], None]) -> None:
    """Run conservative backfilling to its end.

    Parameters
    ----------
    state : State
        Before the first instant, its nodes there.
    mechanism : Backfill
        The policy's rule.
    instants : int
        Instants between two reports of progress.
    progress : callable
        Told how many jobs have been submitted.
    """
    key = mechanism.order.key
    waitlist = make_waitlist(state, key)
    book = _make_book(state, mechanism)
    while _run(state, key, book, waitlist, instants):
        progress(int(state.g["submitted"][0]))
