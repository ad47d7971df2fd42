# Bind private cells to blocks of real nodes.
#
# A block is free if no private cell is bound to it; the jobs on it do not matter. We take the smallest free block that
# is large enough. Among equal blocks we take the one with the fewest GPUs used by jobs that would have to make way.
# A larger block is halved, and the half with fewer such GPUs is taken. With this buddy rule a cell always finds its
# block, regardless of the order in which cells come and go.
#
# For each block size and number of such GPUs, a chain keeps one bit per node. Nodes that changed are entered again only
# when the next job is tried.

cpdef enum:
    LEVELS = 7
cdef uint64_t[3] _MASKS = [0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F]
cdef uint64_t[3] _SHIFTS = [8, 16, 32]
cdef uint64_t _MOST = 127


cdef inline int64_t row_of(int64_t level, int64_t used):
    return (1 << level) - 1 + level + used


cdef inline int64_t ones(uint64_t bits):
    cdef uint64_t shift
    bits -= (bits >> ONE) & _MASKS[0]
    bits = (bits & _MASKS[1]) + ((bits >> <uint64_t>2) & _MASKS[1])
    bits = (bits + (bits >> <uint64_t>4)) & _MASKS[2]
    for shift in _SHIFTS:
        bits += bits >> shift
    return <int64_t>(bits & _MOST)


cdef inline int64_t used(uint64_t soft, int64_t gpu, int64_t level):
    """Return the number of GPUs of a block that are used by jobs that must make way."""
    return ones(soft & span(gpu, 1 << level))


cdef inline int64_t best(uint64_t starts, uint64_t soft, int64_t level):
    """Return 64 * used GPUs + first GPU of the block with the fewest such GPUs; ties go to the lowest block."""
    cdef int64_t gpu
    cdef int64_t best = <int64_t>(1 << 20)
    while starts != 0:
        gpu = count_trailing_zeros(starts)
        best = min(best, used(soft, gpu, level) * 64 + gpu)
        starts &= starts - ONE
    return best


cdef inline int cells_enter(Group* chain, uint64_t[::1] bits, uint64_t[::1] tops, int64_t row, int64_t bit) except -1:
    cdef int64_t word = bit >> 6
    bits[chain.bits + row * chain.words + word] |= ONE << <uint64_t>(bit & 63)
    tops[chain.tops + row * chain.summary + (word >> 6)] |= ONE << <uint64_t>(word & 63)


cdef inline int cells_leave(Group* chain, uint64_t[::1] bits, uint64_t[::1] tops, int64_t row, int64_t bit) except -1:
    cdef int64_t word = bit >> 6
    cdef int64_t at = chain.bits + row * chain.words + word
    bits[at] &= ~(ONE << <uint64_t>(bit & 63))
    if bits[at] == 0:
        tops[chain.tops + row * chain.summary + (word >> 6)] &= ~(ONE << <uint64_t>(word & 63))


cdef inline int changed(Hosts h, int64_t node) except -1:
    """Note that the blocks of a node or their use changed."""
    if h.hosts[node].changed == 0:
        h.hosts[node].changed = 1
        h.changed[h.c[0].changed] = node
        h.c[0].changed += 1


cdef inline int cells_reopen(State s, State o, int64_t index, uint64_t bound) except -1:
    """Add a node to the index of unused GPUs outside bound cells."""
    cdef Node* node = &o.nodes[index]
    if node.up:
        node_leaves(o, index)
    node.busy = (s.nodes[index].busy | bound) & span(0, node.gpus)
    node.free = node.gpus - ones(node.busy)
    if s.nodes[index].up:
        node_joins(o, index)


cdef inline int enter_rows(Hosts h, int64_t node) except -1:
    """Add a node to the rows of its free blocks."""
    cdef int64_t level, row, old
    cdef uint64_t larger, found
    cdef Host* host = &h.hosts[node]
    cdef Group* chain = &h.chains[host.chain]
    cdef uint64_t starts = ~host.bound & span(0, host.width)
    if host.up == 0:
        starts = 0
    for level in range(LEVELS):
        larger = doubled(starts, level)
        found = maximal(starts, larger, level)
        row = NONE
        if found != 0:
            row = row_of(level, best(found, host.soft, level) >> 6)
        old = h.rows[node, level]
        if row != old:
            if old != NONE:
                cells_leave(chain, h.bits, h.tops, old, host.bit)
            if row != NONE:
                cells_enter(chain, h.bits, h.tops, row, host.bit)
            h.rows[node, level] = row
        starts = larger


cdef inline int cells_refresh(State s, State o, Hosts h) except -1:
    """Add the nodes that changed to the rows of their free blocks, and to the rows of `o`."""
    cdef int64_t i
    cdef CellBook* c = &h.c[0]
    for i in range(c.changed):
        h.hosts[h.changed[i]].changed = 0
        enter_rows(h, h.changed[i])
        cells_reopen(s, o, h.changed[i], h.hosts[h.changed[i]].bound)
    c.changed = 0


cdef inline int64_t first_of_row(Hosts h, Group* chain, int64_t row):
    """Return the lowest place of a chain's node in a row, or NONE."""
    cdef int64_t i, word
    cdef int64_t top = chain.tops + row * chain.summary
    for i in range(chain.summary):
        if h.tops[top + i] != 0:
            word = i * 64 + count_trailing_zeros(h.tops[top + i])
            return chain.low + word * 64 + count_trailing_zeros(h.bits[chain.bits + row * chain.words + word])
    return NONE


cdef inline int64_t find(Hosts h, Group* chain, int64_t level):
    """Return node * 8 + level of the best free block of at least `level`, or NONE."""
    cdef int64_t size, used, at
    for size in range(level, chain.largest + 1):
        for used in range((1 << size) + 1):
            at = first_of_row(h, chain, row_of(size, used))
            if at != NONE:
                return h.members[at] * 8 + size
    return NONE


cdef inline bint bind(Hosts h, int64_t index):
    """Bind a private cell to a free block; return False if there is none, which happens only if nodes are missing.

    The rows of all nodes must be current before the call (see `cells_refresh`); those of this chain are current after.
    """
    cdef int64_t level, other
    cdef Cell* cell = &h.cells[index]
    cdef int64_t found = find(h, &h.chains[cell.chain], cell.level)
    if found == NONE:
        return False
    cdef Host* host = &h.hosts[found >> 3]
    cdef int64_t size = found & 7
    cdef uint64_t starts = ~host.bound & span(0, host.width)
    for level in range(size):
        starts = doubled(starts, level)
    cdef int64_t gpu = best(maximal(starts, doubled(starts, size), size), host.soft, size) & 63
    while size > cell.level:
        size -= 1
        other = gpu + (1 << size)
        if used(host.soft, other, size) < used(host.soft, gpu, size):
            gpu = other
    cell.node = found >> 3
    cell.gpu = gpu
    host.bound |= span(gpu, 1 << size)
    enter_rows(h, cell.node)
    changed(h, cell.node)
    return True


cdef inline int unbind(Hosts h, int64_t index) except -1:
    """Release the block of a private cell."""
    cdef Cell* cell = &h.cells[index]
    h.hosts[cell.node].bound &= ~span(cell.gpu, 1 << cell.level)
    changed(h, cell.node)
    cell.node = NONE
