# The GPUs that a waiting job could get, and those that it takes: idle GPUs first, then GPUs with running jobs.
#
# SharedGlobals.alone and SharedGlobals.work store the waiting job's work, to test it against many running jobs in a row
# (see `ask`).


cdef inline int64_t left_ms(Job* job, int64_t now):
    """Return the remaining work of a running job, rounded up [ms]."""
    cdef int64_t left = max(job.remaining - (now - job.since) * job.rate, 0)
    return min((left + PPM - 1) // PPM, MOST_MS)


cdef inline int64_t work_ms(Job* job, int64_t speed):
    """Return the time that a waiting job takes alone at a speed, rounded up [ms]."""
    cdef int64_t work = min((job.remaining + PPM - 1) // PPM, MOST_MS)
    return min((work * PPM + speed - 1) // speed, MOST_MS)


cdef inline int ask(State s, Residents r, int64_t j, int64_t step) except -1:
    """Store the work of a waiting job, alone and in `step` sub-batches, for `gains`."""
    r.g[0].alone = work_ms(&s.jobs[j], PPM)
    r.g[0].work = work_ms(&s.jobs[j], r.speeds[step]) if step > 0 else r.g[0].alone


cdef inline bint gains(State s, Residents r, int64_t j, int64_t step, int64_t other):
    """Return whether the last `ask`'s waiting job in `step` fits next to a job that is alone on a GPU, and benefits."""
    cdef SharedJob* me
    cdef SharedJob* them
    me, them = &r.jobs[j], &r.jobs[other]
    if r.memory[step, j] + r.memory[them.step, other] > PPM:
        return False
    if r.g[0].test == 0:
        return True
    cdef int64_t speed = pair_speed(r.g[0].strength, me.utilization, them.utilization)
    return shares(r.g[0].alone, r.g[0].work, left_ms(&s.jobs[other], s.g[0].now), speed, speed)


cdef inline int64_t usable(State s, Residents r, int64_t other):
    """Return the number of GPUs that a job uses alone on available nodes."""
    cdef SharedGpu* cell
    if r.g[0].away == 0:
        return r.jobs[other].alone
    cdef int64_t found = 0
    cdef int64_t link = r.jobs[other].held
    while link != NONE:
        cell = &r.gpus[r.held[link].gpu]
        found += cell.jobs == 1 and s.nodes[cell.node].up == 1
        link = r.held[link].next
    return found


cdef inline int64_t seats_left(State s, Residents r, int64_t j, int64_t d, int64_t model, int64_t step, int64_t wanted):
    """Count the GPUs of a model that a job in `step` may share, and stop once there are enough."""
    cdef int64_t i, other
    if r.g[0].test == 0:
        return sharing_gather(s, r, d, model, OPEN_GPUS, PPM - r.memory[step, j], wanted, False)
    cdef Candidates* domain = &r.domains[d]
    cdef int64_t found = 0
    ask(s, r, j, step)
    for i in range(domain.base, domain.base + domain.size):
        other = r.candidates[i]
        if r.jobs[other].model == model and gains(s, r, j, step, other):
            found += usable(s, r, other)
            if found >= wanted:
                break
    return found


cdef inline int64_t there(State s, Residents r, int64_t d, int64_t first, int64_t kind):
    """Count the idle or open GPUs of a model (the model of group `first`) in a domain."""
    cdef int64_t index
    cdef int64_t total = 0
    for index in range(first, s.domains[d].group_high):
        if s.groups[index].model == s.groups[first].model:
            total += r.groups[index].idle if kind == IDLE_GPUS else r.groups[index].open
    return total


cdef inline bint begins_model(State s, JobClass* job_class, int64_t first):
    """Return whether a group is the first of its model in its domain, and is accepted."""
    cdef int64_t low = s.domains[job_class.domain].group_low
    if first > low and s.groups[first - 1].model == s.groups[first].model:
        return False
    return accepts(job_class, first, low)


cdef inline int64_t reach(State s, Residents r, int64_t j, JobClass* job_class):
    """Return an upper bound on a job's GPUs of one model now. It reaches the gang's size only if the gang fits."""
    cdef int64_t first, idle, most, step, wanted, found
    cdef int64_t d = job_class.domain
    cdef int64_t best = 0
    for first in range(s.domains[d].group_low, s.domains[d].group_high):
        if not begins_model(s, job_class, first):
            continue
        idle = there(s, r, d, first, IDLE_GPUS)
        if idle >= job_class.gpus:
            return idle
        most = idle + there(s, r, d, first, OPEN_GPUS)
        if most < job_class.gpus:
            best = max(best, most)
            continue
        for step in range(len(r.speeds)):
            wanted = job_class.gpus - idle
            found = seats_left(s, r, j, d, s.groups[first].model, step, wanted)
            best = max(best, idle + found)
            if found >= wanted:
                return best
    return best


cdef inline int64_t tightest_idle(State s, JobClass* job_class):
    """Return the node with the fewest idle GPUs that are enough, or NONE."""
    cdef int64_t index, free, node
    cdef Group* group
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef int64_t best = NONE
    cdef int64_t best_free = 0
    for index in range(domain.group_low, domain.group_high):
        group = &s.groups[index]
        if not accepts(job_class, index, domain.group_low):
            continue
        for free in range(job_class.gpus, group.largest + 1):
            node = first_with(s, group, free)
            if node != NONE:
                if best == NONE or free < best_free:
                    best, best_free = node, free
                break
    return best


cdef inline int64_t fit_of_node(State s, Residents r, int64_t j, int64_t step, int64_t node):
    """Count the GPUs of a node that a job in `step` could get."""
    cdef int64_t gpu
    cdef SharedGpu* cell
    cdef int64_t seats = r.g[0].seats
    cdef int64_t found = 0
    cdef int64_t first = r.nodes[node].first
    for gpu in range(first, first + s.nodes[node].gpus):
        cell = &r.gpus[gpu]
        if cell.jobs == 0:
            found += 1
        elif cell.jobs < seats and cell.memory + r.memory[step, j] <= PPM:
            found += r.g[0].test == 0 or gains(s, r, j, step, r.seats[gpu * seats])
    return found


cdef inline int64_t tightest_shared(State s, Residents r, int64_t j, JobClass* job_class, int64_t step):
    """Return the node with the fewest GPUs, idle or shared, that are enough, or NONE."""
    cdef int64_t index, node, fit
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef int64_t best = NONE
    cdef int64_t best_fit = 0
    ask(s, r, j, step)
    for index in range(domain.group_low, domain.group_high):
        if not accepts(job_class, index, domain.group_low):
            continue
        for node in range(s.groups[index].low, s.groups[index].high):
            if s.nodes[node].up == 0 or s.nodes[node].free + r.nodes[node].open < job_class.gpus:
                continue
            fit = fit_of_node(s, r, j, step, node)
            if fit >= job_class.gpus and (best == NONE or fit < best_fit):
                best, best_fit = node, fit
    return best


cdef inline int note_partner(State s, Residents r, int64_t j, int64_t other, bint one) except -1:
    """Add a running job to the heap of partners, by mean end. If one partner is enough, keep only the best."""
    cdef Entry* best
    cdef int64_t speed = pair_speed(r.g[0].strength, r.jobs[j].utilization, r.jobs[other].utilization)
    cdef int64_t end = mean_end(r.g[0].work, left_ms(&s.jobs[other], s.g[0].now), speed, speed)
    if one and r.g[0].partners == 1:
        best = &r.partners[0]
        if best.key < end or (best.key == end and best.job < other):
            return 0
        r.partner_at[best.job] = NONE
        r.g[0].partners = 0
    heap_push(r.partners, r.partner_at, 0, r.g[0].partners, end, other)
    r.g[0].partners += 1


cdef inline int find_partners(
    State s, Residents r, int64_t j, int64_t d, int64_t model, int64_t node, int64_t step, int64_t wanted
) except -1:
    """Fill the heap with the partners of one model, or with the partners of `node` unless `node` is NONE."""
    cdef Candidates* domain
    cdef int64_t i, other, gpu
    ask(s, r, j, step)
    # A partner without a GPU to share occurs only if nodes leave.
    cdef bint one = wanted == 1 and r.g[0].away == 0
    r.g[0].partners = 0
    if node == NONE:
        domain = &r.domains[d]
        for i in range(domain.base, domain.base + domain.size):
            other = r.candidates[i]
            if r.jobs[other].model == model and gains(s, r, j, step, other):
                note_partner(s, r, j, other, one)
        return 0
    cdef int64_t first = r.nodes[node].first
    for gpu in range(first, first + s.nodes[node].gpus):
        other = r.seats[gpu * r.g[0].seats]
        if r.gpus[gpu].jobs == 1 and r.partner_at[other] == NONE and gains(s, r, j, step, other):
            note_partner(s, r, j, other, one)


cdef inline int64_t choose_partners(
    State s, Residents r, int64_t j, int64_t d, int64_t model, int64_t node, int64_t step, int64_t wanted
):
    """Choose GPUs of partners by mean end (ties by job), and each partner's GPUs in the order in which it took them.

    Use only GPUs of `node` unless it is NONE. Return the mean end with the last GPU, or -1 if there are too few GPUs.
    """
    cdef int64_t other, link, gpu, i
    cdef SharedGpu* cell
    cdef bint elsewhere
    find_partners(s, r, j, d, model, node, step, wanted)
    cdef int64_t end = 0
    while wanted > 0 and r.g[0].partners > 0:
        end, other = r.partners[0].key, r.partners[0].job
        heap_pop(r.partners, r.partner_at, 0, r.g[0].partners)
        r.g[0].partners -= 1
        link = r.jobs[other].held
        while link != NONE and wanted > 0:
            gpu = r.held[link].gpu
            cell = &r.gpus[gpu]
            elsewhere = node != NONE and cell.node != node
            if cell.jobs == 1 and s.nodes[cell.node].up == 1 and not elsewhere:
                r.chosen[r.g[0].chosen] = gpu
                r.g[0].chosen += 1
                wanted -= 1
            link = r.held[link].next
    for i in range(r.g[0].partners):
        r.partner_at[r.partners[i].job] = NONE
    return end if wanted == 0 else -1


cdef inline int choose_on_node(
    State s, Residents r, int64_t j, JobClass* job_class, int64_t step, int64_t node
) except -1:
    cdef int64_t model
    cdef int64_t room = PPM - r.memory[step, j]
    cdef int64_t found = seats_of_node(s, r, node, IDLE_GPUS, PPM, job_class.gpus, True)
    if r.g[0].test:
        model = s.groups[s.nodes[node].group].model
        choose_partners(s, r, j, job_class.domain, model, node, step, job_class.gpus - found)
    else:
        seats_of_node(s, r, node, OPEN_GPUS, room, job_class.gpus - found, True)


cdef inline int64_t choose_one_shared(State s, Residents r, int64_t j, JobClass* job_class):
    """Choose GPUs of the tightest node, idle or shared; return the sub-batches, or NONE if there is no such node."""
    cdef int64_t step, node
    for step in range(len(r.speeds)):
        node = tightest_shared(s, r, j, job_class, step)
        if node != NONE:
            choose_on_node(s, r, j, job_class, step, node)
            return step
    return NONE


cdef inline int64_t choose_shared(State s, Residents r, int64_t j, JobClass* job_class, int64_t first, int64_t idle):
    """Choose all idle GPUs of a model and shared GPUs for the rest; return the sub-batches, or NONE if impossible."""
    cdef int64_t step, end
    cdef int64_t d = job_class.domain
    cdef int64_t model = s.groups[first].model
    cdef int64_t wanted = job_class.gpus - idle
    cdef int64_t best = NONE
    cdef int64_t best_end = 0
    for step in range(len(r.speeds)):
        if r.g[0].test == 0:
            if seats_left(s, r, j, d, model, step, wanted) >= wanted:
                sharing_gather(s, r, d, model, IDLE_GPUS, PPM, idle, True)
                sharing_gather(s, r, d, model, OPEN_GPUS, PPM - r.memory[step, j], wanted, True)
                return step
            continue
        r.g[0].chosen = 0
        end = choose_partners(s, r, j, d, model, NONE, step, wanted)
        if end >= 0 and (best == NONE or end < best_end):
            best, best_end = step, end
    r.g[0].chosen = 0
    if best != NONE:
        sharing_gather(s, r, d, model, IDLE_GPUS, PPM, idle, True)
        choose_partners(s, r, j, d, model, NONE, best, wanted)
    return best


cdef inline int64_t sharing_choose(State s, Residents r, int64_t j, JobClass* job_class):
    """Choose GPUs for a job that has a place; return the index of its sub-batches."""
    cdef int64_t node, first, step
    cdef int64_t d = job_class.domain
    cdef Domain* domain = &s.domains[d]
    r.g[0].chosen = 0
    if r.g[0].consolidate:
        node = tightest_idle(s, job_class)
        if node != NONE:
            seats_of_node(s, r, node, IDLE_GPUS, PPM, job_class.gpus, True)
            return 0
    for first in range(domain.group_low, domain.group_high):
        if begins_model(s, job_class, first) and there(s, r, d, first, IDLE_GPUS) >= job_class.gpus:
            sharing_gather(s, r, d, s.groups[first].model, IDLE_GPUS, PPM, job_class.gpus, True)
            return 0
    if r.g[0].consolidate:
        step = choose_one_shared(s, r, j, job_class)
        if step != NONE:
            return step
    for first in range(domain.group_low, domain.group_high):
        if begins_model(s, job_class, first):
            step = choose_shared(s, r, j, job_class, first, there(s, r, d, first, IDLE_GPUS))
            if step != NONE:
                return step
    return NONE


# Two jobs on one GPU: the speed of each, and whether sharing is better than waiting. Integers only.
#
# The theorem behind the test: job B runs with work b left when job A arrives with work a. Next to each other they have
# speeds ra and rb, so A takes a / ra and B takes b / rb. The mean of the two end times is piecewise linear in the delay
# after which A joins, so the best delay is 0 or b. Let P = 1,000,000 be the speed of a job alone, and count the mean
# end from A's arrival:
#
# - share now, A outlasts B (a * rb >= b * ra): a / 2 + (2P - ra) * b / (2 rb)
# - share now, B outlasts A: b / 2 + (2P - rb) * a / (2 ra)
# - wait: b + a / 2
#
# For given speeds the answer depends only on b / a: if sharing is better for some b, it is better for any larger b.

# Largest amount of work in the test: 139 years. Larger amounts count as this much, to keep products within 64 bits.
cdef int64_t MOST_MS = 1 << 42
cdef int64_t _HALF = PPM * PPM // 2


cpdef int64_t pair_speed(int64_t strength, int64_t victim, int64_t partner):
    """Return the speed of a job next to another, given their GPU utilizations (M1) [ppm].

    `strength` is c in ppm, or -1 for the rule that both slow down if they request more than the GPU has (D5).
    """
    cdef int64_t together
    if strength < 0:
        together = max(victim + partner, PPM)
        return (PPM * PPM + together // 2) // together
    return max(PPM - (strength * victim * partner + _HALF) // (PPM * PPM), 1)


cpdef bint shares(int64_t alone, int64_t a, int64_t b, int64_t ra, int64_t rb):
    """Return whether A should join B now rather than wait until B has ended.

    Parameters
    ----------
    alone : int
        Work of A if it waits [ms].
    a : int
        Work of A if it joins [ms], which is larger if it runs in sub-batches.
    b : int
        Remaining work of B [ms].
    ra, rb : int
        Speeds of A and B next to each other, 1 to 1,000,000 [ppm].
    """
    if a * rb >= b * ra:
        return rb * (a - alone) < (2 * rb + ra - 2 * PPM) * b
    return (2 * PPM - rb) * a - ra * alone < ra * b


cpdef int64_t mean_end(int64_t a, int64_t b, int64_t ra, int64_t rb):
    """Return the sum of both end times if A joins B now, counted from now and rounded down [ms]."""
    if a * rb >= b * ra:
        return a + (2 * PPM - ra) * b // rb
    return b + (2 * PPM - rb) * a // ra
