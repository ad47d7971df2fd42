# The arrays of private cells, beside those of the engine (see `layout`).


cdef struct Host:
    uint64_t bound, soft
    int32_t chain, bit, base, width, up, changed


cdef struct Cell:
    int32_t node, gpu, level, chain


cdef struct CellBook:
    int64_t seen, changed, evicted, failed


cdef class Hosts:
    """Which private cell is bound where (see `layout.Hosts`)."""

    cdef CellBook[::1] c
    cdef Host[::1] hosts
    cdef Cell[::1] cells
    cdef Group[::1] chains
    cdef int32_t[::1] members
    cdef uint64_t[::1] bits
    cdef uint64_t[::1] tops
    cdef int16_t[:, ::1] rows
    cdef int32_t[::1] changed
    cdef int32_t[::1] owner
    cdef int32_t[::1] kind
    cdef int32_t[::1] chain
    cdef int32_t[::1] evicted
    cdef int32_t[:, ::1] tried
    cdef int32_t[::1] others

    def __init__(self, arrays):
        self.c = arrays.c
        self.hosts = arrays.hosts
        self.cells = arrays.cells
        self.chains = arrays.chains
        self.members = arrays.members
        self.bits = arrays.bits
        self.tops = arrays.tops
        self.rows = arrays.rows
        self.changed = arrays.changed
        self.owner = arrays.owner
        self.kind = arrays.kind
        self.chain = arrays.chain
        self.evicted = arrays.evicted
        self.tried = arrays.tried
        self.others = arrays.others


cdef Host _host
cdef Cell _cell
cdef CellBook _cellbook
EXAMPLES |= {
    "Host": <Host[:1]>&_host,
    "Cell": <Cell[:1]>&_cell,
    "CellBook": <CellBook[:1]>&_cellbook,
}
