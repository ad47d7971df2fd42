# Planners stop running jobs and let them continue elsewhere: the costs, and the rows of the event log.


cdef inline int stop_job(State s, Key key, int64_t j) except -1:
    """Take a running job off its GPUs; `evicted` becomes the row of its stop in the log, plus 1."""
    cdef Job* job = &s.jobs[j]
    settle(job, s.g[0].now)
    release(s, job, s.job_classes[job.job_class].domain)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)


cdef inline int charge(State s, Job* job, int64_t cost) except -1:
    """Charge a job that was stopped, and record the charge in the row of its stop."""
    cdef Globals* g = &s.g[0]
    if g.log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = cost
    job.overhead += cost
    job.evicted = 0


cdef inline int lose_job(State s, Job* job, int64_t lost) except -1:
    """Record that a stopped job did not start again and was preempted; it must redo `lost` ms of work."""
    charge(s, job, overhead_of(s, job.gpus) + lost)
    save(job)
    drop_allocation(s, job)
    job.preemptions += 1


cdef inline bint same_seats(State s, int64_t old, int64_t new):
    """Return whether two allocations with equally many links hold the same GPUs."""
    cdef int64_t link
    while old != NONE:
        link = new
        while link != NONE and (
            s.allocations[link].node != s.allocations[old].node or s.allocations[link].gpu != s.allocations[old].gpu
        ):
            link = s.allocations[link].next
        if link == NONE:
            return False
        old = s.allocations[old].next
    return True


cdef inline int go_on(State s, Key key, int64_t j, int64_t old, int64_t nodes, PlanArrays p, int64_t i) except -1:
    """Run the job at place i of a plan on the GPUs just allocated to it; `old` is its previous allocation.

    If jobs share GPUs, the job may be back where it was; then nothing is charged.
    """
    cdef Job* job = &s.jobs[j]
    cdef int64_t old_gpus = job.gpus
    cdef int64_t gpus = p.gpus[i]
    cdef int64_t fresh = job.allocation
    if p.beside is not None and job.evicted and old_gpus == gpus and same_seats(s, old, fresh):
        forgive_stop(s, job)
    job.allocation = old
    drop_allocation(s, job)
    job.allocation = fresh
    job.gpus = gpus
    if job.evicted:
        charge(s, job, p.lost[i] + (p.resize_ms if old_gpus != gpus else overhead_of(s, gpus)))
        save(job)
        job.migrations += 1
    start(s, key, j, nodes, p.rates[i])
