# Buddy placement: a gang gets one aligned block of 2^k GPUs (its size rounded up), or whole nodes.
#
# - If the rounded size is at most the largest node, the gang goes into the smallest maximal free block that is large
#   enough; among blocks of this size it takes the lowest block on the lowest node. No larger block is split if a
#   smaller one is large enough.
# - A larger gang takes as many free nodes of the largest size as it needs, in the first group that has enough.
#
# A gang holds all GPUs of its blocks; `spare` of the job counts those that it did not request.


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


cdef inline bint whole_free(State s, Group* group, int64_t enough):
    """Return whether a group has at least `enough` free nodes of its largest size."""
    cdef int64_t word
    cdef uint64_t bits
    cdef int64_t row = group.bits + group.largest * group.words
    cdef int64_t found = 0
    for word in range(group.words):
        bits = s.bits[row + word]
        while bits != 0:
            bits &= bits - ONE
            found += 1
            if found >= enough:
                return True
    return False


cdef inline int64_t place_blocks(State s, Job* job, JobClass* job_class, Domain* domain):
    """Allocate blocks to a job without GPUs; return its number of nodes, or 0 (nothing allocated)."""
    cdef int64_t size, level, index, wanted, _
    cdef Node* node
    cdef Group* group
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
    for index in range(domain.group_low, domain.group_high):
        group = &s.groups[index]
        if size <= group.largest or not accepts(job_class, index, domain.group_low):
            continue
        wanted = (job_class.gpus + group.largest - 1) // group.largest
        if whole_free(s, group, wanted):
            for _ in range(wanted):
                hold_block(s, job, first_with(s, group, group.largest), 0, group.largest)
            job.spare = wanted * group.largest - job_class.gpus
            return wanted
    return 0
