# Buddy blocks of a node's GPUs, as bits: a block has 2^k GPUs and begins at a multiple of its size.
#
# The GPUs of a node are the bits of one 64-bit number; a set bit means that the GPU is in use. A free block is maximal
# if the block of twice its size around it is not free.

# Largest number of GPUs of a node.
cpdef enum:
    MOST_GPUS = 64
# The bit after those of levels 0 to 6, which marks a free node of the largest size in its group.
cpdef enum:
    WHOLE = 7
cdef uint64_t _ALL_GPUS = 0xFFFFFFFFFFFFFFFF
# Possible first GPUs of blocks of level k + 1.
cdef uint64_t[6] _ALIGNED = [
    0x5555555555555555,
    0x1111111111111111,
    0x101010101010101,
    0x1000100010001,
    0x100000001,
    0x1,
]


cdef inline uint64_t span(int64_t gpu, int64_t gpus):
    """Return the bits of `gpus` adjacent GPUs, at least 1 and at most 64."""
    return (_ALL_GPUS >> <uint64_t>(64 - gpus)) << <uint64_t>gpu


cdef inline uint64_t doubled(uint64_t starts, int64_t level):
    """Return the first GPUs of free blocks of the next level, given those of this level."""
    if level >= 6:
        return 0
    return starts & (starts >> <uint64_t>(1 << level)) & _ALIGNED[level]


cdef inline uint64_t maximal(uint64_t starts, uint64_t larger, int64_t level):
    """Return the first GPUs of maximal free blocks of a level, given the free blocks of this level and the next."""
    if level >= 6:
        return starts
    return starts & ~(larger | (larger << <uint64_t>(1 << level)))


cpdef int64_t free_levels(uint64_t busy, int64_t gpus):
    """Return the levels at which a node has a maximal free block, as bits."""
    cdef int64_t level
    cdef uint64_t larger
    cdef int64_t found = 0
    cdef uint64_t starts = ~busy & span(0, gpus)
    for level in range(7):
        if starts == 0:
            break
        larger = doubled(starts, level)
        if maximal(starts, larger, level) != 0:
            found |= 1 << level
        starts = larger
    return found


cpdef int64_t lowest_block(uint64_t busy, int64_t gpus, int64_t level):
    """Return the first GPU of the lowest maximal free block of a level, which must exist."""
    cdef int64_t below
    cdef uint64_t starts = ~busy & span(0, gpus)
    for below in range(level):
        starts = doubled(starts, below)
    return <int64_t>(count_trailing_zeros(maximal(starts, doubled(starts, level), level)))


# Buddy placement: a gang gets one aligned block of 2^k GPUs (its size rounded up), or whole nodes.
#
# - If the rounded size is at most the largest node, the gang takes the smallest maximal free block that is large enough
#   (of several, the lowest block on the lowest node). No larger block is split if a smaller one is large enough.
# - A larger gang takes as many free nodes of the largest size as it needs, in the first siblings that have enough.
#
# A gang gets all GPUs of its blocks. The job's `spare` counts those that it did not request.


cdef inline int hold_block(State s, Job* job, int64_t node, int64_t gpu, int64_t gpus) except -1:
    """Allocate a block of a node to a job."""
    cdef Allocation* allocation = add_allocation(s, job, node, gpus)
    allocation.gpu = gpu
    take_block(s, allocation, 1)


cdef inline int64_t find_block(State s, JobClass* job_class, Domain* domain, int64_t level):
    """Return node * 8 + level of the best free block of at least `level`, or NONE."""
    cdef int64_t size, index, node
    cdef Group* group
    for size in range(level, 7):
        for index in range(domain.group_low, domain.group_high):
            group = &s.groups[index]
            if (1 << size) > group.largest or not accepts(job_class, index, domain.group_low):
                continue
            node = first_with(s, group, size)
            if node != NONE:
                return node * 8 + size
    return NONE


cdef inline int64_t place_blocks(State s, Job* job, JobClass* job_class, Domain* domain):
    """Allocate blocks to a job without GPUs; return its number of nodes, or 0 (nothing allocated)."""
    cdef int64_t size, level, first, largest, wanted, _
    cdef Node* node
    size, level = 1, 0
    while size < job_class.gpus:
        size *= 2
        level += 1
    cdef int64_t found = find_block(s, job_class, domain, level)
    if found != NONE:
        node = &s.nodes[found >> 3]
        hold_block(s, job, found >> 3, lowest_block(node.busy, node.gpus, found & 7), size)
        job.spare = size - job_class.gpus
        return 1
    for first in range(domain.group_low, domain.group_high):
        if s.groups[first].first != first:
            continue
        largest = largest_node(s, job_class, domain, first)
        if largest == 0 or size <= largest:
            continue
        wanted = (job_class.gpus + largest - 1) // largest
        if count_with(s, job_class, domain, first, largest, wanted) == wanted:
            for _ in range(wanted):
                hold_block(s, job, sibling_with(s, job_class, domain, first, largest), 0, largest)
            job.spare = wanted * largest - job_class.gpus
            return wanted
    return 0
