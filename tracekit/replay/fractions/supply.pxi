# Nodes whose GPUs are divided into thousandths: what is free, and how much of it the workload cannot use.

# A whole GPU [milli-GPU].
cpdef enum:
    WHOLE_GPU = 1_000
# Positions in `Fractions.totals`: node changes so far; totals over the nodes of `milli_left` and `wasted`; CPU
# [milli-cores] and GPUs [milli-GPU] of the largest node; tasks of the expected workload.
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

    This is the sum over the expected shapes of weight * wasted(shape). If the shape requests no GPU or does not fit
    (ignoring memory), wasted is all that is free on the node's GPUs; otherwise it is what is free on GPUs with less
    than the shape requests of each. Divided by the workload's weight it is the fragment F of the node in Weng et al.,
    "Beware of Fragmentation", USENIX ATC 2023.

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
    """Start a task on a node, on the first `count` of the given GPUs; the caller has checked that it fits."""
    change(state, shape, node, gpus, 1)


cpdef void supply_release(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus):
    """End a task: free what `take` took with the same arguments."""
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
    """Block a node for new tasks (sign 1) or unblock it (-1); running tasks continue."""
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
