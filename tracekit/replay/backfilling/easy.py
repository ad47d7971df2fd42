"""The scheduling pass of EASY backfilling.

The queue goes from its head as far as it can. For the first job that must wait, the head, the estimates of running jobs
tell when it can start and where (`forecast`). A job behind it, in the order of the queue, may start now where it has a
place now and either should end by that moment, or would hold only GPUs that are left then beside the head's place.

Waiting jobs of one demand stand in one queue, and whether they have a place, and whether that place is spare, is the
same for all of them; so a pass asks once a queue, and then searches for the first job that is short enough.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.backfilling.forecast import (
    AIMED,
    HOPELESS,
    aim,
    change_node,
    forget,
    make_forecast,
    outlived,
    run_on,
    spare_fits,
    unaim,
)
from tracekit.replay.backfilling.waitlist import (
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
from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.loop import free_chain, next_instant, release, start
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take_apart
from tracekit.replay.engine.state import PPM, WAITING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.engine.state import State
    from tracekit.replay.mechanisms import Backfill

__all__ = ["easy_steps", "head_queue"]


@inner
def head_queue(queues: Any, waiting: Any, low: int, high: int) -> int:
    """Return the queue whose first job has the smallest key, NONE when nobody waits."""
    best = NONE
    best_key = np.int64(0)
    best_job = np.int64(0)
    for q in range(low, high):
        queue = queues[q]
        if queue.size == 0:
            continue
        entry = waiting[queue.base]
        if best == NONE or entry.key < best_key or (entry.key == best_key and entry.job < best_job):
            best, best_key, best_job = q, entry.key, entry.job
    return best


@inner
def _begin(s: Any, key: Any, m: Any, f: Any, w: Any, d: int, j: int) -> bool:
    """Start a waiting job if it has a place."""
    job = s.jobs[j]
    if s.domains[d].free < job.gpus:
        return False
    nodes = take_apart(s, j, s.demands[job.demand])
    if nodes == 0:
        return False
    leave_queue(s, w, j)
    start(s, key, j, nodes, PPM)
    if f.aspects[d].head == j:
        unaim(s, m, f, d)
    run_on(s, m, f, d, j)
    return True


@inner
def _reopen(queues: Any, domain: Any) -> None:
    """Look again at queues whose jobs would have delayed the head; at all of them where GPUs came free."""
    for q in range(domain.queue_low, domain.queue_high):
        if domain.freed or queues[q].blocked == NO_JOB:
            queues[q].blocked = OPEN


@inner
def _next(s: Any, m: Any, f: Any, w: Any, d: int, head: int, after: int) -> int:
    """Return the place in the waitlist of the first job after a rank that may start now, NONE when there is none.

    `head` is the first waiting job where it has still to be aimed for, which is put off until any job has a place: at
    most events none has. It is NONE otherwise.
    """
    domain = s.domains[d]
    aspect = f.aspects[d]
    best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        j = s.waiting[queue.base].job
        if domain.free < s.jobs[j].gpus or take_apart(s, j, s.demands[s.jobs[j].demand]) == 0:
            queue.blocked = NO_PLACE
            continue
        if head != NONE:
            aim(s, m, f, d, head)
            head = NONE
        spare = spare_fits(s, m, d, j)
        release(s, s.jobs[j], d)
        free_chain(s, s.jobs[j])
        limit = ANY if spare or aspect.state == HOPELESS else aspect.until - s.g[0].now
        high = stretch(s.queues, s.waiting, q)
        low = queue.base if after == NONE else place_after(w, queue.base, high, after)
        place = first_place(w, low, high, limit)
        if place == NONE:
            queue.blocked = NO_JOB
        elif best == NONE or w.rank[place] < w.rank[best]:
            best = place
    return best


@inner
def _pass(s: Any, key: Any, m: Any, f: Any, w: Any, d: int) -> None:  # noqa: C901 -- one loop, see below
    """Start jobs from the head of the queue until one has to wait, and then those that may pass it.

    One loop for both, so that what starts a job is compiled into it once.
    """
    domain = s.domains[d]
    aspect = f.aspects[d]
    if domain.freed:
        _reopen(s.queues, domain)
        domain.freed = 0
    waits = False
    head = after = NONE
    while True:
        q = NONE
        if waits:
            place = _next(s, m, f, w, d, head, after)
            if place == NONE:
                break
            head = NONE
            after = w.rank[place]
            j = w.job[place]
        else:
            q = head_queue(s.queues, s.waiting, domain.queue_low, domain.queue_high)
            if q == NONE:
                return
            j = s.waiting[s.queues[q].base].job
            if s.queues[q].blocked == NO_PLACE:
                waits = True
                # Nothing before this point has needed to know when the head starts, and mostly nothing will.
                if aspect.head != j or aspect.state < AIMED:
                    head = j
                    _reopen(s.queues, domain)
                continue
            if aspect.head != j:
                unaim(s, m, f, d)
        begun = _begin(s, key, m, f, w, d, j)
        if waits:
            _reopen(s.queues, domain)
        elif not begun:
            s.queues[q].blocked = NO_PLACE
    if after != NONE:
        # A job passed over early in this pass may find another, spare place at the next event.
        _reopen(s.queues, domain)


@inner
def _take_note(s: Any, m: Any, f: Any, w: Any, submitted: int, change: int) -> None:
    """Bring forecast and waitlist up to what the instant did."""
    g = s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        forget(s, m, f, s.demands[s.jobs[j].demand].domain, j)
        free_chain(s, s.jobs[j])
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        relax(s, w, j)
        d = s.demands[s.jobs[j].demand].domain
        if f.aspects[d].head == j:
            unaim(s, m, f, d)
    for i in range(change, g.change):
        change_node(s, m, f, s.changes[i].node, s.changes[i].up)
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            join_queue(s, w, j)
    outlived(s, m, f)


@compiled
def _run_easy(s: Any, key: Any, m: Any, f: Any, w: Any, instants: int) -> bool:
    """Run at most so many instants; return False when nothing is left to happen."""
    g = s.g[0]
    for _ in range(instants):
        submitted, change = g.submitted, g.change
        if not next_instant(s, key):
            return False
        _take_note(s, m, f, w, submitted, change)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            _pass(s, key, m, f, w, d)
        g.touched = 0
    return True


def easy_steps(state: State, mechanism: Backfill) -> Callable[[int], bool]:
    """Return what runs at most so many instants of EASY backfilling and tells whether more are to come.

    Parameters
    ----------
    state : State
        Before the first instant, its nodes there.
    mechanism : Backfill
        The policy's rule.
    """
    key = mechanism.order.key
    waitlist = make_waitlist(state, key)
    forecast, later = make_forecast(state, exact=mechanism.order.estimate_ms is None)
    return functools.partial(_run_easy, state, key, later, forecast, waitlist)
