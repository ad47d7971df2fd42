# What reservations leave free: a domain's reservations as a few steps over the believed ends of its running jobs.
#
# What running jobs give back only grows with time, so that a hole is found by walking the steps and, in the one where
# it begins, a binary search of the ends (see `conservative_ends`).


cdef inline int begin_steps(Reservations b, Strip* strip, int64_t now) except -1:
    """Let nothing be reserved from now on."""
    strip.steps = 1
    strip.short = 0
    cdef Step* step = &b.steps[strip.step_low]
    step.time = now
    step.reserved = 0
    step.free = step.edge = free_at(b, strip, now)


cdef inline int move_steps(Reservations b, Strip* strip, int64_t now) except -1:
    """Forget the steps that are past."""
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
    """Return the first time from which so many GPUs are free for so long, NONE where there is none.

    Notes the last step up to that time, and the first from its end on, for `fill`.
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
    """Return for how long so many GPUs are free from the best of the times before `until`, ANY where for ever."""
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
    """Let a new step, at which nothing changes yet, begin at a time between two steps, or after the last."""
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
    """Return the steps that begin at two times, the first not before the steps, made where there are none."""
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
    """Reserve GPUs for a while."""
    cdef int64_t first, last
    first, last = steps_span(b, strip, time, time + length)
    add(b, first, last, gpus)


cdef inline int fill(Reservations b, Strip* strip, int64_t time, int64_t length, int64_t gpus) except -1:
    """Reserve GPUs in the hole that was just found."""
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
    """Turn a reservation that begins now into a running job, which `conservative_ends` will hold."""
    cdef int64_t _, last, k
    cdef int64_t base = strip.step_low
    cdef int64_t now = b.steps[base].time
    _, last = steps_span(b, strip, now, now + length)
    for k in range(base, last):
        b.steps[k].reserved -= gpus
        b.steps[k + 1].edge -= gpus


cdef inline int steps_put_off(Reservations b, Strip* strip, int64_t since, int64_t length, int64_t gpus) except -1:
    """Let a reservation that began before now begin now; some may then have less than they reserved."""
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
    """Drop the steps at which nothing begins or ends any more."""
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
    """Return the first time at which so many GPUs are not free, ANY where there is none."""
    cdef int64_t k
    for k in range(strip.step_low, strip.step_low + strip.steps):
        if b.steps[k].free < gpus:
            return b.steps[k].time
    return ANY
