"""The compiled side of planners: when to ask, and what to show them (`carried` does what they say).

Nothing is queued: a planner sees every job that waits or runs, and says how many GPUs each should have.
"""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import compiled
from tracekit.replay.engine.loop import next_instant
from tracekit.replay.engine.nodes import NONE
from tracekit.replay.engine.progress import settle
from tracekit.replay.engine.state import DONE, PPM, RUNNING, WAITING

__all__ = ["ASK", "OVER", "gather", "next_plan", "settle_running"]

ASK, OVER, MORE = range(3)
"""Why a run stopped."""


@compiled
def next_plan(s: Any, key: Any, round_ms: int, gap_ms: int, instants: int) -> int:
    """Run until the planner is to be asked (ASK), nothing is left to happen (OVER) or so many instants passed (MORE).

    With rounds, events between two of them only ask for a plan at the next one; with a gap, not before it has passed.
    """
    g = s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return OVER
        changed = g.touched > 0
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            s.domains[s.touched[i]].freed = 0
        g.touched = 0
        due = g.now
        if gap_ms > 0 and g.asked >= 0:
            due = max(due, g.asked + gap_ms)
        if round_ms > 0:
            due = (due + round_ms - 1) // round_ms * round_ms
        if (g.wake >= 0 and g.wake <= g.now) or (changed and due == g.now):
            g.wake = NONE
            g.asked = g.now
            return ASK
        if changed and (g.wake < 0 or g.wake > due):
            g.wake = due
    return MORE


@compiled
def settle_running(s: Any) -> None:
    """Book what the running jobs did until now; each of them, and no other job, has an entry among the events."""
    g = s.g[0]
    for i in range(g.event_size):
        settle(s.jobs[s.events[i].job], g.now)


@compiled
def gather(s: Any, view: Any) -> int:
    """Write a VIEW row for each job that waits or runs, by index; return how many."""
    g = s.g[0]
    kept = 0
    for i in range(g.active):
        j = s.active[i]
        job = s.jobs[j]
        if job.status == DONE:
            continue
        s.active[kept] = j
        settled = job.since
        if job.status == RUNNING:
            settle(job, g.now)
            settled = job.since
        row = view[kept]
        row.job = j
        row.running = job.status == RUNNING
        row.held = job.gpus if job.status == RUNNING else 0
        row.remaining_ms = (job.remaining + PPM - 1) // PPM
        row.attained = job.attained
        row.overhead_ms = job.overhead
        row.rate = job.rate if job.status == RUNNING else 0
        row.group = s.nodes[s.takes[job.take].node].group if job.status == RUNNING and job.take != NONE else NONE
        row.since_ms = job.stopped if job.status == WAITING else settled
        kept += 1
    g.active = kept
    return kept
