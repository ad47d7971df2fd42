# Functions that run once, before the first instant of a run.


def fill_jobs(
    Job[::1] table,
    const int64_t[::1] submit,
    const int64_t[::1] work,
    const int32_t[::1] devices,
    const int32_t[::1] job_class,
    const int64_t[::1] estimate,
    const int64_t[::1] value,
    const uint8_t[::1] never,
):
    """Write the Job rows for jobs that have not yet been submitted (n,)."""
    cdef int64_t j
    cdef Job* job
    for j in range(len(table)):
        job = &table[j]
        job.submit = submit[j]
        job.remaining = work[j] * PPM
        job.gpus = devices[j]
        job.job_class = job_class[j]
        job.estimate = estimate[j]
        job.value = value[j]
        job.never = never[j]
        job.first = job.end = NONE
        job.allocation = NONE
        job.status = FUTURE
        job.rate = job.pace = PPM


def open_nodes(State s, const int8_t[::1] absent):
    """Add the nodes that are available from the beginning."""
    cdef int64_t index
    cdef Globals* g = &s.g[0]
    for index in range(len(s.nodes)):
        if absent[index]:
            continue
        if g.by_count:
            s.nodes[index].up = 1
            s.domains[s.groups[s.nodes[index].group].domain].free += s.nodes[index].gpus
            g.free += s.nodes[index].gpus
        else:
            node_joins(s, index)


# An index of nodes by their number of free GPUs. With this index, no query scans all nodes.
#
# For every number of free GPUs, each group keeps one bit per node, and a second layer marks the words with any bit set.
# Two bit scans find the first node with exactly f free GPUs. The lowest index comes first, which is also how ties are
# broken.
#
# Under buddy placement (Globals.blocks) a node is in the row of each level at which it has a maximal free block, and
# also in the last row if it is completely free and of the largest size.
#
# If jobs share GPUs by a plan (Globals.seats), a node stores the position of its first GPU among the allocations. Each
# link of a job's allocation is then one GPU, which is busy while at least one job uses it.


cdef inline int set_bit(Group* group, uint64_t[::1] bits, uint64_t[::1] tops, int64_t row, int64_t bit) except -1:
    """Add a node of a group, given by its bit, to a row of an index."""
    cdef int64_t word = bit >> 6
    bits[group.bits + row * group.words + word] |= ONE << <uint64_t>(bit & 63)
    tops[group.tops + row * group.summary + (word >> 6)] |= ONE << <uint64_t>(word & 63)


cdef inline int clear_bit(Group* group, uint64_t[::1] bits, uint64_t[::1] tops, int64_t row, int64_t bit) except -1:
    """Remove a node of a group, given by its bit, from a row of an index."""
    cdef int64_t word = bit >> 6
    cdef int64_t at = group.bits + row * group.words + word
    bits[at] &= ~(ONE << <uint64_t>(bit & 63))
    if bits[at] == 0:
        tops[group.tops + row * group.summary + (word >> 6)] &= ~(ONE << <uint64_t>(word & 63))


cdef inline int64_t first_in_row(Group* group, uint64_t[::1] bits, uint64_t[::1] tops, int64_t row):
    """Return the lowest node of a group in a row of an index, or NONE."""
    cdef int64_t i, word
    cdef int64_t top = group.tops + row * group.summary
    for i in range(group.summary):
        if tops[top + i] != 0:
            word = i * 64 + count_trailing_zeros(tops[top + i])
            return group.low + word * 64 + count_trailing_zeros(bits[group.bits + row * group.words + word])
    return NONE


cdef inline int64_t first_with(State s, Group* group, int64_t free):
    """Return the lowest node of a group with exactly `free` free GPUs, or NONE."""
    return first_in_row(group, s.bits, s.tops, free)


cdef inline int enter(State s, Node* node) except -1:
    """Add a node to the rows for its free GPUs."""
    cdef Group* group = &s.groups[node.group]
    if s.g[0].blocks:
        enter_blocks(s, group, node)
    else:
        set_bit(group, s.bits, s.tops, node.free, node.bit)


cdef inline int leave(State s, Node* node) except -1:
    """Remove a node from the rows for its free GPUs."""
    cdef Group* group = &s.groups[node.group]
    if s.g[0].blocks:
        leave_blocks(s, group, node)
    else:
        clear_bit(group, s.bits, s.tops, node.free, node.bit)


cdef int enter_blocks(State s, Group* group, Node* node) except -1:
    cdef int64_t level
    node.blocks = free_levels(node.busy, node.gpus)
    if node.busy == 0 and node.gpus == group.largest:
        node.blocks |= 1 << WHOLE
    for level in range(WHOLE + 1):
        if (node.blocks >> level) & 1:
            set_bit(group, s.bits, s.tops, group.largest if level == WHOLE else level, node.bit)


