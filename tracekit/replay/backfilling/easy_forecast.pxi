# When and where the first waiting job can start, according to the estimates (see easy_forecast.py).

# State of a domain's first waiting job: unknown; its start time is known; time and place are known; it can never start.
cpdef enum:
    UNSURE = 0
    REPLACE = 1
    AIMED = 2
    HOPELESS = 3


cdef inline int shift(State s, State m, int64_t j, int64_t d, int64_t sign) except -1:
    """Take (sign 1) or free (sign -1) on the map the GPUs of a running job."""
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
    """Reserve a place for job h on the map as it is; return whether there is one."""
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
    """Remember a job that will run past its expected end."""
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
    """Move the forecast time back to the previous expected end; at least one job must be released."""
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

    Move back from the current forecast time as long as there is room; if there was none, move forward until there is.
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
    """Return whether the GPUs given to a job are free on the map too, in addition to the place reserved there."""
    if m.g[0].by_count:
        return m.domains[d].free >= s.jobs[j].gpus
    cdef int64_t link = s.jobs[j].allocation
    while link != NONE:
        if m.nodes[s.allocations[link].node].free < s.allocations[link].gpus:
            return False
        link = s.allocations[link].next
    return True
