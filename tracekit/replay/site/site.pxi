# The scheduling pass by the rules of a site (see `mechanism.SiteRules`).
#
# A pass looks at every waiting job in order. Room only shrinks during a pass, so jobs with the same need fail alike:
# each need remembers the shortest believed run time that failed.

cpdef enum:
    SITE_STRICT = 0
    SITE_PASSING = 1
    SITE_EASY = 2


cdef inline bint has_room(Room* room, Need* need):
    """Return whether free amounts suffice for one node of a job."""
    return room.gpus >= need.gpus and room.cpu >= need.cpu and room.memory >= need.memory


cdef inline int use_room(Room* room, Need* need, int64_t gpus, int64_t sign) except -1:
    """Take (sign 1) or free (sign -1) what a job has on one node."""
    room.gpus -= sign * gpus
    room.cpu -= sign * need.cpu
    room.memory -= sign * need.memory


cdef inline bint tighter(Room* room, Room* other):
    """Return whether one node has less room than another: fewer free GPUs, then CPUs. Ties go to the first listed."""
    if room.gpus != other.gpus:
        return room.gpus < other.gpus
    return room.cpu < other.cpu or (room.cpu == other.cpu and room.place < other.place)


cdef inline bint too_late(SiteRules r, int64_t line, int64_t end):
    """Return whether a line has a promise in this pass, and a job that ends at `end` would still run by then."""
    return r.lines[line].promised == r.facts[0].passes and end > r.lines[line].start


cdef inline bint keeps_promises(SiteRules r, Need* need, int64_t node, int64_t end):
    """Return whether a job that ends at `end` leaves the room on a node that was promised."""
    cdef int64_t line
    cdef Room* left
    for line in range(len(r.lines)):
        left = &r.left[line, node]
        if too_late(r, line, end) and left.pass_of == r.facts[0].passes and not has_room(left, need):
            return False
    return True


cdef inline int64_t choose_nodes(
    State s, SiteRules r, Room[::1] room, JobClass* job_class, Need* need, int64_t end
):
    """Mark the tightest nodes with room for a job as chosen; return their number, or 0 (nothing marked) if too few.

    With an `end`, nodes with promised room are spared; with NONE, promises do not matter.
    """
    cdef int64_t index, node, best
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef int64_t chosen = 0
    while chosen < need.nodes:
        best = NONE
        for index in range(domain.group_low, domain.group_high):
            if not accepts(job_class, index, domain.group_low):
                continue
            for node in range(s.groups[index].low, s.groups[index].high):
                if room[node].chosen or not s.nodes[node].up or not has_room(&room[node], need):
                    continue
                if best != NONE and not tighter(&room[node], &room[best]):
                    continue
                if end == NONE or keeps_promises(r, need, node, end):
                    best = node
        if best == NONE:
            break
        room[best].chosen = 1
        chosen += 1
    if chosen < need.nodes:
        unmark(s, room, domain)
        return 0
    return chosen


cdef inline int unmark(State s, Room[::1] room, Domain* domain) except -1:
    cdef int64_t index, node
    for index in range(domain.group_low, domain.group_high):
        for node in range(s.groups[index].low, s.groups[index].high):
            room[node].chosen = 0


cdef inline int begin_on(State s, Key key, SiteRules r, int64_t j, JobClass* job_class, Need* need) except -1:
    """Start a job on the chosen nodes. There are none if it runs elsewhere."""
    cdef int64_t index, node, line, gpus
    cdef Job* job = &s.jobs[j]
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef int64_t end = s.g[0].now + r.length[j]
    cdef int64_t missing = job.gpus
    for index in range(domain.group_low, domain.group_high):
        for node in range(s.groups[index].low, s.groups[index].high):
            if not r.room[node].chosen:
                continue
            r.room[node].chosen = 0
            gpus = min(missing, need.gpus)
            missing -= gpus
            hold(s, job, node, gpus)
            use_room(&r.room[node], need, gpus, 1)
            for line in range(len(r.lines)):
                if too_late(r, line, end) and r.left[line, node].pass_of == r.facts[0].passes:
                    use_room(&r.left[line, node], need, gpus, 1)
    count_site(s, r, j, 1)
    run_until(r, j, end)
    start(s, key, j, need.nodes, PPM)


