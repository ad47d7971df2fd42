# What happens once, before the first instant of a run.


def fill_jobs(
    Job[::1] table,
    const int64_t[::1] submit,
    const int64_t[::1] work,
    const int32_t[::1] devices,
    const int32_t[::1] job_class,
    const int64_t[::1] estimate,
    const int64_t[::1] value,
    const uint8_t[::1] never,
):
    """Write the Job rows of jobs that have not been submitted yet (n,)."""
    cdef int64_t j
    cdef Job* job
    for j in range(len(table)):
        job = &table[j]
        job.submit = submit[j]
        job.remaining = work[j] * PPM
        job.gpus = devices[j]
        job.job_class = job_class[j]
        job.estimate = estimate[j]
        job.value = value[j]
        job.never = never[j]
        job.first = job.end = NONE
        job.allocation = NONE
        job.status = FUTURE
        job.rate = job.pace = PPM


def open_nodes(State s, const int8_t[::1] absent):
    """Let the nodes join that are available from the beginning."""
    cdef int64_t index
    cdef Globals* g = &s.g[0]
    for index in range(len(s.nodes)):
        if absent[index]:
            continue
        if g.by_count:
            s.nodes[index].up = 1
            s.domains[s.groups[s.nodes[index].group].domain].free += s.nodes[index].gpus
            g.free += s.nodes[index].gpus
        else:
            node_joins(s, index)
