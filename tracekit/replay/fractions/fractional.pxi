# The scheduling pass for jobs that share GPUs in thousandths (see rules.pxi).
#
# Everything counts in milli-GPUs. Jobs of one class share a queue; if the first job that cannot start stops the pass,
# all jobs of a domain do. A job that did not fit is tried again only after a node that could hold it joined, or a task
# on such a node ended.


cdef inline int64_t partly_free(State s, Fractions f, int64_t node):
    """Return the free capacity of an available, partly used node [milli-GPU]."""
    cdef int64_t left = f.nodes[node].milli_left
    if s.nodes[node].up == 0 or left == s.nodes[node].gpus * WHOLE_GPU:
        return 0
    return left


cdef inline int hold_part(State s, Fractions f, Gangs gangs, int64_t j, int64_t shape, int64_t node) except -1:
    """Allocate the chosen GPUs of a node to a part of a job."""
    cdef int64_t i
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    cdef Shape* task = &f.shapes[shape]
    g.fragmented -= partly_free(s, f, node)
    supply_take(f, shape, node, gangs.chosen)
    g.fragmented += partly_free(s, f, node)
    for i in range(task.count):
        add_allocation(s, job, node, 0).gpu = gangs.chosen[i]
    cdef int64_t amount = task.count * task.milli
    g.busy += amount
    g.free -= amount
    s.domains[s.job_classes[job.job_class].domain].free -= amount


cdef inline int give_back(State s, Fractions f, Gangs gangs, int64_t j) except -1:
    """Free the GPUs of a job. Its allocation lists the parts in reverse order of placement."""
    cdef int64_t part, shape, node, i, amount
    cdef Shape* task
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    cdef Gang* gang = &gangs.gangs[job.job_class]
    cdef int64_t link = job.allocation
    for part in range(gang.parts if gang.rest != NONE else gang.parts - 1, -1, -1):
        shape = gang.full if part < gang.parts else gang.rest
        task = &f.shapes[shape]
        node = s.allocations[link].node
        for i in range(task.count):
            gangs.chosen[i] = s.allocations[link].gpu
            link = s.allocations[link].next
        amount = task.count * task.milli
        g.fragmented -= partly_free(s, f, node)
        supply_release(f, shape, node, gangs.chosen)
        g.fragmented += partly_free(s, f, node)
        g.busy -= amount
        if s.nodes[node].up:
            g.free += amount
            s.domains[s.job_classes[job.job_class].domain].free += amount
    drop_allocation(s, job)


cdef inline int64_t place_parts(State s, Fractions f, Gangs gangs, int64_t j, Gang* gang):
    """Place a gang of several parts, each on its own node; return its number of nodes, or 0 if it does not fit."""
    cdef int64_t part, shape, node
    cdef int64_t nodes = gang.parts + (gang.rest != NONE)
    # A node for a full part can also hold the rest, so these numbers are enough.
    if fitting(f, gang.full) < gang.parts or (gang.rest != NONE and fitting(f, gang.rest) < nodes):
        return 0
    for part in range(nodes):
        shape = gang.full if part < gang.parts else gang.rest
        node = rules_place(f, shape, gangs.chosen)
        hold_part(s, f, gangs, j, shape, node)
        bar(f, node, 1)
        gangs.barred[part] = node
    for part in range(nodes):
        bar(f, gangs.barred[part], -1)
    return nodes


cdef inline int64_t fractional_place(State s, Fractions f, Gangs gangs, int64_t j):
    """Allocate GPUs to a waiting job; return its number of nodes, or 0 if it does not fit."""
    cdef Job* job = &s.jobs[j]
    cdef Gang* gang = &gangs.gangs[job.job_class]
    if s.domains[s.job_classes[job.job_class].domain].free < job.gpus:
        return 0
    if gang.parts > 1 or gang.rest != NONE:
        return place_parts(s, f, gangs, j, gang)
    cdef int64_t node = rules_place(f, gang.full, gangs.chosen)
    if node < 0:
        return 0
    hold_part(s, f, gangs, j, gang.full, node)
    return 1


cdef inline int fractional_start(State s, Gangs gangs, int64_t j, int64_t nodes) except -1:
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    job.status = RUNNING
    job.since = job.begun = job.first = g.now
    job.nodes = nodes
    job.rate = PPM
    g.running += 1
    g.pending -= 1
    schedule_event(s, j)
    log_row(s, START, j, NONE, PPM)
    cdef int64_t link = job.allocation
    while link != NONE and g.log_on:
        log_gpu(s, j, s.allocations[link].node, s.allocations[link].gpu, gangs.gangs[job.job_class].milli)
        link = s.allocations[link].next


