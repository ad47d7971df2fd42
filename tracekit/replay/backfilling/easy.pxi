# The scheduling pass of EASY backfilling.
#
# Jobs start from the head of the queue until one must wait. The estimates of the running jobs tell when and where this
# job (the head) will start: the forecast. In queue order, a job behind the head may start now if it has a place now and
# either should end by that time or needs only GPUs that the head will not use.
#
# Waiting jobs of one class share a queue. Either all of them have a place or none, and that place is spare for all or
# for none. So a pass checks once per queue and then looks for the first job that is short enough.


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
    """Reopen the queues whose jobs would have delayed the head, or all queues if GPUs became free."""
    cdef int64_t q
    for q in range(domain.queue_low, domain.queue_high):
        if domain.freed or queues[q].blocked == NO_JOB:
            queues[q].blocked = OPEN


cdef inline int64_t easy_next(State s, State m, Forecast f, Waitlist w, int64_t d, int64_t head, int64_t after):
    """Return the place in the waitlist of the first job after a rank that may start now, or NONE.

    `head` is the first waiting job if its start is not computed yet, else NONE. We compute the start only if some job
    has a place; at most events, none has.
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
    """Start jobs from the head of the queue until one has to wait, and then the jobs that may go before it.

    One loop does both, so that the code that starts a job is compiled once.
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
                # Nothing has needed the head's start time so far, and usually nothing will.
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
            # A started job may end before the head starts, and the head would then take another place.
            unaim(s, m, f, d)


cdef inline int easy_take_note(
    State s, Key key, State m, Forecast f, Waitlist w, int64_t submitted, int64_t change
) except -1:
    """Update forecast and waitlist with the events of the instant."""
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


# When and where the first waiting job can start, according to the estimates (see `make_forecast`).

# State of a domain's first waiting job: unknown, start time known, start time and place known, or can never start.
cpdef enum:
    UNSURE = 0
    REPLACE = 1
    AIMED = 2
    HOPELESS = 3


cdef inline int shift(State s, State m, int64_t j, int64_t d, int64_t sign) except -1:
    """Take (sign 1) or free (sign -1) the GPUs of a running job on the map."""
    cdef int64_t link
    cdef Globals* g = &m.g[0]
    if g.by_count:
        m.domains[d].free -= sign * s.jobs[j].gpus
    else:
        link = s.jobs[j].allocation
        while link != NONE:
            take_gpus(m, s.allocations[link].node, sign * s.allocations[link].gpus)
            link = s.allocations[link].next


cdef inline int unaim(State s, State m, Forecast f, int64_t d) except -1:
    """Free the head's place on the map."""
    cdef Aspect* aspect = &f.aspects[d]
    aspect.state = UNSURE
    if aspect.reserved == 0:
        return 0
    cdef Globals* g = &m.g[0]
    aspect.reserved = 0
    if g.by_count:
        m.domains[d].free += s.jobs[aspect.head].gpus
        return 0
    cdef Job* row = &m.jobs[d]
    take_allocation(m, row.allocation, -1)
    drop_allocation(m, row)


cdef inline bint forecast_reserve(State s, State m, Forecast f, int64_t d, int64_t h):
    """Reserve a place for job h on the current map; return False if it has no place."""
    cdef Globals* g = &m.g[0]
    cdef Aspect* aspect = &f.aspects[d]
    cdef JobClass* job_class = &s.job_classes[s.jobs[h].job_class]
    if g.relax_ms > 0 and job_class.relaxed != NONE and aspect.until - s.jobs[h].submit >= g.relax_ms:
        job_class = &s.job_classes[job_class.relaxed]
    if m.domains[d].free < job_class.gpus:
        return False
    if g.by_count:
        m.domains[d].free -= job_class.gpus
    elif take_apart(m, d, job_class) == 0:
        return False
    aspect.head = h
    aspect.reserved = 1
    return True


cdef inline int forecast_enter(State s, State m, Forecast f, int64_t d, int64_t j) except -1:
    """Add a running job to the right heap by its expected end."""
    cdef Aspect* aspect = &f.aspects[d]
    if f.end[j] <= aspect.until:
        heap_push(f.heaps, f.at, aspect.low, aspect.released, -f.end[j], j)
        aspect.released += 1
    else:
        heap_push(f.heaps, f.at, aspect.high, aspect.later, f.end[j], j)
        aspect.later += 1
        shift(s, m, j, d, 1)


cdef inline int await(State s, Forecast f, int64_t j) except -1:
    """Record a job that will run past its expected end."""
    if s.events[s.event_at[j]].key >> 2 > f.end[j]:
        heap_push(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late, f.end[j], j)
        f.facts[0].late += 1


cdef inline int run_on(State s, State m, Forecast f, int64_t d, int64_t j) except -1:
    """Process a job that was just started."""
    cdef Aspect* aspect = &f.aspects[d]
    f.end[j] = s.g[0].now + believed_length(&s.jobs[j], f.facts[0].exact)
    forecast_enter(s, m, f, d, j)
    await(s, f, j)
    if aspect.state == AIMED and f.end[j] > aspect.until:
        aspect.state = REPLACE


