# What conservative backfilling keeps between passes: expected ends, reservations, and jobs without a reservation.

# Number of steps of a domain, beyond two per reservation, above which steps without any change are dropped.
cpdef enum:
    SPARE_STEPS = 8


cdef inline int set_next(Reservations b, Waitlist w, int64_t q, int64_t low) except -1:
    """Find the first waiting job of a queue, starting at a place."""
    cdef Line* line = &b.lines[q]
    line.place = first_place(w, low, line.high, ANY)
    line.rank = w.rank[line.place] if line.place != NONE else ANY


cdef inline int begin_line(Reservations b, Waitlist w, int64_t q) except -1:
    """Make a queue's first waiting job the first that is not planned."""
    cdef Line* line = &b.lines[q]
    cdef bint there = line.first < line.high
    line.place = line.first if there else NONE
    line.rank = w.rank[line.first] if there else ANY


cdef inline int book_leave_line(State s, Reservations b, Waitlist w, int64_t j) except -1:
    """Remove a job from its queue."""
    cdef int64_t found
    cdef int64_t q = s.job_classes[s.jobs[j].job_class].queue
    cdef Line* line = &b.lines[q]
    cdef int64_t place = s.queues[q].base + w.slot[j]
    leave_queue(s, w, j)
    if place == line.first:
        found = first_place(w, place + 1, line.high, ANY)
        line.first = found if found != NONE else line.high


cdef inline int join_line(State s, Reservations b, Waitlist w, int64_t j) except -1:
    """Mark a job in its queue as waiting."""
    cdef int64_t q = s.job_classes[s.jobs[j].job_class].queue
    join_queue(s, w, j)
    b.lines[q].first = min(b.lines[q].first, s.queues[q].base + w.slot[j])


cdef inline int expect(State s, Reservations b, Waitlist w, int64_t j) except -1:
    """Process a waiting job that is not planned."""
    cdef JobClass* job_class = &s.job_classes[s.jobs[j].job_class]
    cdef Strip* strip = &b.strips[job_class.domain]
    cdef int64_t place = s.queues[job_class.queue].base + w.slot[j]
    cdef int64_t rank = w.rank[place]
    if rank < strip.last:
        strip.stale = 1
    cdef Line* line = &b.lines[job_class.queue]
    if rank < line.rank:
        line.place = place
        line.rank = rank


cdef inline int book_take_note(State s, Key key, Reservations b, Waitlist w, int64_t submitted) except -1:
    """Update reservations and waitlist with what the instant did; `count_nodes` handles node changes."""
    cdef int64_t i, j
    cdef Globals* g = &s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        ends_forget(s, b, s.job_classes[s.jobs[j].job_class].domain, j)
        drop_allocation(s, &s.jobs[j])
    take_back(s, key)
    for i in range(g.broken):
        join_line(s, b, w, s.broken[i])
        expect(s, b, w, s.broken[i])
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        book_leave_line(s, b, w, j)
        s.jobs[j].job_class = s.job_classes[s.jobs[j].job_class].relaxed
        enqueue(s, j, s.jobs[j].key)
        join_line(s, b, w, j)
        b.strips[s.job_classes[s.jobs[j].job_class].domain].stale = 1
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            join_line(s, b, w, j)
            expect(s, b, w, j)
    ends_outlived(s, b)