cdef int leave_blocks(State s, Group* group, Node* node) except -1:
    cdef int64_t level
    for level in range(WHOLE + 1):
        if (node.blocks >> level) & 1:
            clear_bit(group, s.bits, s.tops, group.largest if level == WHOLE else level, node.bit)


cdef inline int take_gpus(State s, int64_t index, int64_t gpus) except -1:
    """Take free GPUs of a node, or free -`gpus` of them.

    On a node that has left, only a restored allocation takes GPUs, and freed GPUs become available when the node
    returns.
    """
    cdef Globals* g = &s.g[0]
    cdef Node* node = &s.nodes[index]
    g.busy += gpus
    if node.up == 0:
        node.free -= gpus
        return 0
    leave(s, node)
    if node.free == node.gpus:
        g.fragmented += node.free
    node.free -= gpus
    g.fragmented -= gpus
    if node.free == node.gpus:
        g.fragmented -= node.free
    g.free -= gpus
    s.domains[s.groups[node.group].domain].free -= gpus
    enter(s, node)


cdef inline int node_joins(State s, int64_t index) except -1:
    """Add a node to the index."""
    cdef Globals* g = &s.g[0]
    cdef Node* node = &s.nodes[index]
    node.up = 1
    g.free += node.free
    if node.free != node.gpus:
        g.fragmented += node.free
    s.domains[s.groups[node.group].domain].free += node.free
    enter(s, node)


cdef inline int node_leaves(State s, int64_t index) except -1:
    """Remove a node from the index. Its jobs keep running."""
    cdef Globals* g = &s.g[0]
    cdef Node* node = &s.nodes[index]
    leave(s, node)
    node.up = 0
    g.free -= node.free
    if node.free != node.gpus:
        g.fragmented -= node.free
    s.domains[s.groups[node.group].domain].free -= node.free


cdef inline int enlist(State s, int64_t link, int64_t job, int64_t key) except -1:
    """Add a link of a running job's allocation to the list of its node, which is sorted by rank, lowest first."""
    cdef Allocation* allocation = &s.allocations[link]
    allocation.job = job
    allocation.key = key
    cdef int64_t before = NONE
    cdef int64_t after = s.nodes[allocation.node].holder
    while after != NONE and (
        s.allocations[after].key > key or (s.allocations[after].key == key and s.allocations[after].job > job)
    ):
        before = after
        after = s.allocations[after].after
    allocation.before = before
    allocation.after = after
    if before == NONE:
        s.nodes[allocation.node].holder = link
    else:
        s.allocations[before].after = link
    if after != NONE:
        s.allocations[after].before = link


cdef inline int delist(State s, int64_t link) except -1:
    """Remove a link from the list of jobs of its node."""
    cdef Allocation* allocation = &s.allocations[link]
    if allocation.before == NONE:
        s.nodes[allocation.node].holder = allocation.after
    else:
        s.allocations[allocation.before].after = allocation.after
    if allocation.after != NONE:
        s.allocations[allocation.after].before = allocation.before


cdef inline bint allocation_fits(State s, int64_t first):
    """Return whether the nodes of an allocation still have its GPUs. A job may return to a node that is leaving."""
    cdef Allocation* allocation
    cdef Node* node
    cdef int64_t link = first
    while link != NONE:
        allocation = &s.allocations[link]
        node = &s.nodes[allocation.node]
        if s.g[0].blocks:
            if node.busy & span(allocation.gpu, allocation.gpus):
                return False
        elif node.free < allocation.gpus:
            return False
        link = allocation.next
    return True


cdef inline int take_block(State s, Allocation* allocation, int64_t sign) except -1:
    """Take (sign 1) or free (sign -1) the GPUs of one link."""
    if s.g[0].blocks:
        s.nodes[allocation.node].busy ^= span(allocation.gpu, allocation.gpus)
    take_gpus(s, allocation.node, sign * allocation.gpus)


cdef inline int take_seat(State s, int64_t node, int64_t gpu, int64_t sign) except -1:
    """Add a job to (sign 1) or remove it from (sign -1) a GPU that jobs may share."""
    cdef Allocation* cell = &s.allocations[s.nodes[node].seat + gpu]
    if cell.gpus == (0 if sign > 0 else 1):
        take_gpus(s, node, sign)
    cell.gpus += sign


cdef inline int take_allocation(State s, int64_t first, int64_t sign) except -1:
    """Take (sign 1) or free (sign -1) the GPUs of an allocation."""
    cdef Allocation* allocation
    cdef int64_t link = first
    while link != NONE:
        allocation = &s.allocations[link]
        if s.g[0].seats:
            take_seat(s, allocation.node, allocation.gpu, sign)
        else:
            take_block(s, allocation, sign)
        link = allocation.next
