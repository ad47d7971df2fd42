"""The scheduling pass of conservative backfilling.

In the order of the queue, each waiting job gets a reservation: the first time from which enough GPUs of the domain are
free, by number, for as long as it is believed to run. They lie as steps over the believed ends of running jobs (`ends`,
`steps`).

Reservations are made anew in each pass. But as long as everything goes as believed, that gives every job the time it
had: what started since left all reservations as they were, and what ended was to end. So they are kept, and made anew
only after a surprise: an end before its time, a job that runs on, a node that joins or leaves; and in part where a job
found no place when it was due, and now stands in the way of others. A pass in which nobody could start (`openings`)
leaves them as they are: to put them off once is the same as to do it step by step. Behind the jobs that may have a
reservation, others start where they delay none of these.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.backfilling.easy import head_queue
from tracekit.replay.backfilling.ends import believe, believed_length, count_nodes
from tracekit.replay.backfilling.openings import could_start, may_start
from tracekit.replay.backfilling.reservation_book import make_book, take_note
from tracekit.replay.backfilling.steps import (
    begin_steps,
    give_up,
    hole,
    horizon,
    move_steps,
    put_off,
    reserve,
    run_instead,
    tidy,
)
from tracekit.replay.backfilling.waitlist import (
    ANY,
    NO_JOB,
    NO_PLACE,
    OPEN,
    first_place,
    leave_queue,
    make_waitlist,
    place_after,
    stretch,
)
from tracekit.replay.engine.compiled import compiled, inner, outlined
from tracekit.replay.engine.loop import next_instant, start
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take
from tracekit.replay.engine.state import PPM

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Backfill

__all__ = ["conservative_steps"]


@outlined
def _begin(s: Any, key: Any, b: Any, w: Any, d: int, j: int) -> bool:
    """Start a waiting job if it has a place."""
    job = s.jobs[j]
    nodes = take(s, j, s.demands[job.demand]) if s.domains[d].free >= job.gpus else 0
    if nodes == 0:
        return False
    b.strips[d].open = NONE
    leave_queue(s, w, j)
    start(s, key, j, nodes, PPM)
    return True


@inner
def _note_start(b: Any, j: int) -> None:
    """Remember a job that was started on what is reserved for it."""
    b.started[b.facts[0].started] = j
    b.facts[0].started += 1


@inner
def _front(s: Any, b: Any, w: Any, d: int) -> int:
    """Return the queue whose next job comes first, NONE when all are at their ends."""
    domain = s.domains[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        if b.next[q] != NONE and (best == NONE or w.rank[b.next[q]] < w.rank[b.next[best]]):
            best = q
    return best


@inner
def _go_ahead(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start jobs from the head of the queue as long as they have places: what is free now stays free for them."""
    domain = s.domains[d]
    strip = b.strips[d]
    step = b.steps[strip.step_low]
    brief: Any = np.int64(0)
    while True:
        q = head_queue(s.queues, s.waiting, domain.queue_low, domain.queue_high)
        if q == NONE or s.queues[q].blocked == NO_PLACE:
            break
        j = s.waiting[s.queues[q].base].job
        job = s.jobs[j]
        # By number there may be fewer than by place: jobs on nodes that left count against those that are there.
        if step.free < job.gpus:
            break
        if not _begin(s, key, b, w, d, j):
            s.queues[q].blocked = NO_PLACE
            break
        length = believed_length(b, job)
        believe(s, b, j, s.g[0].now + length)
        step.free -= job.gpus
        if length == 0:
            brief += job.gpus
    if brief > 0:
        # These end in a later instant of this moment: until then nobody has their GPUs.
        step.free += brief
        reserve(b, strip, s.g[0].now, 1, brief)
        strip.stale = 1


@inner
def _put_off(s: Any, b: Any, w: Any, d: int) -> None:
    """Let reservations that began before now, whose jobs found no place, begin now.

    While all others still hold, each is the first hole that its job could have: there is nowhere more room than there
    was. Where they do not, the last are given up until the rest do.
    """
    strip = b.strips[d]
    now = s.g[0].now
    for i in range(strip.plan_low, strip.plan_low + strip.planned):
        entry = b.plan[i]
        if entry.time != NONE and entry.time < now:
            put_off(b, strip, entry.time, entry.length, entry.gpus)
            entry.time = now
    strip.due = now
    while strip.short > 0 and strip.planned > 0:
        strip.planned -= 1
        entry = b.plan[strip.plan_low + strip.planned]
        if entry.time != NONE:
            give_up(b, strip, entry.time, entry.length, entry.gpus)
        b.next[entry.queue] = entry.place
    strip.last = w.rank[b.plan[strip.plan_low + strip.planned - 1].place] if strip.planned > 0 else NONE
    tidy(b, strip)