cdef inline int count_site(State s, SiteRules r, int64_t j, int64_t sign) except -1:
    """Count a job that starts (sign 1) or stops (sign -1) towards its limits and its owner's share."""
    cdef int64_t b
    cdef int64_t gpus = s.jobs[j].gpus
    for b in range(r.counter.shape[1]):
        if r.counter[j, b] != NONE:
            r.counters[r.counter[j, b]].used += sign * (gpus if r.of_gpus[b] else 1)
    if r.owner[j] != NONE:
        r.share[r.owner[j]] += sign * gpus


cdef inline bint at_limit(State s, SiteRules r, int64_t j):
    """Return whether a limit keeps a job from starting."""
    cdef int64_t b, amount
    cdef Counter* counter
    for b in range(r.counter.shape[1]):
        if r.counter[j, b] != NONE:
            counter = &r.counters[r.counter[j, b]]
            amount = s.jobs[j].gpus if r.of_gpus[b] else 1
            if amount > 0 and counter.used + amount > counter.most:
                return True
    return False


cdef inline int64_t place_of_end(SiteRules r, int64_t time, int64_t j):
    """Return the place of a job with an expected end among the running jobs."""
    cdef int64_t middle
    cdef int64_t low = 0
    cdef int64_t high = r.facts[0].running
    while low < high:
        middle = (low + high) // 2
        if r.running[middle].time < time or (r.running[middle].time == time and r.running[middle].job < j):
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int run_until(SiteRules r, int64_t j, int64_t end) except -1:
    cdef int64_t k
    cdef int64_t place = place_of_end(r, end, j)
    for k in range(r.facts[0].running, place, -1):
        r.running[k] = r.running[k - 1]
    r.running[place].time = end
    r.running[place].job = j
    r.ends[j] = end
    r.facts[0].running += 1


cdef inline int stops(State s, SiteRules r, int64_t j) except -1:
    """Take note of a job that ended or was stopped and still has its allocation."""
    cdef int64_t k
    cdef int64_t link = s.jobs[j].allocation
    cdef Need* need = &r.needs[r.need[j]]
    while link != NONE:
        use_room(&r.room[s.allocations[link].node], need, s.allocations[link].gpus, -1)
        link = s.allocations[link].next
    count_site(s, r, j, -1)
    r.facts[0].running -= 1
    for k in range(place_of_end(r, r.ends[j], j), r.facts[0].running):
        r.running[k] = r.running[k + 1]


cdef inline int promise(State s, SiteRules r, JobClass* job_class, Need* need) except -1:
    """Promise a job the nodes on which it can start first if running jobs end as expected. It may never be able to."""
    cdef int64_t index, node, k, link, fitting, j
    cdef bint before
    cdef Need* other
    cdef Domain* domain = &s.domains[job_class.domain]
    fitting = 0
    for node in range(len(r.room)):
        r.later[node] = r.room[node]
    for index in range(domain.group_low, domain.group_high):
        if accepts(job_class, index, domain.group_low):
            for node in range(s.groups[index].low, s.groups[index].high):
                fitting += s.nodes[node].up and has_room(&r.later[node], need)
    for k in range(r.facts[0].running):
        j = r.running[k].job
        other = &r.needs[r.need[j]]
        link = s.jobs[j].allocation
        while link != NONE:
            node = s.allocations[link].node
            before = has_room(&r.later[node], need)
            use_room(&r.later[node], other, s.allocations[link].gpus, -1)
            if s.nodes[node].up and not before and has_room(&r.later[node], need):
                fitting += s.groups[s.nodes[node].group].domain == job_class.domain and accepts(
                    job_class, s.nodes[node].group, domain.group_low
                )
            link = s.allocations[link].next
        if fitting >= need.nodes:
            break
    else:
        return 0
    choose_nodes(s, r, r.later, job_class, need, NONE)
    cdef SiteLine* line = &r.lines[need.line]
    line.promised = r.facts[0].passes
    line.start = r.running[k].time
    for node in range(len(r.later)):
        if r.later[node].chosen:
            r.left[need.line, node] = r.later[node]
            r.left[need.line, node].pass_of = line.promised
            use_room(&r.left[need.line, node], need, need.gpus, 1)
    unmark(s, r.later, domain)


