# What reservations leave free: a domain's reservations as a few steps over the expected ends of its running jobs.
#
# GPUs released by running jobs only increase over time. A gap is therefore found by walking the steps, and by a binary
# search of the ends within the step in which it begins (see `conservative_ends`).


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
    """Return how long `gpus` GPUs are free from the best time before `until`, or ANY if forever."""
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
    """Return the steps that begin at two times, and create missing ones; the first time is not before the steps."""
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
    """Turn a reservation that begins now into a running job, which `conservative_ends` will hold."""
    cdef int64_t _, last, k
    cdef int64_t base = strip.step_low
    cdef int64_t now = b.steps[base].time
    _, last = steps_span(b, strip, now, now + length)
    for k in range(base, last):
        b.steps[k].reserved -= gpus
        b.steps[k + 1].edge -= gpus


cdef inline int steps_put_off(Reservations b, Strip* strip, int64_t since, int64_t length, int64_t gpus) except -1:
    """Let a reservation that began before now begin now; some reservations may then have too few GPUs."""
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
    """Return the first time at which `gpus` GPUs are not free, or ANY if there is none."""
    cdef int64_t k
    for k in range(strip.step_low, strip.step_low + strip.steps):
        if b.steps[k].free < gpus:
            return b.steps[k].time
    return ANY
