# The GPUs that reservations leave free: a domain's reservations are a few steps over the expected ends of its jobs.
#
# The GPUs that running jobs release only increase over time. So we find a gap by walking the steps, and then by a
# binary search of the ends within the step in which it begins (`first_after`).


cdef inline int begin_steps(Reservations b, Strip* strip, int64_t now) except -1:
    """Clear all reservations from now on."""
    strip.steps = 1
    strip.short = 0
    cdef Step* step = &b.steps[strip.step_low]
    step.time = now
    step.reserved = 0
    step.free = step.edge = free_at(b, strip, now)


cdef inline int move_steps(Reservations b, Strip* strip, int64_t now) except -1:
    """Drop past steps."""
    cdef int64_t k
    cdef int64_t base = strip.step_low
    cdef int64_t past = 0
    while past + 1 < strip.steps and b.steps[base + past + 1].time <= now:
        past += 1
    if past > 0:
        strip.steps -= past
        for k in range(base, base + strip.steps):
            b.steps[k] = b.steps[k + past]
    cdef Step* step = &b.steps[base]
    step.time = now
    step.free = free_at(b, strip, now) - step.reserved


cdef inline int64_t hole(Reservations b, Strip* strip, int64_t gpus, int64_t length):
    """Return the first time from which `gpus` GPUs are free for `length`, or NONE.

    Note the last step up to that time, and the first step after the gap, for `fill`.
    """
    cdef int64_t k, edge
    cdef Step* step
    cdef int64_t high = strip.step_low + strip.steps
    cdef int64_t since = NONE
    strip.end = high
    for k in range(strip.step_low, high):
        step = &b.steps[k]
        if since != NONE and step.time >= since + length:
            strip.end = k
            break
        if step.free >= gpus:
            if since == NONE:
                since = step.time
                strip.begin = k
            continue
        since = NONE
        edge = b.steps[k + 1].edge if k + 1 < high else strip.there
        if edge >= gpus + step.reserved:
            since = first_free(b, strip, gpus + step.reserved)
            strip.begin = k
    return since


cdef inline int64_t longest(Reservations b, Strip* strip, int64_t gpus, int64_t until):
    """Return how long `gpus` GPUs are free at most from some time before `until`, or ANY if they are free forever."""
    cdef int64_t k, edge
    cdef Step* step
    cdef int64_t high = strip.step_low + strip.steps
    cdef int64_t since = NONE
    cdef int64_t best = 0
    for k in range(strip.step_low, high):
        step = &b.steps[k]
        if since == NONE and step.time >= until:
            return best
        if step.free >= gpus:
            if since == NONE:
                since = step.time
            continue
        if since != NONE:
            best = max(best, step.time - since)
            since = NONE
        edge = b.steps[k + 1].edge if k + 1 < high else strip.there
        if step.time < until and edge >= gpus + step.reserved:
            since = first_free(b, strip, gpus + step.reserved)
            if since >= until:
                return best
    return best if since == NONE else ANY


cdef inline int insert(Reservations b, Strip* strip, int64_t k, int64_t time) except -1:
    """Insert a step, at which nothing changes yet, between two steps or after the last."""
    cdef int64_t i, free
    for i in range(strip.step_low + strip.steps, k, -1):
        b.steps[i] = b.steps[i - 1]
    strip.steps += 1
    cdef Step* step = &b.steps[k]
    step.time = time
    step.reserved = b.steps[k - 1].reserved
    step.edge, free = free_around(b, strip, time)
    step.free = free - step.reserved
    strip.short += step.free < 0


cdef inline (int64_t, int64_t) steps_span(Reservations b, Strip* strip, int64_t since, int64_t until):
    """Return the steps that begin at two times, creating missing steps. Neither time is before the first step."""
    cdef int64_t last = strip.step_low + strip.steps
    while b.steps[last - 1].time > until:
        last -= 1
    if b.steps[last - 1].time == until:
        last -= 1
    else:
        insert(b, strip, last, until)
    cdef int64_t first = last
    while b.steps[first - 1].time > since:
        first -= 1
    if b.steps[first - 1].time == since:
        return first - 1, last
    insert(b, strip, first, since)
    return first, last + 1


