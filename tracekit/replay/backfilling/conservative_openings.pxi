# Whether any waiting job could start now, for conservative backfilling: most passes need nothing more.


cdef bint has_place(State s, Reservations b, Waitlist w, int64_t d, int64_t q):
    """Return whether the waiting jobs of a queue have a place now; the queue must have some."""
    cdef int64_t j = w.job[b.lines[q].first]
    if s.domains[d].free < s.jobs[j].gpus or take_apart(s, j, &s.job_classes[s.jobs[j].job_class]) == 0:
        return False
    release(s, &s.jobs[j], d)
    drop_allocation(s, &s.jobs[j])
    return True


cdef inline bint may_start(State s, Reservations b, Waitlist w, int64_t d):
    """Return whether any job could start in this pass; mark queues without a place.

    The first jobs whose reservations should have begun by now all begin now as long as there are GPUs, because no other
    job comes before them. If none of these has a place, the other jobs get only what they leave.
    """
    cdef int64_t i, q
    cdef Reservation* entry
    cdef Queue* queue
    cdef Domain* domain = &s.domains[d]
    cdef Strip* strip = &b.strips[d]
    cdef int64_t now = s.g[0].now
    cdef int64_t room = free_at(b, strip, now)
    if not strip.stale:
        for i in range(strip.plan_low, strip.plan_low + strip.planned):
            entry = &b.plan[i]
            if entry.time == NONE or entry.time > now:
                break
            if entry.gpus > room:
                break
            room -= entry.gpus
            b.lines[entry.queue].due = now
    for q in range(domain.queue_low, domain.queue_high):
        queue = &s.queues[q]
        if queue.size == 0 or queue.blocked == NO_PLACE:
            continue
        if b.lines[q].due == now or b.lines[q].gpus <= room:
            if b.lines[q].gpus <= domain.free and has_place(s, b, w, d, q):
                strip.open = q
                return True
            queue.blocked = NO_PLACE
    return False
