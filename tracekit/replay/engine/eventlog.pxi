# The rows of the event log (see `Outcome.log`) and the samples of the timeline, written by compiled code.

# Kinds, as in `outcome.LOG_KINDS`.
cpdef enum:
    SUBMIT = 1
    START = 2
    TAKE = 3
    STOP = 4
    FINISH = 5
    RATE = 6
    UP = 7
    DOWN = 8
    REJECT = 9
    FAIL = 10


cdef inline int log_row(State s, int64_t kind, int64_t job, int64_t node, int64_t value) except -1:
    """Write a row if the log is on; count it even if the log is full, so that the caller can allocate a larger log."""
    cdef Globals* g = &s.g[0]
    if g.log_on == 0:
        return 0
    cdef LogRow* row
    if g.log_size < len(s.log):
        row = &s.log[g.log_size]
        row.time_ms = g.now
        row.kind = kind
        row.job = job
        row.node = node
        row.gpu = NONE
        row.value = value
    g.log_size += 1


cdef inline int log_gpu(State s, int64_t job, int64_t node, int64_t gpu, int64_t milli) except -1:
    """Write how much of one GPU a job takes; the GPU is given by its index in the node."""
    log_row(s, TAKE, job, node, milli)
    if s.g[0].log_on and s.g[0].log_size <= len(s.log):
        s.log[s.g[0].log_size - 1].gpu = gpu


cdef inline int log_start(State s, int64_t j, Job* job) except -1:
    """Write the start of a job and the GPUs that it takes."""
    cdef int64_t gpu
    cdef Allocation* allocation
    if s.g[0].log_on == 0:
        return 0
    log_row(s, START, j, NONE, job.rate)
    if job.allocation == NONE:
        log_row(s, TAKE, j, NONE, <int64_t>job.gpus * 1000)
    cdef int64_t link = job.allocation
    while link != NONE:
        allocation = &s.allocations[link]
        if s.g[0].blocks:
            for gpu in range(allocation.gpu, allocation.gpu + allocation.gpus):
                log_gpu(s, j, allocation.node, gpu, 1000)
        else:
            log_gpu(s, j, allocation.node, allocation.gpu, <int64_t>allocation.gpus * 1000)
        link = allocation.next


cdef inline int forgive_stop(State s, Job* job) except -1:
    """Clear the overhead of a job's stop (row `evicted` - 1), because the pass that evicted it put it back."""
    if s.g[0].log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = 0
    job.evicted = 0


cdef inline int sample(State s, int64_t until) except -1:
    """Record the state at each sampling time before `until`; if the table is full, halve it and double the step."""
    cdef int64_t i
    cdef Sample* row
    cdef Globals* g = &s.g[0]
    while g.sample_at < until:
        if g.samples == len(s.samples):
            for i in range(len(s.samples) // 2):
                s.samples[i] = s.samples[2 * i]
            g.samples = len(s.samples) // 2
            g.sample_step *= 2
            g.sample_at = s.samples[g.samples - 1].time + g.sample_step
            continue
        row = &s.samples[g.samples]
        row.time = g.sample_at
        row.running = g.running
        row.pending = g.pending
        row.busy = g.busy
        row.free = g.free
        row.fragmented = g.fragmented
        g.samples += 1
        g.sample_at += g.sample_step
