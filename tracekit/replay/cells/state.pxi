# The arrays for private cells, in addition to the engine's.


cdef struct Host:
    uint64_t bound, soft
    int32_t chain, bit, base, width, up, changed


cdef struct Cell:
    int32_t node, gpu, level, chain


cdef struct CellBook:
    int64_t seen, changed, evicted, failed


cdef class Hosts(Arrays):
    """The block to which each private cell is bound, and the jobs that must make way."""

    # CellBook (1,): how far the arrays are up to date.
    cdef public CellBook[::1] c
    # Host of each node (N,).
    cdef public Host[::1] hosts
    # Cell of each private cell (P,).
    cdef public Cell[::1] cells
    # Group of each chain. Its nodes are places in `members`, and its `largest` is the level of its largest cell (C,).
    cdef public Group[::1] chains
    # Nodes, grouped by chain (N,).
    cdef public int32_t[::1] members
    # One bit per node for each level and number of GPUs whose jobs must make way.
    cdef public uint64_t[::1] bits
    # One bit per word of `bits`.
    cdef public uint64_t[::1] tops
    # Row of each node at each level, or -1 if none (N, 7).
    cdef public int16_t[:, ::1] rows
    # Nodes whose rows are out of date (N,).
    cdef public int32_t[::1] changed
    # Job without cells on each GPU, or -1 if none.
    cdef public int32_t[::1] owner
    # Job of the private state that represents each job, or -1 if the job has no cells (n,).
    cdef public int32_t[::1] kind
    # First link of each running job's private cells (n,).
    cdef public int32_t[::1] chain
    # Jobs evicted in this pass.
    cdef public int32_t[::1] evicted
    # First and last queue of each VC (T, 2).
    cdef public int32_t[:, ::1] tried
    # First queue of jobs without cells in each domain (D,).
    cdef public int32_t[::1] others


EXAMPLES |= {
    "Host": <Host[:1]><Host*>_row,
    "Cell": <Cell[:1]><Cell*>_row,
    "CellBook": <CellBook[:1]><CellBook*>_row,
}
