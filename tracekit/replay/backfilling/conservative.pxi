# The scheduling pass of conservative backfilling.
#
# In queue order, each waiting job gets a reservation: the first time from which enough GPUs of the domain are free (by
# count) for its expected run time. Reservations are steps over the expected ends of running jobs
# (conservative_steps.pxi).
#
# In principle, each pass makes all reservations again. But while everything goes as expected, every job gets the same
# time again: jobs that started left all reservations unchanged, and jobs that ended were expected to end. So we keep
# reservations and make them again only after a surprise: a job ends early or runs longer, or a node joins or leaves. We
# also make some again if a job found no place when it was due and now blocks other jobs. A pass in which no job could
# start (`has_place`) leaves them unchanged: postponing once is the same as postponing step by step. We make a
# reservation only if a candidate would still be running when the reservation could begin; other candidates cannot get
# in its way. Jobs behind those that may have a reservation start if they delay no reservation.

cdef bint conservative_begin(State s, Key key, Reservations b, Waitlist w, int64_t d, int64_t j):
    """Start a waiting job if it has a place."""
    cdef Job* job = &s.jobs[j]
    cdef int64_t nodes = take_apart(s, j, &s.job_classes[job.job_class]) if s.domains[d].free >= job.gpus else 0
    if nodes == 0:
        return False
    b.strips[d].open = NONE
    book_leave_line(s, b, w, j)
    start(s, key, j, nodes, PPM)
    return True


cdef inline int note_start(Reservations b, int64_t j) except -1:
    """Record a job that started on its reserved GPUs."""
    b.started[b.facts[0].started] = j
    b.facts[0].started += 1


cdef inline int64_t front(State s, Reservations b, int64_t d):
    """Return the queue whose next job comes first, or NONE if no queue has a next job."""
    cdef int64_t q
    cdef Domain* domain = &s.domains[d]
    cdef int64_t best = NONE
    cdef int64_t rank = ANY
    for q in range(domain.queue_low, domain.queue_high):
        if b.lines[q].rank < rank:
            best, rank = q, b.lines[q].rank
    return best


cdef inline int go_ahead(State s, Key key, Reservations b, Waitlist w, int64_t d) except -1:
    """Start jobs from the head of the queue while they have places. GPUs that are free now stay free for them."""
    cdef int64_t q, j, length
    cdef Job* job
    cdef Strip* strip = &b.strips[d]
    cdef Step* step = &b.steps[strip.step_low]
    cdef int64_t brief = 0
    while True:
        q = front(s, b, d)
        if q == NONE or s.queues[q].blocked == NO_PLACE:
            break
        j = w.job[b.lines[q].place]
        job = &s.jobs[j]
        # Fewer GPUs may be free by count than by place: jobs on nodes that left count against available nodes.
        if step.free < job.gpus:
            break
        if not conservative_begin(s, key, b, w, d, j):
            s.queues[q].blocked = NO_PLACE
            break
        begin_line(b, w, q)
        length = believed_length(job, b.facts[0].exact)
        believe(s, b, j, s.g[0].now + length)
        step.free -= job.gpus
        if length == 0:
            brief += job.gpus
    if brief > 0:
        # These jobs end in a later instant at the same time. Until then, their GPUs are not available.
        step.free += brief
        steps_reserve(b, strip, s.g[0].now, 1, brief)
        strip.stale = 1


cdef inline int conservative_put_off(State s, Reservations b, int64_t d) except -1:
    """Reservations that began earlier, but whose jobs found no place, begin now.

    While all other reservations hold, each is still the first gap for its job, because no time has more room than
    before. If not, drop the last reservations until the rest hold.
    """
    cdef int64_t i
    cdef Reservation* entry
    cdef Strip* strip = &b.strips[d]
    cdef int64_t now = s.g[0].now
    for i in range(strip.plan_low, strip.plan_low + strip.planned):
        entry = &b.plan[i]
        if entry.time != NONE and entry.time < now:
            steps_put_off(b, strip, entry.time, entry.length, entry.gpus)
            entry.time = now
    strip.due = now
    while strip.short > 0 and strip.planned > 0:
        strip.planned -= 1
        entry = &b.plan[strip.plan_low + strip.planned]
        if entry.time != NONE:
            give_up(b, strip, entry.time, entry.length, entry.gpus)
        b.lines[entry.queue].place = entry.place
        b.lines[entry.queue].rank = entry.rank
    strip.last = b.plan[strip.plan_low + strip.planned - 1].rank if strip.planned > 0 else NONE
    tidy(b, strip)


