# Pollux: give GPUs to the jobs with which they raise the power mean of the speedups most.

from libc.math cimport log, pow

# Speedup of a job without GPUs, used instead of 0.
cdef double _NOTHING = 1e-3
# Scale of gains, which are compared as whole numbers.
cdef double _SCALE = 1e12


cdef inline double worth(int64_t n, FitnessRow* row, double[::1] speed, double power):
    """Return the contribution of a job on n GPUs to the mean, which rises with the job's speedup."""
    cdef double speedup = _NOTHING
    if n > 0:
        speedup = speed[row.first + n] / row.fair
        if n != row.held:
            speedup *= row.factor
        speedup = max(speedup, _NOTHING)
    if power == -1.0:
        return -(1.0 / speedup)
    if power == 0.0:
        return log(speedup)
    return pow(speedup, power) if power > 0 else -pow(speedup, power)


cdef inline double best_step(FitnessRow* row, double[::1] speed, double power, int64_t most):
    """Find the next number of GPUs with the largest gain per GPU (`row.next`, or 0 for none). Return that gain."""
    cdef int64_t n
    cdef double gain
    cdef double best = 0.0
    row.next = 0
    cdef double now = worth(row.gpus, row, speed, power)
    for n in range(max(row.gpus + 1, row.low), most + 1):
        gain = (worth(n, row, speed, power) - now) / (n - row.gpus)
        if gain > best:
            best = gain
            row.next = n
    return best


def raise_fitness(
    FitnessRow[::1] rows, int64_t[::1] free, double[::1] speed, double power, Entry[::1] heap, int32_t[::1] at
):
    """Give GPUs to the jobs that gain most per GPU, until no GPU is left or no job gains.

    Parameters
    ----------
    rows : array (k,)
        Jobs. `gpus` is the guaranteed number, and is increased; `first` is the index of the job's speed on 0 GPUs.
    free : array (P,)
        GPUs left in each pool.
    speed : array
        Speeds of all kinds of jobs.
    power : float
        Exponent of the mean, from -2 to 1.
    heap, at : array (k,)
        Scratch space.
    """
    cdef int64_t k, left
    cdef double gain
    cdef FitnessRow* row
    cdef int64_t size = 0
    for k in range(len(rows)):
        gain = best_step(&rows[k], speed, power, min(rows[k].high, rows[k].gpus + free[rows[k].pool]))
        if rows[k].next > 0:
            heap_push(heap, at, 0, size, -<int64_t>(gain * _SCALE), k)
            size += 1
    while size > 0:
        k = heap[0].job
        heap_pop(heap, at, 0, size)
        size -= 1
        row = &rows[k]
        left = free[row.pool]
        if row.next - row.gpus <= left:
            free[row.pool] -= row.next - row.gpus
            row.gpus = row.next
        # Find its next step, or a smaller step if this one did not fit.
        gain = best_step(row, speed, power, min(row.high, row.gpus + free[row.pool]))
        if row.next > 0:
            heap_push(heap, at, 0, size, -<int64_t>(gain * _SCALE), k)
            size += 1
