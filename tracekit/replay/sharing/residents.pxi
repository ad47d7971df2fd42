# Which jobs share each GPU, and which nodes have idle or open GPUs (see residents.py).

# Kinds of GPUs: without a job; with at least one job and a free seat.
cpdef enum:
    IDLE_GPUS = 0
    OPEN_GPUS = 1


def list_all(State s, Residents r):
    cdef int64_t node
    for node in range(len(s.nodes)):
        list_node(s, r, node)


cdef inline int flip(
    Residents r, int64_t kind, Group* group, SharedGroup* shared, Node* node, int64_t jobs, int64_t step
) except -1:
    cdef uint64_t bit = ONE << (node.bit & 63)
    cdef int64_t word = shared.row + jobs * group.words + (node.bit >> 6)
    r.bits[kind, word] ^= bit
    r.counts[kind, shared.count + jobs] += step


cdef inline int list_node(State s, Residents r, int64_t index) except -1:
    """Add an available node to the tables."""
    cdef Node* node = &s.nodes[index]
    if node.up == 0:
        return 0
    cdef SharedNode* mine = &r.nodes[index]
    mine.listed = 1
    cdef SharedGroup* shared = &r.groups[node.group]
    shared.idle += node.free
    shared.open += mine.open
    if node.free > 0:
        flip(r, IDLE_GPUS, &s.groups[node.group], shared, node, mine.jobs, 1)
    if mine.open > 0:
        flip(r, OPEN_GPUS, &s.groups[node.group], shared, node, mine.jobs, 1)


cdef inline int unlist(State s, Residents r, int64_t index) except -1:
    """Remove a node from the tables; its contents must be the same as when it was added."""
    cdef SharedNode* mine = &r.nodes[index]
    if mine.listed == 0:
        return 0
    mine.listed = 0
    cdef Node* node = &s.nodes[index]
    cdef SharedGroup* shared = &r.groups[node.group]
    shared.idle -= node.free
    shared.open -= mine.open
    if node.free > 0:
        flip(r, IDLE_GPUS, &s.groups[node.group], shared, node, mine.jobs, -1)
    if mine.open > 0:
        flip(r, OPEN_GPUS, &s.groups[node.group], shared, node, mine.jobs, -1)


cdef inline int enter_candidate(Residents r, int64_t d, int64_t j) except -1:
    cdef Candidates* domain = &r.domains[d]
    r.candidates[domain.base + domain.size] = j
    r.jobs[j].place = domain.size
    domain.size += 1


cdef inline int leave_candidate(Residents r, int64_t d, int64_t j) except -1:
    cdef Candidates* domain = &r.domains[d]
    domain.size -= 1
    cdef int64_t last = r.candidates[domain.base + domain.size]
    r.candidates[domain.base + r.jobs[j].place] = last
    r.jobs[last].place = r.jobs[j].place
    r.jobs[j].place = NONE


cdef inline int sharing_count_alone(Residents r, int64_t d, int64_t j, int64_t change) except -1:
    cdef SharedJob* job = &r.jobs[j]
    job.alone += change
    if job.alone > 0 and job.place == NONE:
        enter_candidate(r, d, j)
    elif job.alone == 0 and job.place != NONE:
        leave_candidate(r, d, j)


cdef inline bint seat(State s, Residents r, int64_t j, int64_t gpu):
    """Let a job join a GPU that has a seat and memory for it; return whether it is new on the node."""
    cdef Globals* g = &s.g[0]
    cdef int64_t seats = r.g[0].seats
    cdef SharedGpu* cell = &r.gpus[gpu]
    cdef SharedNode* mine = &r.nodes[cell.node]
    cdef int64_t d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    if cell.jobs == 0:
        take_gpus(s, cell.node, 1)
        sharing_count_alone(r, d, j, 1)
    elif cell.jobs == 1:
        sharing_count_alone(r, d, r.seats[gpu * seats], -1)
    r.seats[gpu * seats + cell.jobs] = j
    mine.open += (cell.jobs == 0 and seats > 1) - (cell.jobs > 0 and cell.jobs + 1 == seats)
    cell.jobs += 1
    cell.memory += r.memory[r.jobs[j].step, j]
    cdef bint new = mine.mark != 2 * j
    if new:
        mine.mark = 2 * j
        mine.jobs += 1
    list_node(s, r, cell.node)
    return new


