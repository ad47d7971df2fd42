# The progress of a running job, and the time of its next event.
#
# Progress is settled whenever a running job changes, so a job's rate may change at any event.


cdef inline int64_t held(Job* job):
    """Return the number of GPUs allocated to a running job. A block may have more GPUs than the job requested."""
    return job.gpus + job.spare


cdef inline int settle(Job* job, int64_t now) except -1:
    """Record the progress of a running job since it was last settled."""
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
        # The last checkpoint is in this interval, where the rate was constant and the overhead came first.
        if job.clock >= job.period:
            job.clock %= job.period
            job.saved = job.remaining + job.clock * job.rate


cdef inline int save(Job* job) except -1:
    """Save all work of a settled job, as a deliberate stop does."""
    job.saved = job.remaining
    job.clock = 0


cdef inline int64_t key_now(State s, Key key, Job* job):
    """Return the key of a settled job. Smaller keys go first.

    The remaining work is given as time, including checkpoints, so it falls by 1 per millisecond.
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
    """Return the cost of preempting or migrating a gang [ms]."""
    return s.overheads[min(gpus, len(s.overheads) - 1)]


cdef inline int schedule_event(State s, int64_t j) except -1:
    """Schedule the next event of a running, settled job: its end, or an earlier crossing of a threshold."""
    cdef int64_t missing, crossing
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    # Dividing by a constant is much faster, and most jobs run at full speed.
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
    """Remove the next event of a job from the heap, if it has one."""
    cdef Globals* g = &s.g[0]
    if s.event_at[j] != NONE:
        heap_remove(s.events, s.event_at, 0, g.event_size, j)
        g.event_size -= 1


cdef inline int change_rate(State s, int64_t j, int64_t rate) except -1:
    """Let a running job continue at another rate [ppm]."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    if job.rate == rate:
        return 0
    settle(job, g.now)
    job.rate = rate
    schedule_event(s, j)
    log_row(s, RATE, j, NONE, rate)
