# Give GPUs and clocks to the jobs that save most time per additional watt.

# Scale and limit of a step's worth [ms / mW], which is compared as a whole number.
cdef double _WORTH_SCALE = 1e9
cdef double _WORTH_MOST = 4e18


cdef inline double flow_time(FlowRow* row, int64_t gpus, int64_t clock, double sigma, double[::1] speed):
    """Return the run time of a job with these GPUs at a clock [ms]."""
    return row.left * (1 + sigma * (gpus - 1)) / gpus / speed[clock]


cdef inline double flow_worth(
    FlowRow* row, int64_t gpus, int64_t clock, double[:, ::1] drawn, double sigma, double[::1] speed
):
    """Return the time that a step saves per additional mW, or 0 if it saves none."""
    cdef double gain = flow_time(row, row.gpus, row.clock, sigma, speed) - flow_time(row, gpus, clock, sigma, speed)
    cdef double more = gpus * drawn[row.kind, clock] - row.gpus * drawn[row.kind, row.clock]
    if gain <= 0:
        return 0
    return gain / more if more > 0 else _WORTH_MOST


cdef inline int64_t flow_step(FlowRow* row, int64_t free, double[:, ::1] drawn, double sigma, double[::1] speed):
    """Find the better of a job's next steps: twice the GPUs, or the next clock. Return its scaled worth, or 0."""
    cdef double worth
    cdef double best = 0
    cdef int64_t gpus = min(2 * row.gpus, row.high)
    row.to_gpus, row.to_clock = row.gpus, row.clock
    if row.clock > 0:
        best = flow_worth(row, row.gpus, row.clock - 1, drawn, sigma, speed)
        if best > 0:
            row.to_clock = row.clock - 1
    if gpus > row.gpus and gpus - row.gpus <= free:
        worth = flow_worth(row, gpus, row.clock, drawn, sigma, speed)
        if worth > best:
            best = worth
            row.to_gpus, row.to_clock = gpus, row.clock
    return <int64_t>min(best * _WORTH_SCALE, _WORTH_MOST)


def raise_flow(
    FlowRow[::1] rows,
    double[:, ::1] drawn,
    double[::1] speed,
    double sigma,
    int64_t[::1] free,
    double room,
    Entry[::1] heap,
    int32_t[::1] at,
):
    """Take the steps that save most time per additional mW, while GPUs and power last. Return the power left.

    A job whose best step needs more power than is left takes no other step.

    Parameters
    ----------
    rows : array (k,)
        Jobs. On input, `gpus` and `clock` are the guaranteed values; they are increased.
    drawn : array (D, K)
        Power of a GPU beyond its idle power, by kind of job and clock [mW].
    speed : array (K,)
        Speed at each clock, 1 for the first.
    sigma : float
        Overhead of each additional GPU.
    free : array (P,)
        GPUs left in each pool.
    room : float
        Power left [mW].
    heap, at : array (k,)
        Scratch space.
    """
    cdef int64_t k, worth, now
    cdef double more
    cdef FlowRow* row
    cdef int64_t size = 0
    for k in range(len(rows)):
        worth = flow_step(&rows[k], free[rows[k].pool], drawn, sigma, speed)
        if worth > 0:
            heap_push(heap, at, 0, size, -worth, k)
            size += 1
    while size > 0:
        k = heap[0].job
        worth = -heap[0].key
        heap_pop(heap, at, 0, size)
        size -= 1
        row = &rows[k]
        # Other jobs may have taken the GPUs since the step was computed.
        now = flow_step(row, free[row.pool], drawn, sigma, speed)
        if now == worth:
            more = row.to_gpus * drawn[row.kind, row.to_clock] - row.gpus * drawn[row.kind, row.clock]
            if more > max(room, 0):
                continue
            room -= more
            free[row.pool] -= row.to_gpus - row.gpus
            row.gpus, row.clock = row.to_gpus, row.to_clock
            now = flow_step(row, free[row.pool], drawn, sigma, speed)
        if now > 0:
            heap_push(heap, at, 0, size, -now, k)
            size += 1
    return room
