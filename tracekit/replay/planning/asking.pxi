# The compiled side of planners: when to ask for a plan, and what to show (`apply_plan` carries the plan out).
#
# Nothing is queued: a planner sees every waiting or running job, and decides how many GPUs each should have.

# Why a run stopped.
cpdef enum:
    ASK = 0
    OVER = 1
    MORE = 2


def next_plan(State s, Key key, int64_t round_ms, int64_t gap_ms, int64_t instants):
    """Run until the planner must be asked (ASK), no event is left (OVER), or `instants` instants have passed (MORE).

    With rounds, an event between two rounds only requests a plan for the next round; with a gap, only after the gap.
    """
    cdef int64_t _, i, due
    cdef bint changed
    cdef Globals* g = &s.g[0]
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


def settle_running(State s):
    """Record the progress of the running jobs until now; only running jobs have entries among the events."""
    cdef int64_t i
    cdef Globals* g = &s.g[0]
    for i in range(g.event_size):
        settle(&s.jobs[s.events[i].job], g.now)


def gather(State s, ViewRow[::1] view):
    """Write a ViewRow for each waiting or running job, by index; return their number."""
    cdef int64_t i, j, settled
    cdef Job* job
    cdef ViewRow* row
    cdef Globals* g = &s.g[0]
    cdef int64_t kept = 0
    for i in range(g.active):
        j = s.active[i]
        job = &s.jobs[j]
        if job.status == DONE:
            continue
        s.active[kept] = j
        settled = job.since
        if job.status == RUNNING:
            settle(job, g.now)
            settled = job.since
        row = &view[kept]
        row.job = j
        row.running = job.status == RUNNING
        row.held = job.gpus if job.status == RUNNING else 0
        row.remaining_ms = (job.remaining + PPM - 1) // PPM
        row.attained = job.attained
        row.overhead_ms = job.overhead
        row.rate = job.rate if job.status == RUNNING else 0
        row.group = NONE
        if job.status == RUNNING and job.allocation != NONE:
            row.group = s.nodes[s.allocations[job.allocation].node].group
        row.since_ms = job.stopped if job.status == WAITING else settled
        kept += 1
    g.active = kept
    return kept