cdef inline int forecast_forget(State s, State m, Forecast f, int64_t d, int64_t j) except -1:
    """Process a job that ended and still has its allocation."""
    cdef Aspect* aspect = &f.aspects[d]
    if f.end[j] <= aspect.until:
        heap_remove(f.heaps, f.at, aspect.low, aspect.released, j)
        aspect.released -= 1
        if f.end[j] == aspect.until and aspect.state != HOPELESS:
            aspect.state = UNSURE
    else:
        heap_remove(f.heaps, f.at, aspect.high, aspect.later, j)
        aspect.later -= 1
        shift(s, m, j, d, -1)
        if aspect.state != HOPELESS:
            aspect.state = UNSURE
    if f.late_at[j] != NONE:
        heap_remove(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late, j)
        f.facts[0].late -= 1


cdef inline int forecast_outlived(State s, State m, Forecast f) except -1:
    """Double the estimates of running jobs that should have ended."""
    cdef int64_t j, d, length, end
    cdef Aspect* aspect
    cdef int64_t now = s.g[0].now
    while f.facts[0].late > 0 and f.heaps[f.facts[0].base].key <= now:
        j = f.heaps[f.facts[0].base].job
        heap_pop(f.heaps, f.late_at, f.facts[0].base, f.facts[0].late)
        f.facts[0].late -= 1
        d = s.job_classes[s.jobs[j].job_class].domain
        aspect = &f.aspects[d]
        length = max(s.jobs[j].estimate, 1)
        while s.jobs[j].begun + length <= now:
            length *= 2
        end = s.jobs[j].begun + length
        if f.end[j] <= aspect.until:
            heap_remove(f.heaps, f.at, aspect.low, aspect.released, j)
            aspect.released -= 1
            if end > aspect.until:
                unaim(s, m, f, d)
        else:
            heap_remove(f.heaps, f.at, aspect.high, aspect.later, j)
            aspect.later -= 1
            shift(s, m, j, d, -1)
        f.end[j] = end
        forecast_enter(s, m, f, d, j)
        await(s, f, j)


cdef inline int change_node(State s, State m, Forecast f, int64_t index, int64_t up) except -1:
    """Let a node join or leave the map."""
    cdef Globals* g = &m.g[0]
    cdef Node* node = &m.nodes[index]
    if up == node.up:
        return 0
    cdef int64_t d = m.groups[node.group].domain
    unaim(s, m, f, d)
    if g.by_count:
        node.up = up
        m.domains[d].free += node.gpus if up else -node.gpus
    elif up:
        node_joins(m, index)
    else:
        node_leaves(m, index)


cdef inline int go_forward(State s, State m, Forecast f, int64_t d) except -1:
    """Move the forecast time to the next expected end, which must exist."""
    cdef int64_t j
    cdef Aspect* aspect = &f.aspects[d]
    aspect.until = f.heaps[aspect.high].key
    while aspect.later > 0 and f.heaps[aspect.high].key == aspect.until:
        j = f.heaps[aspect.high].job
        heap_pop(f.heaps, f.at, aspect.high, aspect.later)
        aspect.later -= 1
        heap_push(f.heaps, f.at, aspect.low, aspect.released, -aspect.until, j)
        aspect.released += 1
        shift(s, m, j, d, -1)


cdef inline int go_back(State s, State m, Forecast f, int64_t d) except -1:
    """Move the forecast time back to the previous expected end. At least one job must be released."""
    cdef int64_t j
    cdef Aspect* aspect = &f.aspects[d]
    cdef int64_t last = f.heaps[aspect.low].key
    while aspect.released > 0 and f.heaps[aspect.low].key == last:
        j = f.heaps[aspect.low].job
        heap_pop(f.heaps, f.at, aspect.low, aspect.released)
        aspect.released -= 1
        heap_push(f.heaps, f.at, aspect.high, aspect.later, -last, j)
        aspect.later += 1
        shift(s, m, j, d, 1)
    aspect.until = -f.heaps[aspect.low].key if aspect.released > 0 else NONE


cdef inline int aim(State s, State m, Forecast f, int64_t d, int64_t h) except -1:
    """Find the first time at which job h, which cannot start now, can start, and reserve its place there.

    From the current forecast time, move back while there is room, or forward until there is.
    """
    cdef Aspect* aspect = &f.aspects[d]
    cdef bint same_moment = aspect.state == REPLACE and aspect.head == h
    unaim(s, m, f, d)
    cdef bint forward = aspect.released == 0
    if not forward:
        aspect.until = -f.heaps[aspect.low].key
    cdef bint found = False
    while not forward or aspect.later > 0:
        if forward:
            go_forward(s, m, f, d)
        found = forecast_reserve(s, m, f, d, h)
        if not found:
            forward = True
        elif forward or same_moment:
            break
        else:
            unaim(s, m, f, d)
            go_back(s, m, f, d)
            forward = aspect.released == 0
            found = False
    aspect.head = h
    aspect.state = AIMED if found else HOPELESS


cdef inline bint spare_fits(State s, State m, int64_t d, int64_t j):
    """Return whether a job's GPUs are also free on the map, besides the place reserved there."""
    if m.g[0].by_count:
        return m.domains[d].free >= s.jobs[j].gpus
    cdef int64_t link = s.jobs[j].allocation
    while link != NONE:
        if m.nodes[s.allocations[link].node].free < s.allocations[link].gpus:
            return False
        link = s.allocations[link].next
    return True
