# Buddy blocks of a node's GPUs, as bits: a block has 2^k GPUs and begins at a multiple of its size.
#
# The GPUs of a node are the bits of one 64-bit number; a set bit means that the GPU is in use. A free block is maximal
# if the surrounding block of twice its size is not free.

# Largest number of GPUs of a node.
cpdef enum:
    MOST_GPUS = 64
# Bit after those of levels 0 to 6: a free node of the largest size in its group.
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
    """Return the first GPU of the lowest maximal free block of a level; the block must exist."""
    cdef int64_t below
    cdef uint64_t starts = ~busy & span(0, gpus)
    for below in range(level):
        starts = doubled(starts, below)
    return <int64_t>(count_trailing_zeros(maximal(starts, doubled(starts, level), level)))
