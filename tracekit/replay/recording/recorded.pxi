# Replay the recorded schedule: jobs start and end at the recorded times.
#
# The engine chooses only the nodes. A gang goes where the placement rule puts it, or on any free GPUs of one model. If
# too few GPUs are free, the job still runs, but on no node. Its GPUs count as busy, because the log shows that it ran.

# Kinds of events, in the order in which events at one time are processed.
cpdef enum:
    END = 0
    SUBMIT_JOB = 1
    START_RUN = 2
    END_AT_ONCE = 3


cdef inline int recorded_change_nodes(State s, int64_t until) except -1:
    """Let nodes join and leave up to and including the given time."""
    cdef Change* change
    cdef Globals* g = &s.g[0]
    while g.change < g.changes and s.changes[g.change].time <= until:
        change = &s.changes[g.change]
        advance(s, change.time)
        g.change += 1
        g.events += 1
        if change.up == s.nodes[change.node].up:
            continue
        if change.up:
            node_joins(s, change.node)
        else:
            node_leaves(s, change.node)
        log_row(s, UP if change.up else DOWN, NONE, change.node, 0)


def carry_out(State s, int64_t[::1] times, int8_t[::1] kinds, int64_t[::1] jobs):
    cdef int64_t i, j
    cdef Job* job
    cdef Globals* g = &s.g[0]
    for i in range(len(times)):
        # Ends come before node changes at the same time.
        recorded_change_nodes(s, times[i] - 1 if kinds[i] == END else times[i])
        advance(s, times[i])
        g.events += 1
        j = jobs[i]
        job = &s.jobs[j]
        if kinds[i] == SUBMIT_JOB:
            job.status = WAITING
            g.pending += 1
            g.submitted += 1
            log_row(s, SUBMIT, j, NONE, 0)
        elif kinds[i] == START_RUN:
            recorded_begin(s, j, job)
        else:
            end(s, j, job)


cdef inline int recorded_begin(State s, int64_t j, Job* job) except -1:
    cdef Globals* g = &s.g[0]
    job.nodes = place_gang(s, j, &s.job_classes[job.job_class])
    if job.nodes == 0:
        g.busy += job.gpus
    job.status = RUNNING
    job.first = g.now
    job.rate = PPM
    g.pending -= 1
    g.running += 1
    log_start(s, j, job)


cdef inline int end(State s, int64_t j, Job* job) except -1:
    cdef Globals* g = &s.g[0]
    job.ran = g.now - job.first
    job.attained = job.ran * job.gpus
    job.remaining = 0
    note_end(s, j)
    if job.nodes == 0:
        g.busy -= job.gpus
    else:
        take_allocation(s, job.allocation, -1)
        drop_allocation(s, job)