cdef inline int add(Reservations b, int64_t first, int64_t last, int64_t gpus) except -1:
    cdef int64_t k
    for k in range(first, last):
        b.steps[k].reserved += gpus
        b.steps[k].free -= gpus


cdef inline int steps_reserve(Reservations b, Strip* strip, int64_t time, int64_t length, int64_t gpus) except -1:
    """Reserve GPUs for some time."""
    cdef int64_t first, last
    first, last = steps_span(b, strip, time, time + length)
    add(b, first, last, gpus)


cdef inline int fill(Reservations b, Strip* strip, int64_t time, int64_t length, int64_t gpus) except -1:
    """Reserve GPUs in the gap that was just found."""
    cdef int64_t first, last
    first, last = strip.begin, strip.end
    if last == strip.step_low + strip.steps or b.steps[last].time != time + length:
        insert(b, strip, last, time + length)
    if b.steps[first].time != time:
        first += 1
        last += 1
        insert(b, strip, first, time)
    add(b, first, last, gpus)


cdef inline int run_instead(Reservations b, Strip* strip, int64_t length, int64_t gpus) except -1:
    """Turn a reservation that begins now into a running job, which joins the ends of its domain."""
    cdef int64_t _, last, k
    cdef int64_t base = strip.step_low
    cdef int64_t now = b.steps[base].time
    _, last = steps_span(b, strip, now, now + length)
    for k in range(base, last):
        b.steps[k].reserved -= gpus
        b.steps[k + 1].edge -= gpus


cdef inline int steps_put_off(Reservations b, Strip* strip, int64_t since, int64_t length, int64_t gpus) except -1:
    """Let a reservation that began earlier begin now. Some reservations may then have too few GPUs."""
    cdef int64_t first, last, k
    cdef Step* step
    cdef int64_t base = strip.step_low
    cdef int64_t now = b.steps[base].time
    first, last = steps_span(b, strip, max(since + length, now), now + length)
    for k in range(first, last):
        step = &b.steps[k]
        strip.short += 0 <= step.free < gpus
        step.reserved += gpus
        step.free -= gpus


cdef inline int give_up(Reservations b, Strip* strip, int64_t time, int64_t length, int64_t gpus) except -1:
    """Drop a reservation."""
    cdef int64_t first, last, k
    cdef Step* step
    first, last = steps_span(b, strip, time, time + length)
    for k in range(first, last):
        step = &b.steps[k]
        strip.short -= -gpus <= step.free < 0
        step.reserved -= gpus
        step.free += gpus


cdef inline int tidy(Reservations b, Strip* strip) except -1:
    """Drop the steps at which nothing begins or ends."""
    cdef int64_t i
    cdef int64_t base = strip.step_low
    cdef int64_t kept = base + 1
    for i in range(base + 1, base + strip.steps):
        if b.steps[i].reserved != b.steps[kept - 1].reserved:
            if kept < i:
                b.steps[kept] = b.steps[i]
            kept += 1
    strip.steps = kept - base


cdef inline int64_t horizon(Reservations b, Strip* strip, int64_t gpus):
    """Return the first time at which `gpus` GPUs are not free, or ANY if they are always free."""
    cdef int64_t k
    for k in range(strip.step_low, strip.step_low + strip.steps):
        if b.steps[k].free < gpus:
            return b.steps[k].time
    return ANY


# Expected ends of running jobs, as a sorted list for each domain, with the GPUs that are free from each end on.


cdef inline int64_t first_after(End[::1] ends, int64_t low, int64_t high, int64_t time):
    """Return the first of the ends [low, high) after `time`; often it is the very first."""
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
    # Most jobs end on time, so they come first.
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
    """Return the expected run time of a job [ms], which may be 0 only if it is exact."""
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
    """Return the first expected end from which running jobs leave `gpus` GPUs free, or ANY."""
    cdef int64_t low, high, middle
    low, high = strip.low, strip.high
    while low < high:
        middle = (low + high) >> 1
        if b.ends[middle].free >= gpus:
            high = middle
        else:
            low = middle + 1
    return b.ends[low].time if low < strip.high else ANY
