# The six rules that choose a node and its GPUs for a task, and a cache of their scores.
#
# A rule gives each fitting node an integer score of 0..100, truncated, not rounded. The highest score wins, and node
# rank breaks ties. The rules follow the study of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, where scores
# are also integers, so ties are common. In two rules, the study divides by 128 cores and 8 GPUs. We use the largest
# node instead.
#
# A score depends only on the node and the task's shape. So we cache scores by shape, and when a shape comes again,
# score only the nodes that have changed.

cdef enum:
    _RANDOM = 0
    _DOTPRODUCT = 1
    _CLUSTERING = 2
    _PACKING = 3
    _BESTFIT = 4
    _FGD = 5
cdef uint64_t[3] _XORSHIFTS = [13, 7, 17]
cdef uint64_t _HALF_WORD = 32


cpdef int64_t rules_place(Fractions state, int64_t shape, int32_t[::1] gpus):
    """Choose a node and GPUs for a task by the rule of the state, without allocating anything.

    Parameters
    ----------
    state : Fractions
        The nodes. Only the score cache and, for the rule 'random', the random state are modified.
    shape : int
        Index of the task's shape.
    gpus : array, shape (at least the GPUs of the largest node,)
        Receives the indices of the GPUs, as many as the task requests.

    Returns
    -------
    int
        Index of the node, or -1 if the task fits nowhere.
    """
    cdef int64_t row = shape % len(state.scored_shape)
    rules_refresh(state, shape, row)
    cdef int8_t[::1] scores = state.scores[row]
    cdef int64_t node = any_that_fits(state, scores) if state.rule == _RANDOM else highest(scores)
    if node >= 0:
        choose_gpus(state, shape, node, gpus)
    return node


cdef inline int64_t fitting(Fractions state, int64_t shape):
    """Return the number of nodes on which a task of a shape fits."""
    cdef int64_t node
    cdef int64_t row = shape % len(state.scored_shape)
    rules_refresh(state, shape, row)
    cdef int64_t count = 0
    for node in range(len(state.nodes)):
        count += state.scores[row, node] >= 0
    return count


cpdef int64_t score(Fractions state, int64_t shape, int64_t node):
    """Return the score of a node for a task, 0..100, or -1 if the task does not fit."""
    if not feasible(state, shape, node):
        return -1
    cdef int64_t points = 0  # the rule 'random' only needs to know which nodes fit
    if state.rule == _DOTPRODUCT:
        points = dotproduct(state, shape, node)
    elif state.rule == _CLUSTERING:
        points = clustering(state, shape, node)
    elif state.rule == _PACKING:
        points = packing(state, shape, node)
    elif state.rule == _BESTFIT:
        points = bestfit(state, shape, node)
    elif state.rule == _FGD:
        points = fgd(state, shape, node)
    return points


cdef inline int rules_refresh(Fractions state, int64_t shape, int64_t row) except -1:
    cdef int64_t number, node
    cdef int64_t changes = state.totals[CHANGES]
    cdef int64_t known = state.scored_until[row]
    # The ring of changes has one entry per node. After more changes, or for another shape, all nodes are scored.
    cdef bint everything = state.scored_shape[row] != shape or changes - known > len(state.changed)
    for number in range(0 if everything else known, len(state.nodes) if everything else changes):
        node = number if everything else state.changed[number % len(state.changed)]
        if everything or state.nodes[node].changed == number:
            state.scores[row, node] = score(state, shape, node)
    state.scored_shape[row] = shape
    state.scored_until[row] = changes


cdef inline int64_t highest(int8_t[::1] scores):
    cdef int64_t node
    cdef int64_t highest = -1
    for node in range(len(scores)):
        highest = max(highest, scores[node])
    if highest < 0:
        return -1
    for node in range(len(scores)):
        if scores[node] == highest:
            return node
    return -1


cdef inline int64_t any_that_fits(Fractions state, int8_t[::1] scores):
    cdef int64_t node
    cdef int64_t fitting = 0
    for node in range(len(scores)):
        fitting += scores[node] >= 0
    if fitting == 0:
        return -1
    cdef int64_t before = draw(state.random, fitting)
    for node in range(len(scores)):
        if scores[node] >= 0:
            if before == 0:
                return node
            before -= 1
    return -1


