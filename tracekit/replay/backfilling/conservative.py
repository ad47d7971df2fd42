"""The scheduling pass of conservative backfilling.

In the order of the queue, each waiting job gets a reservation: the first time from which enough GPUs of the domain are
free, by number, for as long as it is believed to run. They lie as steps over the believed ends of running jobs (`ends`,
`steps`).

Reservations are made anew in each pass. But as long as everything goes as believed, that gives every job the time it
had: what started since left all reservations as they were, and what ended was to end. So they are kept, and made anew
only after a surprise: an end before its time, a job that runs on, a node that joins or leaves; and in part where a job
found no place when it was due, and now stands in the way of others. A pass in which nobody could start (`openings`)
leaves them as they are: to put them off once is the same as to do it step by step. And a reservation is made only when
a candidate asks that would still run when it could begin: others cannot stand in its way. Behind the jobs that may have
a reservation, others start where they delay none of these.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.backfilling.ends import believe, believed_length, count_nodes
from tracekit.replay.backfilling.openings import has_place, may_start
from tracekit.replay.backfilling.reservation_book import (
    SPARE_STEPS,
    begin_line,
    leave_line,
    make_book,
    set_next,
    take_note,
)
from tracekit.replay.backfilling.steps import (
    begin_steps,
    fill,
    give_up,
    hole,
    horizon,
    longest,
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
    make_waitlist,
)
from tracekit.replay.engine.compiled import compiled, inner, outlined
from tracekit.replay.engine.loop import next_instant, start
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take_apart
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
    nodes = take_apart(s, j, s.demands[job.demand]) if s.domains[d].free >= job.gpus else 0
    if nodes == 0:
        return False
    b.strips[d].open = NONE
    leave_line(s, b, w, j)
    start(s, key, j, nodes, PPM)
    return True


@inner
def _note_start(b: Any, j: int) -> None:
    """Remember a job that was started on what is reserved for it."""
    b.started[b.facts[0].started] = j
    b.facts[0].started += 1


@inner
def _front(s: Any, b: Any, d: int) -> int:
    """Return the queue whose next job comes first, NONE when all are at their ends."""
    domain = s.domains[d]
    best = NONE
    rank = np.int64(ANY)
    for q in range(domain.queue_low, domain.queue_high):
        if b.lines[q].rank < rank:
            best, rank = q, b.lines[q].rank
    return best


@inner
def _go_ahead(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start jobs from the head of the queue as long as they have places: what is free now stays free for them."""
    strip = b.strips[d]
    step = b.steps[strip.step_low]
    brief: Any = np.int64(0)
    while True:
        q = _front(s, b, d)
        if q == NONE or s.queues[q].blocked == NO_PLACE:
            break
        j = w.job[b.lines[q].place]
        job = s.jobs[j]
        # By number there may be fewer than by place: jobs on nodes that left count against those that are there.
        if step.free < job.gpus:
            break
        if not _begin(s, key, b, w, d, j):
            s.queues[q].blocked = NO_PLACE
            break
        begin_line(b, w, q)
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
def _put_off(s: Any, b: Any, d: int) -> None:
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
        b.lines[entry.queue].place = entry.place
        b.lines[entry.queue].rank = entry.rank
    strip.last = b.plan[strip.plan_low + strip.planned - 1].rank if strip.planned > 0 else NONE
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
            if queue.blocked != NO_PLACE and _begin(s, key, b, w, d, w.job[entry.place]):
                _note_start(b, w.job[entry.place])
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
def _plan(s: Any, b: Any, w: Any, d: int, rank: int) -> None:
    """Reserve for jobs of the queue up to a rank that may have a reservation and have none.

    None of them may start now, since `_next` found none before this rank.
    """
    strip = b.strips[d]
    while strip.planned < b.facts[0].depth:
        q = _front(s, b, d)
        if q == NONE or b.lines[q].rank > rank:
            return
        line = b.lines[q]
        strip.last = line.rank
        entry = b.plan[strip.plan_low + strip.planned]
        entry.queue = q
        entry.place = line.place
        entry.rank = line.rank
        entry.gpus = line.gpus
        entry.length = max(w.least[line.place], 1)
        entry.time = hole(b, strip, entry.gpus, entry.length)
        strip.planned += 1
        if entry.time != NONE:
            fill(b, strip, entry.time, entry.length, entry.gpus)
            strip.due = min(strip.due, entry.time)
        if entry.time == s.g[0].now:
            s.queues[q].blocked = NO_PLACE
        set_next(b, w, q, line.place + 1)


