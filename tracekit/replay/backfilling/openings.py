"""Whether any waiting job could start now, for conservative backfilling: most passes need not ask for more."""

from __future__ import annotations

from typing import Any

from tracekit.replay.backfilling.ends import free_at
from tracekit.replay.backfilling.waitlist import NO_PLACE
from tracekit.replay.engine.compiled import inner, outlined
from tracekit.replay.engine.loop import free_chain, release
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.ordered import take_apart

__all__ = ["has_place", "may_start"]


@outlined
def has_place(s: Any, b: Any, w: Any, d: int, q: int) -> bool:
    """Return whether a queue's jobs, some of which wait, have a place now."""
    j = w.job[b.lines[q].first]
    if s.domains[d].free < s.jobs[j].gpus or take_apart(s, j, s.demands[s.jobs[j].demand]) == 0:
        return False
    release(s, s.jobs[j], d)
    free_chain(s, s.jobs[j])
    return True


@inner
def may_start(s: Any, b: Any, w: Any, d: int) -> bool:
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
            b.lines[entry.queue].due = now
    for q in range(domain.queue_low, domain.queue_high):
        queue = s.queues[q]
        if queue.size == 0 or queue.blocked == NO_PLACE:
            continue
        if b.lines[q].due == now or b.lines[q].gpus <= room:
            if b.lines[q].gpus <= domain.free and has_place(s, b, w, d, q):
                strip.open = q
                return True
            queue.blocked = NO_PLACE
    return False