cdef inline int start_due(State s, Key key, Reservations b, Waitlist w, int64_t d) except -1:
    """Start the jobs whose reservations begin now. A job that finds no place keeps its reservation for this pass."""
    cdef int64_t i
    cdef Reservation* entry
    cdef Queue* queue
    cdef Strip* strip = &b.strips[d]
    cdef int64_t kept = strip.plan_low
    cdef int64_t due = ANY
    for i in range(strip.plan_low, strip.plan_low + strip.planned):
        entry = &b.plan[i]
        if entry.time == s.g[0].now:
            queue = &s.queues[entry.queue]
            if queue.blocked != NO_PLACE and conservative_begin(s, key, b, w, d, w.job[entry.place]):
                note_start(b, w.job[entry.place])
                continue
            queue.blocked = NO_PLACE
        if entry.time != NONE:
            due = min(due, entry.time)
        if kept < i:
            b.plan[kept] = entry[0]
        kept += 1
    strip.planned = kept - strip.plan_low
    strip.due = due


cdef inline int plan(State s, Reservations b, Waitlist w, int64_t d, int64_t rank) except -1:
    """Make the missing reservations of the queued jobs that may have one, up to a rank.

    None of these jobs may start now, because `is_next` found no job before this rank.
    """
    cdef int64_t q
    cdef Line* line
    cdef Reservation* entry
    cdef Strip* strip = &b.strips[d]
    while strip.planned < b.facts[0].depth:
        q = front(s, b, d)
        if q == NONE or b.lines[q].rank > rank:
            return 0
        line = &b.lines[q]
        strip.last = line.rank
        entry = &b.plan[strip.plan_low + strip.planned]
        entry.queue = q
        entry.place = line.place
        entry.rank = line.rank
        entry.gpus = line.gpus
        entry.length = max(w.least[line.place], 1)
        entry.time = hole(b, strip, entry.gpus, entry.length)
        strip.planned += 1
        if entry.time != NONE:
            fill(b, strip, entry.time, entry.length, entry.gpus)
            strip.due = min(strip.due, entry.time)
        if entry.time == s.g[0].now:
            s.queues[q].blocked = NO_PLACE
        set_next(b, w, q, line.place + 1)


cdef inline (int64_t, int64_t) conservative_next(State s, Reservations b, Waitlist w, int64_t d):
    """Return the first job that may start now alongside all reservations: its place, or NONE, and its queue.

    Queues without such a job are marked. A job that cannot start once in a pass cannot start in the rest of the pass.
    """
    cdef int64_t best, found, q, place, limit
    cdef Queue* queue
    cdef Line* line
    cdef Domain* domain = &s.domains[d]
    cdef int64_t now = s.g[0].now
    best = found = NONE
    cdef int64_t first = ANY
    for q in range(domain.queue_low, domain.queue_high):
        queue = &s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        line = &b.lines[q]
        place = line.place
        if place != NONE:
            limit = horizon(b, &b.strips[d], line.gpus)
            if limit < ANY:
                limit -= now
            place = first_place(w, max(place, line.fit), line.high, limit) if limit > 0 else NONE
            line.fit = place
        if place == NONE:
            queue.blocked = NO_JOB
        elif w.rank[place] < first:
            best, found, first = place, q, w.rank[place]
    return best, found


cdef inline int64_t first_in_the_way(State s, Reservations b, Waitlist w, int64_t d, int64_t rank, int64_t until):
    """Return the rank of the first job before `rank` whose missing reservation may begin before `until`, or NONE.

    Missing reservations leave less room than appears free now, so the search misses no such job.
    """
    cdef int64_t q, length, place
    cdef Line* line
    cdef Domain* domain = &s.domains[d]
    cdef int64_t best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        line = &b.lines[q]
        if line.rank >= rank:
            continue
        length = longest(b, &b.strips[d], line.gpus, until)
        if length > 0:
            place = first_place(w, line.place, line.high, length)
            if place != NONE and w.rank[place] < rank:
                best = rank = w.rank[place]
    return best


cdef inline bint is_next(State s, Reservations b, Waitlist w, int64_t d, int64_t place, int64_t q):
    """Return whether a job that delays no reservation would delay none of the missing ones either.

    Only reservations of earlier jobs that may begin before the job ends matter, and we make these now. A queue without
    a place is marked.
    """
    cdef int64_t first
    cdef Strip* strip = &b.strips[d]
    cdef int64_t until = s.g[0].now + max(w.least[place], 1)
    while strip.planned < b.facts[0].depth:
        first = first_in_the_way(s, b, w, d, w.rank[place], until)
        if first == NONE:
            return True
        if q != strip.open and not has_place(s, b, w, d, q):
            s.queues[q].blocked = NO_PLACE
            return False
        strip.open = q
        plan(s, b, w, d, first)
        if horizon(b, strip, b.lines[q].gpus) < until:
            return False
    return True