@inner
def _next(s: Any, b: Any, w: Any, d: int) -> tuple[int, int]:
    """Return the first job that may start now beside all reservations: its place, NONE without, and its queue.

    Queues without any are noted. What a job lacked once in a pass it lacks to its end.
    """
    domain = s.domains[d]
    now = s.g[0].now
    best = found = NONE
    first = np.int64(ANY)
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        line = b.lines[q]
        place = line.place
        if place != NONE:
            limit = horizon(b, b.strips[d], line.gpus)
            if limit < ANY:
                limit -= now
            place = first_place(w, max(place, line.fit), line.high, limit) if limit > 0 else NONE
            line.fit = place
        if place == NONE:
            queue.blocked = NO_JOB
        elif w.rank[place] < first:
            best, found, first = place, q, np.int64(w.rank[place])
    return best, found


@inner
def _first_in_the_way(s: Any, b: Any, w: Any, d: int, rank: int, until: int) -> int:
    """Return the rank of the first job before a rank whose reservation, not made yet, may begin before a time, or NONE.

    Reservations that are still to be made leave less room than there seems to be, so that none is overlooked.
    """
    domain = s.domains[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        line = b.lines[q]
        if line.rank >= rank:
            continue
        length = longest(b, b.strips[d], line.gpus, until)
        if length > 0:
            place = first_place(w, line.place, line.high, length)
            if place != NONE and w.rank[place] < rank:
                best = rank = int(w.rank[place])
    return best


@inner
def _is_next(s: Any, b: Any, w: Any, d: int, place: int, q: int) -> bool:
    """Return whether a job that may start beside all reservations may so beside those of jobs before it not made yet.

    They are made where they may begin before it ends. A queue found without a place is noted.
    """
    strip = b.strips[d]
    until = s.g[0].now + max(w.least[place], 1)
    while strip.planned < b.facts[0].depth:
        first = _first_in_the_way(s, b, w, d, w.rank[place], until)
        if first == NONE:
            return True
        if q != strip.open and not has_place(s, b, w, d, q):
            s.queues[q].blocked = NO_PLACE
            return False
        strip.open = q
        _plan(s, b, w, d, first)
        if horizon(b, strip, b.lines[q].gpus) < until:
            return False
    return True


@inner
def _fill_in(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    """Start jobs that have no reservations where they delay none, made or not."""
    while True:
        place, q = _next(s, b, w, d)
        if place == NONE:
            return
        if not _is_next(s, b, w, d, place, q):
            continue
        j = w.job[place]
        if _begin(s, key, b, w, d, j):
            reserve(b, b.strips[d], s.g[0].now, max(s.jobs[j].estimate, 1), s.jobs[j].gpus)
            _note_start(b, j)
            if b.lines[q].place == place:
                set_next(b, w, q, place + 1)
        else:
            s.queues[q].blocked = NO_PLACE


@inner
def _reopen(s: Any, b: Any, d: int) -> int:
    """Look again at queues that may have got room since; return how many jobs wait."""
    domain = s.domains[d]
    waiting = 0
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        waiting += queue.size
        if domain.freed or queue.blocked == NO_JOB:
            queue.blocked = OPEN
        b.lines[q].fit = 0
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
    for q in range(domain.queue_low, domain.queue_high):
        begin_line(b, w, q)
    _go_ahead(s, key, b, w, d)


@inner
def _pass(s: Any, key: Any, b: Any, w: Any, d: int) -> None:
    now = s.g[0].now
    strip = b.strips[d]
    if _reopen(s, b, d) == 0:
        strip.stale = 1
        return
    if not may_start(s, b, w, d):
        return
    b.facts[0].started = 0
    if strip.stale or strip.planned == 0:
        _plan_anew(s, key, b, w, d)
    else:
        move_steps(b, strip, now)
        if strip.due < now:
            _put_off(s, b, d)
        if strip.due == now:
            _start_due(s, key, b, w, d)
    _fill_in(s, key, b, w, d)
    for i in range(b.facts[0].started):
        j = b.started[i]
        length = believed_length(b, s.jobs[j])
        run_instead(b, strip, max(length, 1), s.jobs[j].gpus)
        believe(s, b, j, now + length)
        strip.stale |= length == 0
    if strip.steps > 2 * strip.planned + SPARE_STEPS:
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
