"""Whether any waiting job could start now, for conservative backfilling: most passes need not ask for more."""

from __future__ import annotations

from typing import Any

from tracekit.replay.backfilling.ends import free_at
from tracekit.replay.backfilling.steps import horizon
from tracekit.replay.backfilling.waitlist import ANY, NO_PLACE, first_place, stretch
from tracekit.replay.engine.compiled import inner, outlined
from tracekit.replay.engine.loop import free_chain, release
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take

__all__ = ["could_start", "may_start"]


@outlined
def _has_place(s: Any, d: int, q: int) -> bool:
    """Return whether a queue's jobs, some of which wait, have a place now."""
    j = s.waiting[s.queues[q].base].job
    if s.domains[d].free < s.jobs[j].gpus or take(s, j, s.demands[s.jobs[j].demand]) == 0:
        return False
    release(s, s.jobs[j], d)
    free_chain(s, s.jobs[j])
    return True


@inner
def _short_enough(s: Any, b: Any, w: Any, strip: Any, q: int) -> bool:
    """Return whether a queue has a job, without a reservation, that should end while what is free now stays free."""
    if s.queues[q].size == 0 or b.next[q] == NONE:
        return False
    limit = horizon(b, strip, s.jobs[w.job[b.next[q]]].gpus)
    if limit < ANY:
        limit -= s.g[0].now
    return limit > 0 and first_place(w, b.next[q], stretch(s.queues, s.waiting, q), limit) != NONE


@inner
def could_start(s: Any, b: Any, w: Any, d: int) -> bool:
    """Return whether any job without a reservation could start now if no more were made before it.

    It needs a place, and should end while what is free now stays free. Queues found without a place are noted.
    """
    domain = s.domains[d]
    strip = b.strips[d]
    # Most often the answer is the one of the last time.
    q = strip.open if strip.open != NONE else domain.queue_low
    while q < domain.queue_high:
        queue = s.queues[q]
        if queue.blocked != NO_PLACE and _short_enough(s, b, w, strip, q):
            if q == strip.open or _has_place(s, d, q):
                strip.open = q
                return True
            queue.blocked = NO_PLACE
        if q == strip.open:
            strip.open = NONE
            q = domain.queue_low
        else:
            q += 1
    return False


@inner
def may_start(s: Any, b: Any, d: int) -> bool:
    """Return whether any job could start in this pass; note queues found without a place.

    The first jobs of the queue whose reservations were to begin by now all begin now as long as there are GPUs, since
    no others come before them. If none of these has a place, the rest have only what they leave.
    """
    domain = s.domains[d]
    strip = b.strips[d]
    now = s.g[0].now
    room = free_at(b, strip, now)
    if not strip.stale:
        for i in range(strip.plan_low, strip.plan_low + strip.planned):
            entry = b.plan[i]
            if entry.time == NONE or entry.time > now:
                break
            if entry.gpus > room:
                break
            room -= entry.gpus
            b.due[entry.queue] = now
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked == NO_PLACE:
            continue
        if b.due[q] == now or s.jobs[s.waiting[queue.base].job].gpus <= room:
            if _has_place(s, d, q):
                strip.open = q
                return True
            queue.blocked = NO_PLACE
    return False