@cython.overflowcheck(False)  # overflow is intended, because it drops the upper bits
cdef inline int64_t draw(uint64_t[::1] random, int64_t below):
    """Return a random integer from 0 to below-1 (xorshift64, upper half; `below` must be less than 2^32)."""
    cdef uint64_t bits = random[0]
    bits ^= bits << _XORSHIFTS[0]
    bits ^= bits >> _XORSHIFTS[1]
    bits ^= bits << _XORSHIFTS[2]
    random[0] = bits
    return <int64_t>(((bits >> _HALF_WORD) * <uint64_t>below) >> _HALF_WORD)


cdef inline int64_t dotproduct(Fractions state, int64_t shape, int64_t node):
    """Score 100 * (1 - mean over CPU and GPU of free * requested), relative to the largest node."""
    cdef Shape* task
    cdef PartNode* there
    cdef int64_t cpu_scale, gpu_scale
    task, there = &state.shapes[shape], &state.nodes[node]
    cpu_scale, gpu_scale = state.totals[CPU_SCALE], state.totals[GPU_SCALE]
    cdef double cpu = (there.cpu_left / cpu_scale) * (task.cpu / cpu_scale)
    cdef double gpu = (there.milli_left / gpu_scale) * (task.count * task.milli / gpu_scale)
    return <int64_t>(100.0 * (1.0 - (cpu + gpu) / 2.0))


