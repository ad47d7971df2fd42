# Virtual clusters with private cells for their jobs. Other jobs run on idle GPUs.
#
# A job with cells is placed in the private cells of its VC as if nothing else existed. Cells that are still unbound are
# then bound to blocks of real nodes, and jobs without cells on those GPUs are stopped. When a cell's last job has
# ended, the cell is unbound.
#
# Jobs without cells are placed in buddy blocks of unused GPUs, outside bound cells if possible, otherwise also inside.
#
# While nodes are missing, there may be no block for a cell, so its job waits. A cell bound to a node that left takes no
# new job until the node returns or the idle cell is bound elsewhere.


cdef inline int cells_unblock(State s, int64_t low, int64_t high) except -1:
    cdef int64_t q
    for q in range(low, high):
        s.queues[q].blocked = 0


cdef inline int see_nodes(State s, State v, Hosts h) except -1:
    """Process nodes that joined or left. Every job may then be tried again."""
    cdef int64_t node, index
    cdef bint here
    cdef CellBook* c = &h.c[0]
    if c.seen == s.g[0].change:
        return 0
    c.seen = s.g[0].change
    for node in range(len(h.hosts)):
        if h.hosts[node].up != s.nodes[node].up:
            h.hosts[node].up = s.nodes[node].up
            changed(h, node)
    for index in range(len(h.cells)):
        here = h.cells[index].node == NONE or s.nodes[h.cells[index].node].up == 1
        if here and v.nodes[index].up == 0:
            node_joins(v, index)
        elif not here and v.nodes[index].up == 1:
            node_leaves(v, index)
    cells_unblock(s, 0, len(s.queues))


cdef inline int own(State s, Hosts h, int64_t j, int64_t owner) except -1:
    """Record that a job without cells takes its GPUs (`owner` is the job) or releases them (NONE)."""
    cdef Allocation* allocation
    cdef Host* host
    cdef int64_t at
    cdef int64_t link = s.jobs[j].allocation
    while link != NONE:
        allocation = &s.allocations[link]
        host = &h.hosts[allocation.node]
        host.soft ^= span(allocation.gpu, allocation.gpus)
        changed(h, allocation.node)
        for at in range(host.base + allocation.gpu, host.base + allocation.gpu + allocation.gpus):
            h.owner[at] = owner
        link = allocation.next


cdef inline int leave_cells(State v, Hosts h, Job* job, int64_t j) except -1:
    """Free the private cells of a job, and unbind the cells that are now idle."""
    cdef int64_t index
    cdef int64_t link = h.chain[j]
    take_allocation(v, link, -1)
    job.allocation = link
    while link != NONE:
        index = v.allocations[link].node
        if h.cells[index].node != NONE and v.nodes[index].free == v.nodes[index].gpus:
            unbind(h, index)
            if v.nodes[index].up == 0:
                node_joins(v, index)
        link = v.allocations[link].next
    drop_allocation(v, job)
    h.chain[j] = NONE


cdef inline int book_ends(State s, State v, Hosts h) except -1:
    """Free the cells of the jobs that ended in this instant."""
    cdef int64_t j, vc
    cdef Job* job
    cdef Globals* g = &s.g[0]
    while g.ended != NONE:
        j = g.ended
        job = &s.jobs[j]
        g.ended = job.stopped
        if h.kind[j] == NONE:
            own(s, h, j, NONE)
        drop_allocation(s, job)
        if h.kind[j] != NONE:
            leave_cells(v, h, job, j)
            if h.c[0].failed:
                h.c[0].failed = 0
                cells_unblock(s, 0, len(s.queues))
            vc = s.job_classes[job.job_class].tenant
            cells_unblock(s, h.tried[vc, 0], h.tried[vc, 1])


