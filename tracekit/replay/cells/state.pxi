# The arrays for private cells, in addition to the engine's (see `layout`).


cdef struct Host:
    uint64_t bound, soft
    int32_t chain, bit, base, width, up, changed


cdef struct Cell:
    int32_t node, gpu, level, chain


cdef struct CellBook:
    int64_t seen, changed, evicted, failed


cdef class Hosts(Arrays):
    """The block to which each private cell is bound (see `layout.Hosts`)."""

    cdef public CellBook[::1] c
    cdef public Host[::1] hosts
    cdef public Cell[::1] cells
    cdef public Group[::1] chains
    cdef public int32_t[::1] members
    cdef public uint64_t[::1] bits
    cdef public uint64_t[::1] tops
    cdef public int16_t[:, ::1] rows
    cdef public int32_t[::1] changed
    cdef public int32_t[::1] owner
    cdef public int32_t[::1] kind
    cdef public int32_t[::1] chain
    cdef public int32_t[::1] evicted
    cdef public int32_t[:, ::1] tried
    cdef public int32_t[::1] others


EXAMPLES |= {
    "Host": <Host[:1]><Host*>_row,
    "Cell": <Cell[:1]><Cell*>_row,
    "CellBook": <CellBook[:1]><CellBook*>_row,
}