@inner
def _start_due(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start the jobs whose reservations begin now; one that finds no place keeps it for this pass."""
    strip = b.strips[d]
    kept = strip.plan_low
    due = ANY
    for i in range(strip.plan_low, strip.plan_low + strip.planned):
        entry = b.plan[i]
        if entry.time == s.g[0].now:
            queue = s.queues[entry.queue]
            if queue.blocked != NO_PLACE and _begin(s, key, b, w, d, entry.job):
                _note_start(b, entry.job)
                continue
            queue.blocked = NO_PLACE
        if entry.time != NONE:
            due = min(due, entry.time)
        if kept < i:
            b.plan[kept] = entry
        kept += 1
    strip.planned = kept - strip.plan_low
    strip.due = due


@inner
def _plan(s: Any, key: Any, b: Any, w: Any, d: int) -> bool:
    """Reserve for jobs of the queue that may have a reservation and have none, and start those that are due.

    Returns False where so many have one that nobody behind them can start in this pass; the rest is left for another.
    """
    strip = b.strips[d]
    now = s.g[0].now
    count = 0
    while strip.planned < b.facts[0].depth:
        # To ask costs as much as to plan a few jobs.
        if count & (count - 1) == 0 and not could_start(s, b, w, d):
            return False
        count += 1
        q = _front(s, b, w, d)
        if q == NONE:
            return False
        place = b.next[q]
        j = w.job[place]
        strip.last = w.rank[place]
        b.next[q] = first_place(w, place + 1, stretch(s.queues, s.waiting, q), ANY)
        job = s.jobs[j]
        length = max(job.estimate, 1)
        time = hole(b, strip, job.gpus, length)
        if time != NONE:
            reserve(b, strip, time, length, job.gpus)
        if time == now:
            if s.queues[q].blocked != NO_PLACE and _begin(s, key, b, w, d, j):
                _note_start(b, j)
                continue
            s.queues[q].blocked = NO_PLACE
        if time != NONE:
            strip.due = min(strip.due, time)
        entry = b.plan[strip.plan_low + strip.planned]
        entry.job = j
        entry.time = time
        entry.length = length
        entry.gpus = job.gpus
        entry.queue = q
        entry.place = place
        strip.planned += 1
    return True


@inner
def _next(s: Any, b: Any, w: Any, d: int, after: int) -> int:
    """Return the place of the first job after a rank that may start now beside all reservations, NONE without."""
    domain = s.domains[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        place = b.next[q]
        if place != NONE:
            limit = horizon(b, b.strips[d], s.jobs[w.job[place]].gpus)
            if limit < ANY:
                limit -= s.g[0].now
            high = stretch(s.queues, s.waiting, q)
            if w.rank[place] <= after:
                place = place_after(w, place, high, after)
            place = first_place(w, place, high, limit) if limit > 0 else NONE
        if place == NONE:
            queue.blocked = NO_JOB
        elif best == NONE or w.rank[place] < w.rank[best]:
            best = place
    return best


@inner
def _fill_in(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start jobs behind those that have reservations where they delay none of these."""
    after = b.strips[d].last
    while True:
        place = _next(s, b, w, d, after)
        if place == NONE:
            return
        j = w.job[place]
        if _begin(s, key, b, w, d, j):
            reserve(b, b.strips[d], s.g[0].now, max(s.jobs[j].estimate, 1), s.jobs[j].gpus)
            _note_start(b, j)
            after = w.rank[place]
            q = s.demands[s.jobs[j].demand].queue
            if b.next[q] == place:
                b.next[q] = first_place(w, place + 1, stretch(s.queues, s.waiting, q), ANY)
        else:
            s.queues[s.demands[s.jobs[j].demand].queue].blocked = NO_PLACE


@inner
def _reopen(s: Any, d: int) -> int:
    """Look again at queues that may have got room since; return how many jobs wait."""
    domain = s.domains[d]
    waiting = 0
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        waiting += queue.size
        if domain.freed or queue.blocked == NO_JOB:
            queue.blocked = OPEN
    domain.freed = 0
    return waiting


@inner
def _plan_anew(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Give up every reservation, and start jobs from the head of the queue."""
    domain = s.domains[d]
    strip = b.strips[d]
    strip.planned = strip.stale = 0
    strip.last = NONE
    strip.due = ANY
    begin_steps(b, strip, s.g[0].now)
    _go_ahead(s, key, b, w, d)
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        b.next[q] = first_place(w, queue.base, stretch(s.queues, s.waiting, q), ANY) if queue.size > 0 else NONE


@inner
def _pass(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    now = s.g[0].now
    strip = b.strips[d]
    if _reopen(s, d) == 0:
        strip.stale = 1
        return
    if not may_start(s, b, d):
        return
    b.facts[0].started = 0
    if strip.stale or strip.planned == 0:
        _plan_anew(s, key, b, w, d)
    else:
        move_steps(b, strip, now)
        if strip.due < now:
            _put_off(s, b, w, d)
        if strip.due == now:
            _start_due(s, key, b, w, d)
    if _plan(s, key, b, w, d):
        _fill_in(s, key, b, w, d)
    for i in range(b.facts[0].started):
        j = b.started[i]
        length = believed_length(b, s.jobs[j])
        run_instead(b, strip, max(length, 1), s.jobs[j].gpus)
        believe(s, b, j, now + length)
        strip.stale |= length == 0
    if b.facts[0].started > 0:
        tidy(b, strip)


@compiled
def _run(s: Any, key: Any, b: Any, w: Any, instants: int) -> bool:
    """Run at most so many instants; return False when nothing is left to happen."""
    g = s.g[0]
    for _ in range(instants):
        submitted, change = g.submitted, g.change
        if not next_instant(s, key):
            return False
        take_note(s, b, w, submitted)
        if g.change > change:
            count_nodes(s, b)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            _pass(s, key, b, w, d)
        g.touched = 0
    return True


def conservative_steps(state: State, mechanism: Backfill) -> Callable[[int], bool]:
    """Return what runs at most so many instants of conservative backfilling and tells whether more are to come.

    Parameters
    ----------
    state : State
        Before the first instant, its nodes there.
    mechanism : Backfill
        The policy's rule.
    """
    key = mechanism.order.key
    return functools.partial(_run, state, key, make_book(state, mechanism), make_waitlist(state, key))