cdef inline int unseat(State s, Residents r, int64_t j, int64_t gpu) except -1:
    """Let a job leave a GPU."""
    cdef Globals* g = &s.g[0]
    cdef int64_t seats = r.g[0].seats
    cdef SharedGpu* cell = &r.gpus[gpu]
    cdef SharedNode* mine = &r.nodes[cell.node]
    cdef int64_t d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    cdef int64_t place = gpu * seats
    while r.seats[place] != j:
        place += 1
    while place < gpu * seats + cell.jobs - 1:
        r.seats[place] = r.seats[place + 1]
        place += 1
    mine.open += (cell.jobs > 1 and cell.jobs == seats) - (cell.jobs == 1 and seats > 1)
    cell.jobs -= 1
    cell.memory -= r.memory[r.jobs[j].step, j]
    if cell.jobs == 0:
        take_gpus(s, cell.node, -1)
        sharing_count_alone(r, d, j, -1)
    elif cell.jobs == 1:
        sharing_count_alone(r, d, r.seats[gpu * seats], 1)
    if mine.mark != 2 * j + 1:
        mine.mark = 2 * j + 1
        mine.jobs -= 1
    list_node(s, r, cell.node)


cdef inline int64_t seats_of_node(
    State s, Residents r, int64_t index, int64_t kind, int64_t room, int64_t wanted, bint keep
):
    """Count a node's GPUs of a kind, up to a limit, by index; open GPUs count only if their memory leaves room.

    `room` is the memory that the GPU's jobs may hold [ppm]; with `keep` the GPUs are chosen.
    """
    cdef int64_t gpu
    cdef SharedGpu* cell
    cdef bint fits
    cdef int64_t seats = r.g[0].seats
    cdef int64_t first = r.nodes[index].first
    cdef int64_t found = 0
    for gpu in range(first, first + s.nodes[index].gpus):
        cell = &r.gpus[gpu]
        fits = cell.jobs == 0 if kind == IDLE_GPUS else 0 < cell.jobs < seats and cell.memory <= room
        if fits and found < wanted:
            found += 1
            if keep:
                r.chosen[r.g[0].chosen] = gpu
                r.g[0].chosen += 1
    return found


cdef inline int64_t sharing_gather(
    State s, Residents r, int64_t d, int64_t model, int64_t kind, int64_t room, int64_t wanted, bint keep
):
    """Count GPUs of a kind on a domain's nodes of one model; stop once there are enough.

    Nodes with fewer jobs come first; ties go to the lowest index. See `seats_of_node`.
    """
    cdef int64_t jobs, index, row, word, node
    cdef Group* group
    cdef SharedGroup* shared
    cdef uint64_t bits
    cdef Domain* domain = &s.domains[d]
    cdef int64_t found = 0
    for jobs in range(r.g[0].most + 1):
        for index in range(domain.group_low, domain.group_high):
            group = &s.groups[index]
            shared = &r.groups[index]
            if group.model != model or jobs > shared.most or r.counts[kind, shared.count + jobs] == 0:
                continue
            row = shared.row + jobs * group.words
            for word in range(group.words):
                bits = r.bits[kind, row + word]
                while bits != 0:
                    node = group.low + word * 64 + count_trailing_zeros(bits)
                    bits &= bits - ONE
                    found += seats_of_node(s, r, node, kind, room, wanted - found, keep)
                    if found >= wanted:
                        return found
    return found