cdef inline int64_t bestfit(Fractions state, int64_t shape, int64_t node):
    """Score 100 * (1 - mean over CPU and GPU of the capacity that stays free), relative to the largest node.

    The study then stretches the scores to 0..100. We skip this step: it keeps the order and creates no ties, so the
    same node wins.
    """
    cdef Shape* task
    cdef PartNode* there
    task, there = &state.shapes[shape], &state.nodes[node]
    cdef double cpu = (there.cpu_left - task.cpu) / state.totals[CPU_SCALE]
    cdef double gpu = (there.milli_left - task.count * task.milli) / state.totals[GPU_SCALE]
    return <int64_t>((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)


cdef inline int64_t clustering(Fractions state, int64_t shape, int64_t node):
    """Prefer nodes with only tasks of the same size, then with some, then without tasks, then others; fuller first."""
    cdef Shape* task
    cdef PartNode* there
    cdef int64_t size
    task, there = &state.shapes[shape], &state.nodes[node]
    if task.count == 0:
        return 0
    cdef int64_t sizes = 0
    for size in range(state.holders.shape[1]):
        sizes += state.holders[node, size] > 0
    cdef int64_t full = 25 * (state.totals[GPU_SCALE] - there.milli_left) // state.totals[GPU_SCALE]
    cdef int64_t own = task.count if task.milli == WHOLE_GPU else 0
    if state.holders[node, own] > 0:
        return full + (75 if sizes == 1 else 50)
    return full + (25 if sizes == 0 else 0)


cdef inline int64_t packing(Fractions state, int64_t shape, int64_t node):
    """Prefer GPUs in use, then unused GPUs of a used node, then unused nodes."""
    cdef Shape* task
    cdef PartNode* there
    cdef int64_t gpu, left, index
    task, there = &state.shapes[shape], &state.nodes[node]
    if task.count == 0:
        return 0
    if there.whole == there.gpus:
        return <int64_t>(max(33 - there.gpus, min(33, there.gpus)))
    # Take the GPUs with the least free capacity that is enough. Unused GPUs are needed if too few GPUs are in use.
    cdef int64_t used = 0
    for gpu in range(there.gpus):
        left = state.gpu_left[node, gpu]
        used += task.milli <= left < WHOLE_GPU
    if used < task.count:
        return <int64_t>(max(50 - (task.count - used), 33))
    least_left_of_all(state, shape, node, state.scratch)
    cdef int64_t free_percent = 0
    for index in range(task.count):
        free_percent += state.gpu_left[node, state.scratch[index]] * 100 // WHOLE_GPU
    return <int64_t>(max(100 - free_percent // 10, 50))


cdef inline int64_t fgd(Fractions state, int64_t shape, int64_t node):
    """Score 100 * sigmoid of the fragment that the task removes, in GPUs. For part of a GPU, use the best GPU."""
    cdef int64_t index
    cdef Shape* task = &state.shapes[shape]
    if task.count == 1 and task.milli < WHOLE_GPU:
        return best_gpu(state, shape, node)[0]
    cdef PartNode* there = &state.nodes[node]
    least_left_of_all(state, shape, node, state.scratch)
    there.cpu_left -= task.cpu
    for index in range(task.count):
        state.gpu_left[node, state.scratch[index]] -= task.milli
    cdef int64_t after = wasted_milli(state, node)
    for index in range(task.count):
        state.gpu_left[node, state.scratch[index]] += task.milli
    there.cpu_left += task.cpu
    return gain(state, there.wasted, after)


cdef inline (int64_t, int64_t) best_gpu(Fractions state, int64_t shape, int64_t node):
    """Return the best score among the GPUs that fit, and the GPU with that score. Ties go to the lowest GPU."""
    cdef Shape* task
    cdef PartNode* there
    cdef int64_t best, chosen, gpu, left, earlier, points
    cdef bint seen
    task, there = &state.shapes[shape], &state.nodes[node]
    best, chosen = -1, -1
    there.cpu_left -= task.cpu
    for gpu in range(there.gpus):
        left = state.gpu_left[node, gpu]
        if left < task.milli:
            continue
        seen = False  # a GPU with the same free capacity gives the same fragment
        for earlier in range(gpu):
            seen |= state.gpu_left[node, earlier] == left
        if seen:
            continue
        state.gpu_left[node, gpu] = left - task.milli
        points = gain(state, there.wasted, wasted_milli(state, node))
        state.gpu_left[node, gpu] = left
        if points > best:
            best, chosen = points, gpu
    there.cpu_left += task.cpu
    return best, chosen


cdef inline int64_t gain(Fractions state, int64_t before, int64_t after):
    cdef double fragment = (before - after) / state.totals[WEIGHT] / 1000.0 if state.totals[WEIGHT] > 0 else 0.0
    return <int64_t>(100.0 * (1.0 / (1.0 + exp(-fragment))))


cdef inline int64_t least_left(Fractions state, int64_t node, int64_t milli, int64_t last):
    """Return the next GPU after `last` (the first if -1) by free capacity, then index, among the GPUs with enough."""
    cdef int64_t gpu, left, limit
    cdef int64_t chosen = -1
    for gpu in range(state.nodes[node].gpus):
        left = state.gpu_left[node, gpu]
        if left < milli:
            continue
        if last >= 0:
            limit = state.gpu_left[node, last]
            if left < limit or (left == limit and gpu <= last):
                continue
        if chosen < 0 or left < state.gpu_left[node, chosen]:
            chosen = gpu
    return chosen


cdef inline int least_left_of_all(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus) except -1:
    """Write the GPUs with the least free capacity that is enough. Whole GPUs are in index order."""
    cdef int64_t index
    cdef Shape* task = &state.shapes[shape]
    cdef int64_t last = -1
    for index in range(task.count):
        last = least_left(state, node, task.milli, last)
        gpus[index] = last


cdef inline int choose_gpus(Fractions state, int64_t shape, int64_t node, int32_t[::1] gpus) except -1:
    cdef Shape* task = &state.shapes[shape]
    cdef bint part = task.count == 1 and task.milli < WHOLE_GPU
    if part and state.rule == _FGD:
        gpus[0] = best_gpu(state, shape, node)[1]
    elif part and state.rule == _RANDOM:
        gpus[0] = any_gpu(state, node, task.milli)
    else:
        least_left_of_all(state, shape, node, gpus)


cdef inline int64_t any_gpu(Fractions state, int64_t node, int64_t milli):
    cdef int64_t gpu
    cdef int64_t enough = 0
    for gpu in range(state.nodes[node].gpus):
        enough += state.gpu_left[node, gpu] >= milli
    cdef int64_t before = draw(state.random, enough)
    for gpu in range(state.nodes[node].gpus):
        if state.gpu_left[node, gpu] >= milli:
            if before == 0:
                return gpu
            before -= 1
    return -1
