# The scheduling pass of EASY backfilling.
#
# Jobs start from the head of the queue until one must wait. For this job (the head), the estimates of the running jobs
# give the time and the place of its start (`easy_forecast`). A job behind it, in queue order, may start now if it has a
# place now and either should end by that time, or would hold only GPUs that are left over by the head's place then.
#
# Waiting jobs of one class share a queue. Whether they have a place, and whether it is spare, is the same for all of
# them. So a pass checks once per queue, and then searches for the first job that is short enough.


cdef inline bint easy_begin(State s, Key key, State m, Forecast f, Waitlist w, int64_t d, int64_t j):
    """Start a waiting job if it has a place."""
    cdef Job* job = &s.jobs[j]
    if s.domains[d].free < job.gpus:
        return False
    cdef int64_t nodes = take_apart(s, j, &s.job_classes[job.job_class])
    if nodes == 0:
        return False
    leave_queue(s, w, j)
    start(s, key, j, nodes, PPM)
    if f.aspects[d].head == j:
        unaim(s, m, f, d)
    run_on(s, m, f, d, j)
    return True


cdef inline int easy_reopen(Queue[::1] queues, Domain* domain) except -1:
    """Open queues again whose jobs would have delayed the head; open all of them if GPUs became free."""
    cdef int64_t q
    for q in range(domain.queue_low, domain.queue_high):
        if domain.freed or queues[q].blocked == NO_JOB:
            queues[q].blocked = OPEN


cdef inline int64_t easy_next(State s, State m, Forecast f, Waitlist w, int64_t d, int64_t head, int64_t after):
    """Return the place in the waitlist of the first job after a rank that may start now, or NONE.

    `head` is the first waiting job if its start has still to be computed, else NONE. This computation is postponed
    until some job has a place; at most events none has.
    """
    cdef int64_t q, j, limit, high, low, place
    cdef Queue* queue
    cdef bint spare
    cdef Domain* domain = &s.domains[d]
    cdef Aspect* aspect = &f.aspects[d]
    cdef int64_t best = NONE
    for q in range(domain.queue_low, domain.queue_high):
        queue = &s.queues[q]
        if queue.size == 0 or queue.blocked != OPEN:
            continue
        j = s.waiting[queue.base].job
        if domain.free < s.jobs[j].gpus or take_apart(s, j, &s.job_classes[s.jobs[j].job_class]) == 0:
            queue.blocked = NO_PLACE
            continue
        if head != NONE:
            aim(s, m, f, d, head)
            head = NONE
        spare = spare_fits(s, m, d, j)
        release(s, &s.jobs[j], d)
        drop_allocation(s, &s.jobs[j])
        limit = ANY if spare or aspect.state == HOPELESS else aspect.until - s.g[0].now
        high = stretch(s.queues, s.waiting, q)
        low = queue.base if after == NONE else place_after(w, queue.base, high, after)
        place = first_place(w, low, high, limit)
        if place == NONE:
            queue.blocked = NO_JOB
        elif best == NONE or w.rank[place] < w.rank[best]:
            best = place
    return best


cdef inline int easy_pass(State s, Key key, State m, Forecast f, Waitlist w, int64_t d) except -1:
    """Start jobs from the head of the queue until one has to wait, and then those that may pass it.

    One loop does both, so that the code that starts a job is compiled into it once.
    """
    cdef int64_t head, after, q, place, j
    cdef bint begun
    cdef Domain* domain = &s.domains[d]
    cdef Aspect* aspect = &f.aspects[d]
    if domain.freed:
        easy_reopen(s.queues, domain)
        domain.freed = 0
    cdef bint waits = False
    head = after = NONE
    while True:
        q = NONE
        if waits:
            place = easy_next(s, m, f, w, d, head, after)
            if place == NONE:
                break
            head = NONE
            after = w.rank[place]
            j = w.job[place]
        else:
            q = first_queue(s, True, domain.queue_low, domain.queue_high)
            if q == NONE:
                return 0
            j = s.waiting[s.queues[q].base].job
            if s.queues[q].blocked == NO_PLACE:
                waits = True
                # Nothing before this point needed the start of the head, and usually nothing will.
                if aspect.head != j or aspect.state < AIMED:
                    head = j
                    easy_reopen(s.queues, domain)
                continue
            if aspect.head != j:
                unaim(s, m, f, d)
        begun = easy_begin(s, key, m, f, w, d, j)
        if waits:
            easy_reopen(s.queues, domain)
        elif not begun:
            s.queues[q].blocked = NO_PLACE
    if after != NONE:
        # A job that was skipped early in this pass may find another, spare place at the next event.
        easy_reopen(s.queues, domain)
        if s.g[0].relax_ms > 0:
            # A started job may end before the head's start time, and the head would then take another place.
            unaim(s, m, f, d)


cdef inline int easy_take_note(
    State s, Key key, State m, Forecast f, Waitlist w, int64_t submitted, int64_t change
) except -1:
    """Update forecast and waitlist with what the instant did."""
    cdef int64_t j, d, i
    cdef Globals* g = &s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        forecast_forget(s, m, f, s.job_classes[s.jobs[j].job_class].domain, j)
        drop_allocation(s, &s.jobs[j])
    take_back(s, key)
    for i in range(g.broken):
        join_queue(s, w, s.broken[i])
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        relax(s, w, j)
        d = s.job_classes[s.jobs[j].job_class].domain
        if f.aspects[d].head == j:
            unaim(s, m, f, d)
    for i in range(change, g.change):
        change_node(s, m, f, s.changes[i].node, s.changes[i].up)
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            join_queue(s, w, j)
    forecast_outlived(s, m, f)


def run_easy(State s, Key key, State m, Forecast f, Waitlist w, int64_t instants):
    """Run at most `instants` instants; return False if no event is left."""
    cdef int64_t _, submitted, change, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        submitted, change = g.submitted, g.change
        if not next_instant(s, key):
            return False
        easy_take_note(s, key, m, f, w, submitted, change)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            easy_pass(s, key, m, f, w, d)
        g.touched = 0
    return True