cdef inline int fractional_change_nodes(State s, Fractions f) except -1:
    cdef Change* change
    cdef int64_t node, d, sign, left
    cdef Globals* g = &s.g[0]
    while g.change < g.changes and s.changes[g.change].time <= g.now:
        change = &s.changes[g.change]
        node = change.node
        g.events += 1
        g.change += 1
        d = s.groups[s.nodes[node].group].domain
        log_row(s, UP if change.up else DOWN, NONE, node, 0)
        touch(s, d, 1)
        if change.up == s.nodes[node].up:
            continue
        sign = 1 if change.up else -1
        left = sign * f.nodes[node].milli_left
        g.fragmented -= partly_free(s, f, node)
        s.nodes[node].up = change.up
        g.fragmented += partly_free(s, f, node)
        g.free += left
        s.domains[d].free += left
        bar(f, node, -sign)


cdef inline bint fractional_next_instant(State s, Fractions f, Gangs gangs, Key key):
    """Process every event of the next instant, or return False if no event is left."""
    cdef int64_t j
    cdef Globals* g = &s.g[0]
    cdef int64_t now = next_time(s)
    if now == NEVER:
        return False
    advance(s, now)
    while g.event_size > 0 and s.events[0].key >> 2 == now:
        j = s.events[0].job
        heap_pop(s.events, s.event_at, 0, g.event_size)
        g.event_size -= 1
        end_job(s, j)
        give_back(s, f, gangs, j)
        touch(s, s.job_classes[s.jobs[j].job_class].domain, 1)
    fractional_change_nodes(s, f)
    while g.submitted < g.jobs and s.jobs[g.submitted].submit <= now:
        g.submitted += 1
        submit(s, key, g.submitted - 1)
    return True


cdef inline bint could_start(State s, Fractions f, Gangs gangs, int64_t j, int64_t since):
    """Return whether a job that did not fit may now fit, given the node changes from number `since` on."""
    cdef int64_t number
    cdef Gang* gang = &gangs.gangs[s.jobs[j].job_class]
    cdef int64_t changes = f.totals[CHANGES]
    if gang.parts > 1 or gang.rest != NONE or changes - since > len(f.changed):
        return True
    cdef bint found = False
    for number in range(since, changes):
        found |= feasible(f, gang.full, f.changed[number % len(f.changed)])
    return found


cdef inline int fractional_pass(State s, Fractions f, Gangs gangs, int64_t d, int64_t since) except -1:
    cdef int64_t low, high, q, j, nodes
    cdef Queue* queue
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    low, high = domain.queue_low, domain.queue_high
    if domain.freed:
        for q in range(low, high):
            queue = &s.queues[q]
            if queue.size > 0 and queue.blocked:
                queue.blocked = not could_start(s, f, gangs, s.waiting[queue.base + queue.head].job, since)
    while True:
        q = first_queue(s, False, low, high)
        if q == NONE:
            break
        j = s.waiting[s.queues[q].base + s.queues[q].head].job
        nodes = fractional_place(s, f, gangs, j)
        if nodes > 0:
            dequeue(s, j)
            fractional_start(s, gangs, j, nodes)
            continue
        s.queues[q].blocked = 1
        if g.skip == 0:
            break
    domain.freed = 0


def run_fractional(State s, Fractions f, Gangs gangs, Key key, int64_t instants):
    cdef int64_t _, since, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        since = f.totals[CHANGES]
        if not fractional_next_instant(s, f, gangs, key):
            return False
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            fractional_pass(s, f, gangs, d, since)
        g.touched = 0
    return True


# Nodes with GPUs in thousandths: their free capacity, and the part that the workload cannot use.

# A whole GPU [milli-GPU].
cpdef enum:
    WHOLE_GPU = 1_000
# Positions in `Fractions.totals`: number of node changes so far, totals of `milli_left` and `wasted` over the nodes,
# CPU [milli-cores] and GPUs [milli-GPU] of the largest node, and tasks in the expected workload.
cpdef enum:
    CHANGES = 0
    MILLI_LEFT = 1
    WASTED = 2
    CPU_SCALE = 3
    GPU_SCALE = 4
    WEIGHT = 5
cdef int64_t _BARRED = 1 << 60


def measure(Fractions state):
    cdef int64_t node, wasted
    for node in range(len(state.nodes)):
        wasted = wasted_milli(state, node)
        state.nodes[node].wasted = wasted
        state.totals[WASTED] += wasted