cdef inline int cells_evict(State s, Hosts h, Key key, int64_t j) except -1:
    """Stop a job without cells and requeue it. It may start elsewhere in the same pass."""
    cdef Job* job = &s.jobs[j]
    own(s, h, j, NONE)
    release(s, job, s.job_classes[job.job_class].domain)
    drop_allocation(s, job)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)
    h.evicted[h.c[0].evicted] = j
    h.c[0].evicted += 1


cdef inline int64_t is_new(State s, Job* job, int64_t node):
    """Return 1 if a job has no GPU on a node, else 0."""
    cdef int64_t link = job.allocation
    while link != NONE:
        if s.allocations[link].node == node:
            return 0
        link = s.allocations[link].next
    return 1


cdef inline int64_t occupy(State s, State v, Hosts h, Key key, int64_t j):
    """Allocate the GPUs to which a job's private cells are bound; return the number of nodes."""
    cdef Allocation* allocation
    cdef int64_t node, gpu, at
    cdef Job* job = &s.jobs[j]
    cdef int64_t link = h.chain[j]
    cdef int64_t nodes = 0
    while link != NONE:
        allocation = &v.allocations[link]
        node = h.cells[allocation.node].node
        gpu = h.cells[allocation.node].gpu + allocation.gpu
        for at in range(h.hosts[node].base + gpu, h.hosts[node].base + gpu + allocation.gpus):
            if h.owner[at] != NONE:
                cells_evict(s, h, key, h.owner[at])
        # A node has several blocks only if they are smaller than the node.
        nodes += 1 if allocation.gpus == s.nodes[node].gpus else is_new(s, job, node)
        hold_block(s, job, node, gpu, allocation.gpus)
        link = allocation.next
    return nodes


cdef inline int64_t place_inside(State s, State v, Hosts h, Key key, int64_t j):
    """Place a job in its VC's cells; return its number of nodes, or 0 if it cannot be placed."""
    cdef int64_t index
    cdef Job* job = &s.jobs[j]
    cdef JobClass* job_class = &v.job_classes[v.jobs[h.kind[j]].job_class]
    cdef Domain* domain = &v.domains[job_class.domain]
    if domain.free < job_class.gpus or place_blocks(v, job, job_class, domain) == 0:
        return 0
    h.chain[j] = job.allocation
    job.allocation = NONE
    cdef int64_t link = h.chain[j]
    cdef bint bound = True
    while link != NONE and bound:
        index = v.allocations[link].node
        if h.cells[index].node == NONE:
            bound = bind(h, index)
        link = v.allocations[link].next
    if bound:
        return occupy(s, v, h, key, j)
    leave_cells(v, h, job, j)
    h.c[0].failed = 1
    return 0


cdef inline int64_t place_apart(State s, State o, Job* job, JobClass* job_class):
    """Allocate a block outside bound cells to a job without GPUs; return 1, or 0 if no block is free."""
    cdef int64_t size, level
    size, level = 1, 0
    while size < job_class.gpus:
        size *= 2
        level += 1
    cdef int64_t found = find_block(o, job_class, &o.domains[job_class.domain], level)
    if found == NONE:
        return 0
    cdef Node* node = &o.nodes[found >> 3]
    hold_block(s, job, found >> 3, lowest_block(node.busy, node.gpus, found & 7), size)
    job.spare = size - job_class.gpus
    return 1


cdef inline int64_t place_outside(State s, State o, Hosts h, int64_t j):
    """Place a job without cells on idle GPUs; return its number of nodes, or 0 if it cannot be placed."""
    cdef Job* job = &s.jobs[j]
    cdef JobClass* job_class = &s.job_classes[job.job_class]
    cdef Domain* domain = &s.domains[job_class.domain]
    if domain.free < job_class.gpus:
        return 0
    cdef int64_t nodes = place_apart(s, o, job, job_class)
    if nodes == 0:
        nodes = place_blocks(s, job, job_class, domain)
    if nodes > 0:
        own(s, h, j, j)
        if job.evicted > 0:
            job.evicted = 0
            job.migrations += 1
            job.overhead += overhead_of(s, job.gpus)
    return nodes


