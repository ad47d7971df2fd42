# What a running job gets done, and when something happens to it next.
#
# Progress is settled whenever something about a running job changes, so that its rate may change at any event.


cdef inline int64_t held(Job* job):
    """Return the GPUs that a running job holds: a block may have more of them than it asked for."""
    return job.gpus + job.spare


cdef inline int settle(Job* job, int64_t now) except -1:
    """Book what a running job did since it was last looked at."""
    cdef int64_t elapsed = now - job.since
    if elapsed == 0:
        return 0
    job.since = now
    job.ran += elapsed
    job.attained += elapsed * held(job)
    cdef int64_t idle = min(elapsed, job.overhead)
    job.overhead -= idle
    job.overhead_done += idle
    job.remaining = max(job.remaining - (elapsed - idle) * job.rate, 0)
    if job.period > 0:
        job.clock += elapsed - idle
        # The last checkpoint lies in this stretch, in which the rate was one and the overhead came first.
        if job.clock >= job.period:
            job.clock %= job.period
            job.saved = job.remaining + job.clock * job.rate


cdef inline int save(Job* job) except -1:
    """Let a settled job keep all that it has done: what stops it on purpose saves it."""
    job.saved = job.remaining
    job.clock = 0


cdef inline int64_t key_now(State s, Key key, Job* job):
    """Return the key of a job that is settled: smaller goes first.

    What remains is the time that it takes, checkpoints included, so that it falls by 1 each millisecond.
    """
    cdef int64_t speed = PPM if job.period == 0 else job.saving
    cdef int64_t remaining = (job.remaining + speed - 1) // (PPM if speed == PPM else speed)
    if s.g[0].stall == 0:
        remaining += job.overhead
    cdef JobFacts facts = JobFacts(
        job.submit, job.gpus, job.estimate, remaining, job.attained, s.level_values[job.level], job.value
    )
    return key.of(&facts)


cdef inline int64_t overhead_of(State s, int64_t gpus):
    """Return what a preemption or migration of a gang costs [ms]."""
    return s.overheads[min(gpus, len(s.overheads) - 1)]


cdef inline int schedule_event(State s, int64_t j) except -1:
    """Enter the next event of a running, settled job: its end, or before it the crossing of a threshold."""
    cdef int64_t missing, crossing
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    # A division by a constant costs a fraction of one by a variable, and full speed is the usual one.
    cdef int64_t left = (job.remaining + (PPM if job.rate == PPM else job.rate) - 1)
    left = left // PPM if job.rate == PPM else left // job.rate
    cdef int64_t end = g.now + job.overhead + left
    cdef int64_t entry = end * 4 + KIND_FINISH
    if job.level < g.levels:
        missing = s.thresholds[job.level] - (job.attained - job.base)
        crossing = g.now + (missing + held(job) - 1) // held(job)
        if crossing < end:
            entry = crossing * 4 + KIND_TIMER
    if s.event_at[j] != NONE:
        heap_remove(s.events, s.event_at, 0, g.event_size, j)
        g.event_size -= 1
    heap_push(s.events, s.event_at, 0, g.event_size, entry, j)
    g.event_size += 1


cdef inline int unschedule_event(State s, int64_t j) except -1:
    """Take the next event of a job out of the heap, if it has one."""
    cdef Globals* g = &s.g[0]
    if s.event_at[j] != NONE:
        heap_remove(s.events, s.event_at, 0, g.event_size, j)
        g.event_size -= 1


cdef inline int change_rate(State s, int64_t j, int64_t rate) except -1:
    """Let a running job go on at another rate [ppm]."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    if job.rate == rate:
        return 0
    settle(job, g.now)
    job.rate = rate
    schedule_event(s, j)
    log_row(s, RATE, j, NONE, rate)
