# Expected ends of running jobs, as a sorted list for each domain, with the GPUs that are free from each end on.


cdef inline int64_t first_after(End[::1] ends, int64_t low, int64_t high, int64_t time):
    """Return the first of ends [low, high) that is later than `time`; often it is the very first."""
    cdef int64_t middle
    if low < high and ends[low].time > time:
        return low
    while low < high:
        middle = (low + high) >> 1
        if ends[middle].time > time:
            high = middle
        else:
            low = middle + 1
    return low


cdef inline int64_t before(End[::1] ends, Strip* strip, int64_t place):
    """Return the GPUs that are free just before the end at a place, or after the last end if there is none."""
    return ends[place].free - ends[place].gpus if place < strip.high else strip.there


cdef inline int ends_enter(End[::1] ends, Strip* strip, int64_t time, int64_t gpus, int64_t job) except -1:
    """Add a running job: fewer GPUs are free until its expected end."""
    cdef int64_t i
    cdef int64_t place = first_after(ends, strip.low, strip.high, time)
    cdef int64_t free = before(ends, strip, place)
    for i in range(strip.low, place):
        ends[i - 1] = ends[i]
        ends[i - 1].free -= gpus
    strip.low -= 1
    cdef End* entry = &ends[place - 1]
    entry.time = time
    entry.free = free
    entry.gpus = gpus
    entry.job = job


cdef inline int64_t remove(Reservations b, Strip* strip, int64_t job):
    """Remove a running job; return its expected end."""
    cdef int64_t i
    cdef End[::1] ends = b.ends
    cdef int64_t place = strip.low
    # Most jobs end on time, and so are the first.
    if ends[place].job != job:
        place = first_after(ends, strip.low, strip.high, b.end[job] - 1)
        while ends[place].job != job:
            place += 1
    cdef int64_t time = ends[place].time
    cdef int64_t gpus = ends[place].gpus
    for i in range(place, strip.low, -1):
        ends[i] = ends[i - 1]
        ends[i].free += gpus
    strip.low += 1
    return time


cdef inline int believe(State s, Reservations b, int64_t j, int64_t end) except -1:
    """Record a running job with its current expected end."""
    cdef int64_t d = s.job_classes[s.jobs[j].job_class].domain
    b.end[j] = end
    ends_enter(b.ends, &b.strips[d], end, s.jobs[j].gpus, j)
    if s.events[s.event_at[j]].key >> 2 > end:
        heap_push(b.late, b.late_at, 0, b.facts[0].late, end, j)
        b.facts[0].late += 1


cdef inline int64_t believed_length(Job* job, bint exact):
    """Return how long a job is expected to hold its GPUs [ms]; 0 only if that is exact."""
    return job.estimate if exact else max(job.estimate, 1)


cdef inline int ends_forget(State s, Reservations b, int64_t d, int64_t j) except -1:
    """Process a job that ended. If it was expected to run longer, reservations may now begin earlier."""
    if remove(b, &b.strips[d], j) != s.g[0].now:
        b.strips[d].stale = 1
    if b.facts[0].late > 0 and b.late_at[j] != NONE:
        heap_remove(b.late, b.late_at, 0, b.facts[0].late, j)
        b.facts[0].late -= 1


cdef inline int ends_outlived(State s, Reservations b) except -1:
    """Double the estimates of running jobs that should have ended."""
    cdef int64_t j, length
    cdef Strip* strip
    cdef int64_t now = s.g[0].now
    while b.facts[0].late > 0 and b.late[0].key <= now:
        j = b.late[0].job
        heap_pop(b.late, b.late_at, 0, b.facts[0].late)
        b.facts[0].late -= 1
        length = max(s.jobs[j].estimate, 1)
        while s.jobs[j].begun + length <= now:
            length *= 2
        strip = &b.strips[s.job_classes[s.jobs[j].job_class].domain]
        strip.stale = 1
        remove(b, strip, j)
        believe(s, b, j, s.jobs[j].begun + length)


cdef inline int count_nodes(State s, Reservations b) except -1:
    """Count the available GPUs again."""
    cdef int64_t d, there, k, index, i
    cdef Strip* strip
    for d in range(len(b.strips)):
        strip = &b.strips[d]
        there = 0
        for k in range(s.domains[d].group_low, s.domains[d].group_high):
            for index in range(s.groups[k].low, s.groups[k].high):
                there += s.nodes[index].gpus * s.nodes[index].up
        for i in range(strip.low, strip.high):
            b.ends[i].free += there - strip.there
        strip.there = there
        strip.stale = 1


cdef inline int64_t free_at(Reservations b, Strip* strip, int64_t time):
    """Return the GPUs free at a time, according to the expected ends of running jobs."""
    return before(b.ends, strip, first_after(b.ends, strip.low, strip.high, time))


cdef inline (int64_t, int64_t) free_around(Reservations b, Strip* strip, int64_t time):
    """Return the GPUs free just before a time and at it, according to the expected ends of running jobs."""
    cdef int64_t place = first_after(b.ends, strip.low, strip.high, time - 1)
    cdef int64_t edge = before(b.ends, strip, place)
    while place < strip.high and b.ends[place].time == time:
        place += 1
    return edge, before(b.ends, strip, place)


cdef inline int64_t first_free(Reservations b, Strip* strip, int64_t gpus):
    """Return the first expected end from which `gpus` GPUs are free of running jobs, or ANY."""
    cdef int64_t low, high, middle
    low, high = strip.low, strip.high
    while low < high:
        middle = (low + high) >> 1
        if b.ends[middle].free >= gpus:
            high = middle
        else:
            low = middle + 1
    return b.ends[low].time if low < strip.high else ANY