cpdef bint feasible(Fractions state, int64_t shape, int64_t node):
    """Return whether a task of a shape fits on a node: CPU, memory, model, and GPUs with enough free capacity."""
    cdef Shape* task
    cdef PartNode* place
    cdef int64_t gpu
    task, place = &state.shapes[shape], &state.nodes[node]
    if place.cpu_left < task.cpu or place.memory_left < task.memory:
        return False
    if task.count == 0:
        return True
    if not state.accepted[task.models, place.model]:
        return False
    cdef int64_t enough = 0
    for gpu in range(place.gpus):
        if state.gpu_left[node, gpu] >= task.milli:
            enough += 1
    return bool(enough >= task.count)


cpdef int64_t wasted_milli(Fractions state, int64_t node):
    """Return the GPU capacity of a node that the expected workload cannot use.

    This is the sum of weight * wasted(shape) over the expected shapes. If the shape requests no GPU or does not fit
    (ignoring memory), wasted(shape) is all free capacity of the node's GPUs. Otherwise, it is the free capacity of the
    GPUs that have less than the shape requests per GPU. The sum divided by the workload's weight is the fragment F of
    the node in Weng et al., "Beware of Fragmentation", USENIX ATC 2023.

    Returns
    -------
    int
        F * weight of the expected workload [milli-GPU * tasks].
    """
    cdef int64_t gpu, index, lost, enough, scraps, left
    cdef Shape* task
    cdef PartNode* place = &state.nodes[node]
    cdef int64_t gpus = place.gpus
    cdef int64_t idle = 0
    for gpu in range(gpus):
        idle += state.gpu_left[node, gpu]
    if idle == 0:
        return 0
    cdef int64_t wasted = 0
    for index in range(len(state.expected)):
        task = &state.expected[index]
        lost = idle
        if task.count > 0 and place.cpu_left >= task.cpu and state.accepted[task.models, place.model]:
            enough = 0
            scraps = 0
            for gpu in range(gpus):
                left = state.gpu_left[node, gpu]
                if left >= task.milli:
                    enough += 1
                else:
                    scraps += left
            if enough >= task.count:
                lost = scraps
        wasted += task.weight * lost
    return wasted


cpdef void supply_take(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus):
    """Start a task on the first `count` of the given GPUs of a node. The caller has checked that it fits."""
    change(state, shape, node, gpus, 1)


cpdef void supply_release(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus):
    """End a task: free the capacity that `take` took with the same arguments."""
    change(state, shape, node, gpus, -1)


cdef inline int change(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus, int64_t sign) except -1:
    cdef Shape* task
    cdef PartNode* place
    cdef int64_t[::1] totals
    cdef int64_t count, milli, index, gpu, before, after, size
    task, place, totals = &state.shapes[shape], &state.nodes[node], state.totals
    count, milli = task.count, task.milli
    place.cpu_left -= sign * task.cpu
    place.memory_left -= sign * task.memory
    for index in range(count):
        gpu = gpus[index]
        before = state.gpu_left[node, gpu]
        after = before - sign * milli
        state.gpu_left[node, gpu] = after
        if before == WHOLE_GPU and after < WHOLE_GPU:
            place.whole -= 1
        if after == WHOLE_GPU and before < WHOLE_GPU:
            place.whole += 1
    if count > 0:
        size = count if milli == WHOLE_GPU else 0
        state.holders[node, size] += sign
        place.milli_left -= sign * count * milli
        totals[MILLI_LEFT] -= sign * count * milli
    note(state, node)


cpdef void bar(Fractions state, int64_t node, int64_t sign):
    """Block a node for new tasks (sign 1) or unblock it (-1). Running tasks continue."""
    state.nodes[node].cpu_left -= sign * _BARRED
    note(state, node)


cdef inline int note(Fractions state, int64_t node) except -1:
    cdef PartNode* place
    cdef int64_t[::1] totals
    place, totals = &state.nodes[node], state.totals
    cdef int64_t wasted = wasted_milli(state, node)
    totals[WASTED] += wasted - place.wasted
    place.wasted = wasted
    cdef int64_t number = totals[CHANGES]
    state.changed[number % len(state.changed)] = node
    place.changed = number
    totals[CHANGES] = number + 1


# The inflate mode (see `inflate`).


def inflate_arrive(Fractions state, int32_t[::1] shapes, int32_t[::1] gpus, int64_t[::1] left, int64_t[::1] wasted):
    cdef int64_t number, node
    for number in range(len(shapes)):
        node = rules_place(state, shapes[number], gpus)
        if node >= 0:
            supply_take(state, shapes[number], node, gpus)
        left[number] = state.totals[MILLI_LEFT]
        wasted[number] = state.totals[WASTED]