cdef inline int64_t list_victims(State s, SiteRules r, int64_t j):
    """List the running jobs that a job may stop, the youngest first, and return their number."""
    cdef int64_t k, place, other
    cdef int64_t count = 0
    for k in range(r.facts[0].running):
        other = r.running[k].job
        if r.may_stop[j] & r.yields[other] == 0:
            continue
        place = count
        while place > 0 and (
            s.jobs[r.victims[place - 1]].begun < s.jobs[other].begun
            or (s.jobs[r.victims[place - 1]].begun == s.jobs[other].begun and r.victims[place - 1] < other)
        ):
            r.victims[place] = r.victims[place - 1]
            place -= 1
        r.victims[place] = other
        count += 1
    return count


cdef inline bint has_node(State s, Room[::1] room, JobClass* job_class, int64_t j):
    """Return whether a running job has a node that a job class accepts; with `room`, a chosen node instead."""
    cdef int64_t node
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef int64_t link = s.jobs[j].allocation
    while link != NONE:
        node = s.allocations[link].node
        if room is not None:
            if room[node].chosen:
                return True
        elif s.groups[s.nodes[node].group].domain == job_class.domain and accepts(
            job_class, s.nodes[node].group, domain.group_low
        ):
            return True
        link = s.allocations[link].next
    return False


cdef inline int stop_one(State s, Key key, SiteRules r, int64_t j) except -1:
    """Stop a running job for another. It starts over, and waits again after this pass."""
    cdef Job* job = &s.jobs[j]
    take_allocation(s, job.allocation, -1)
    stops(s, r, j)
    drop_allocation(s, job)
    suspend(s, key, j)
    job.remaining = job.saved
    job.preemptions += 1
    r.stopped[r.facts[0].stopped] = j
    r.facts[0].stopped += 1


cdef inline bint stop_others(State s, Key key, SiteRules r, int64_t j, JobClass* job_class, Need* need):
    """Stop other jobs, the youngest first, until a job fits, and choose its nodes. Jobs on other nodes run on."""
    cdef int64_t node, v, link
    cdef int64_t count = list_victims(s, r, j)
    cdef int64_t last = NONE
    for node in range(len(r.room)):
        r.later[node] = r.room[node]
    for v in range(count):
        if not has_node(s, None, job_class, r.victims[v]):
            continue
        link = s.jobs[r.victims[v]].allocation
        while link != NONE:
            use_room(
                &r.later[s.allocations[link].node], &r.needs[r.need[r.victims[v]]], s.allocations[link].gpus, -1
            )
            link = s.allocations[link].next
        if choose_nodes(s, r, r.later, job_class, need, NONE) > 0:
            last = v
            break
    if last == NONE:
        return False
    for v in range(last + 1):
        if has_node(s, None, job_class, r.victims[v]) and has_node(s, r.later, job_class, r.victims[v]):
            stop_one(s, key, r, r.victims[v])
    for node in range(len(r.room)):
        r.room[node].chosen = r.later[node].chosen
    unmark(s, r.later, &s.domains[job_class.domain])
    return True