cdef inline int cells_settle_evictions(State s, Hosts h) except -1:
    """Record the jobs that were evicted in this pass and did not start again."""
    cdef int64_t i
    cdef Job* job
    cdef CellBook* c = &h.c[0]
    for i in range(c.evicted):
        job = &s.jobs[h.evicted[i]]
        if job.evicted > 0:
            job.evicted = 0
            job.preemptions += 1
            job.overhead += overhead_of(s, job.gpus)
    c.evicted = 0


cdef inline int cell_pass(State s, State v, State o, Hosts h, Key key, int64_t d) except -1:
    """Start all jobs of a domain that can start: first jobs with cells, then the others."""
    cdef int64_t low, high, outside, q, j, nodes
    cdef Queue* queue
    cdef Domain* domain = &s.domains[d]
    low, high = domain.queue_low, h.others[d]
    for outside in range(2):
        if outside:
            low, high = high, domain.queue_high
            if domain.freed or h.c[0].evicted > 0:
                cells_unblock(s, low, high)
        while True:
            q = first_queue(s, False, low, high)
            if q == NONE:
                break
            queue = &s.queues[q]
            j = s.waiting[queue.base + queue.head].job
            cells_refresh(s, o, h)
            nodes = place_outside(s, o, h, j) if outside else place_inside(s, v, h, key, j)
            if nodes == 0:
                queue.blocked = 1
            else:
                dequeue(s, j)
                start(s, key, j, nodes, s.g[0].speed)
    if h.c[0].evicted > 0:
        cells_settle_evictions(s, h)
    domain.freed = 0


def run_cells(State s, State v, State o, Hosts h, Key key, int64_t instants):
    """Run at most `instants` instants; return False if no event is left.

    `s` contains the nodes, `v` the private cells, `o` the nodes without the GPUs of bound cells, and `h` the links
    between them.
    """
    cdef int64_t _, i
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        see_nodes(s, v, h)
        book_ends(s, v, h)
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            cell_pass(s, v, o, h, key, s.touched[i])
        g.touched = 0
    return True


# Bind private cells to blocks of real nodes.
#
# A block is free if no private cell is bound to it, even if jobs run on it. We take the smallest free block that is
# large enough, and among equal blocks the one with the fewest GPUs of jobs that would have to make way. We halve a
# larger block and take the half with fewer such GPUs. With this buddy rule, a cell always finds its block, in whatever
# order cells come and go.
#
# For each block size and number of such GPUs, a chain keeps one bit per node. Changed nodes are entered again only when
# the next job is tried.

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
    """Return 64 * used GPUs + first GPU, for the block with the fewest used GPUs. Ties go to the lowest block."""
    cdef int64_t gpu
    cdef int64_t best = <int64_t>(1 << 20)
    while starts != 0:
        gpu = count_trailing_zeros(starts)
        best = min(best, used(soft, gpu, level) * 64 + gpu)
        starts &= starts - ONE
    return best


cdef inline int changed(Hosts h, int64_t node) except -1:
    """Note that a node's blocks or their use changed."""
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
                clear_bit(chain, h.bits, h.tops, old, host.bit)
            if row != NONE:
                set_bit(chain, h.bits, h.tops, row, host.bit)
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


cdef inline int64_t find(Hosts h, Group* chain, int64_t level):
    """Return node * 8 + level of the best free block of at least `level`, or NONE."""
    cdef int64_t size, used, at
    for size in range(level, chain.largest + 1):
        for used in range((1 << size) + 1):
            at = first_in_row(chain, h.bits, h.tops, row_of(size, used))
            if at != NONE:
                return h.members[at] * 8 + size
    return NONE


cdef inline bint bind(Hosts h, int64_t index):
    """Bind a private cell to a free block; return False if missing nodes leave no free block.

    The rows of all nodes must be up to date before the call (see `cells_refresh`). Afterwards, the rows of this chain
    are up to date.
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