cdef inline int fill_in(State s, Key key, Reservations b, Waitlist w, int64_t d) except -1:
    """Start jobs without reservations if they delay no reservation, whether made or missing."""
    cdef int64_t place, q, j
    while True:
        place, q = conservative_next(s, b, w, d)
        if place == NONE:
            return 0
        if not is_next(s, b, w, d, place, q):
            continue
        j = w.job[place]
        if conservative_begin(s, key, b, w, d, j):
            steps_reserve(b, &b.strips[d], s.g[0].now, max(s.jobs[j].estimate, 1), s.jobs[j].gpus)
            note_start(b, j)
            if b.lines[q].place == place:
                set_next(b, w, q, place + 1)
        else:
            s.queues[q].blocked = NO_PLACE


cdef inline int64_t conservative_reopen(State s, Reservations b, int64_t d):
    """Reopen the queues that may now have room; return the number of waiting jobs."""
    cdef int64_t q
    cdef Queue* queue
    cdef Domain* domain = &s.domains[d]
    cdef int64_t waiting = 0
    for q in range(domain.queue_low, domain.queue_high):
        queue = &s.queues[q]
        waiting += queue.size
        if domain.freed or queue.blocked == NO_JOB:
            queue.blocked = OPEN
        b.lines[q].fit = 0
    domain.freed = 0
    return waiting


cdef inline int plan_anew(State s, Key key, Reservations b, Waitlist w, int64_t d) except -1:
    """Drop all reservations, and start jobs from the head of the queue."""
    cdef int64_t q
    cdef Domain* domain = &s.domains[d]
    cdef Strip* strip = &b.strips[d]
    strip.planned = strip.stale = 0
    strip.last = NONE
    strip.due = ANY
    begin_steps(b, strip, s.g[0].now)
    for q in range(domain.queue_low, domain.queue_high):
        begin_line(b, w, q)
    go_ahead(s, key, b, w, d)


cdef inline int conservative_pass(State s, Key key, Reservations b, Waitlist w, int64_t d) except -1:
    cdef int64_t i, j, length
    cdef int64_t now = s.g[0].now
    cdef Strip* strip = &b.strips[d]
    if conservative_reopen(s, b, d) == 0:
        strip.stale = 1
        return 0
    if not may_start(s, b, w, d):
        return 0
    b.facts[0].started = 0
    if strip.stale or strip.planned == 0:
        plan_anew(s, key, b, w, d)
    else:
        move_steps(b, strip, now)
        if strip.due < now:
            conservative_put_off(s, b, d)
        if strip.due == now:
            start_due(s, key, b, w, d)
    fill_in(s, key, b, w, d)
    for i in range(b.facts[0].started):
        j = b.started[i]
        length = believed_length(&s.jobs[j], b.facts[0].exact)
        run_instead(b, strip, max(length, 1), s.jobs[j].gpus)
        believe(s, b, j, now + length)
        strip.stale |= length == 0
    if strip.steps > 2 * strip.planned + SPARE_STEPS:
        tidy(b, strip)


def run_conservative(State s, Key key, Reservations b, Waitlist w, int64_t instants):
    """Run at most `instants` instants; return False if no event is left."""
    cdef int64_t _, submitted, change, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        submitted, change = g.submitted, g.change
        if not next_instant(s, key):
            return False
        book_take_note(s, key, b, w, submitted)
        if g.change > change:
            count_nodes(s, b)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            conservative_pass(s, key, b, w, d)
        g.touched = 0
    return True


# A check for conservative backfilling: could any waiting job start now? Most passes need only this check.


cdef bint has_place(State s, Reservations b, Waitlist w, int64_t d, int64_t q):
    """Return whether the waiting jobs of a queue have a place now. The queue must have waiting jobs."""
    cdef int64_t j = w.job[b.lines[q].first]
    if s.domains[d].free < s.jobs[j].gpus or take_apart(s, j, &s.job_classes[s.jobs[j].job_class]) == 0:
        return False
    release(s, &s.jobs[j], d)
    drop_allocation(s, &s.jobs[j])
    return True


cdef inline bint may_start(State s, Reservations b, Waitlist w, int64_t d):
    """Return whether any job could start in this pass; mark queues without a place.

    The first jobs whose reservations should have begun all begin now while there are GPUs, because no other job comes
    before them. If none of them has a place, the other jobs get only the remaining GPUs.
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


# The state that conservative backfilling keeps between passes: expected ends, reservations, and jobs without a
# reservation.

# Drop steps without any change once a domain has this many steps more than two per reservation.
cpdef enum:
    SPARE_STEPS = 8


cdef inline int set_next(Reservations b, Waitlist w, int64_t q, int64_t low) except -1:
    """Find a queue's first waiting job, starting from a place."""
    cdef Line* line = &b.lines[q]
    line.place = first_place(w, low, line.high, ANY)
    line.rank = w.rank[line.place] if line.place != NONE else ANY


cdef inline int begin_line(Reservations b, Waitlist w, int64_t q) except -1:
    """Make a queue's first waiting job its first unplanned job."""
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
    """Process an unplanned waiting job."""
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
    """Update reservations and the waitlist with the events of the instant; `count_nodes` handles node changes."""
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