cdef inline bint site_try(State s, Key key, SiteRules r, int64_t j):
    """Start a waiting job if the rules let it, and return whether it started."""
    cdef bint held_up, failed
    cdef int64_t line, k
    cdef JobClass* job_class = &s.job_classes[s.jobs[j].job_class]
    cdef Need* need = &r.needs[r.need[j]]
    cdef int64_t passes = r.facts[0].passes
    if need.nodes == 0:  # a job that runs elsewhere
        begin_on(s, key, r, j, job_class, need)
        return True
    if r.lines[need.line].closed == passes or at_limit(s, r, j):
        return False
    failed = need.tried == passes and r.length[j] >= need.failed
    cdef int64_t end = s.g[0].now + r.length[j]
    if not failed and choose_nodes(s, r, r.room, job_class, need, end) > 0:
        begin_on(s, key, r, j, job_class, need)
        return True
    if r.may_stop[j] != 0 and r.lines[need.line].promised != passes:
        if stop_others(s, key, r, j, job_class, need):
            begin_on(s, key, r, j, job_class, need)
            # Jobs that failed before may fit now.
            for k in range(len(r.needs)):
                r.needs[k].tried = NONE
            return True
    if failed:
        return False
    held_up = False
    for line in range(len(r.lines)):
        held_up |= too_late(r, line, end)
    need.tried = passes
    need.failed = r.length[j] if held_up else 0
    if r.facts[0].backfill == SITE_STRICT:
        r.lines[need.line].closed = passes
    elif r.facts[0].backfill == SITE_EASY and r.lines[need.line].promised != passes:
        promise(s, r, job_class, need)
    return False


cdef inline bint goes_first(SiteRules r, int64_t j, int64_t other):
    """Return whether a waiting job is before another in the order."""
    if r.facts[0].shared:
        if r.tier[j] != r.tier[other]:
            return r.tier[j] < r.tier[other]
        if r.turn[j] != r.turn[other]:
            return r.turn[j] < r.turn[other]
    return r.rank[j] < r.rank[other]


cdef inline int insert_waiting(SiteRules r, int64_t size, int64_t j) except -1:
    """Insert a job into the first `size` waiting jobs, which are in order."""
    cdef int64_t k = size
    while k > 0 and goes_first(r, j, r.waiting[k - 1]):
        r.waiting[k] = r.waiting[k - 1]
        k -= 1
    r.waiting[k] = j


cdef inline int join_site(SiteRules r, int64_t j) except -1:
    if r.facts[0].shared:
        r.turn[j] = r.share[r.owner[j]] if r.owner[j] != NONE else 0
    insert_waiting(r, r.facts[0].waiting, j)
    r.facts[0].waiting += 1


cdef inline int site_pass(State s, Key key, SiteRules r) except -1:
    cdef int64_t i, j
    cdef SiteFacts* f = &r.facts[0]
    f.passes += 1
    if f.shared:
        for i in range(f.waiting):
            j = r.waiting[i]
            r.turn[j] = r.share[r.owner[j]] if r.owner[j] != NONE else 0
            insert_waiting(r, i, j)
    cdef int64_t kept = 0
    for i in range(f.waiting):
        j = r.waiting[i]
        if not site_try(s, key, r, j):
            r.waiting[kept] = j
            kept += 1
    f.waiting = kept


cdef inline int join_stopped(SiteRules r) except -1:
    cdef int64_t i
    for i in range(r.facts[0].stopped):
        join_site(r, r.stopped[i])
    r.facts[0].stopped = 0


cdef inline int site_take_note(State s, Key key, SiteRules r, int64_t submitted) except -1:
    """Update the arrays with the events of the instant."""
    cdef int64_t i, j
    cdef Globals* g = &s.g[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        stops(s, r, j)
        drop_allocation(s, &s.jobs[j])
    take_back(s, key)
    for i in range(g.broken):
        join_site(r, s.broken[i])
    for j in range(submitted, g.submitted):
        if s.jobs[j].status == WAITING:
            join_site(r, j)


def run_site(State s, Key key, SiteRules r, int64_t instants):
    """Run at most `instants` instants; return False if no event is left."""
    cdef int64_t _, submitted, i
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        submitted = g.submitted
        if not next_instant(s, key):
            return False
        site_take_note(s, key, r, submitted)
        if g.touched > 0:
            for i in range(g.touched):
                s.domains[s.touched[i]].touched = 0
            g.touched = 0
            site_pass(s, key, r)
            # What stopped jobs leave free goes to others at once. Only one more pass, as rules may let jobs stop each
            # other.
            if r.facts[0].stopped > 0:
                join_stopped(r)
                site_pass(s, key, r)
                join_stopped(r)
    return True
