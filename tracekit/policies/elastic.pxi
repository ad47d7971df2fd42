# Elastic jobs: the minimum of each in order, then the remaining GPUs one by one.


cdef inline int64_t roomiest(uint8_t[:, ::1] accepts, int64_t kind, int64_t[::1] free, int64_t least):
    """Return the pool with most GPUs left, at least so many; -1 none."""
    cdef int64_t p
    cdef int64_t best = -1
    for p in range(len(free)):
        if accepts[kind, p] and free[p] >= least and (best < 0 or free[p] > free[best]):
            best = p
    return best


cdef inline int grow(
    int64_t[::1] order,
    int64_t[::1] pool,
    int64_t[::1] high,
    int64_t[::1] free,
    bint doubling,
    int64_t[::1] gpus,
    int64_t[::1] line,
) except -1:
    """Let the jobs that have GPUs grow in turns."""
    cdef int64_t place, kept, i, step
    cdef int64_t size = 0
    for place in order:
        if gpus[place] > 0:
            line[size] = place
            size += 1
    while size > 0:
        kept = 0
        for i in range(size):
            place = line[i]
            step = gpus[place] if doubling else 1
            if gpus[place] + step <= high[place] and step <= free[pool[place]]:
                gpus[place] += step
                free[pool[place]] -= step
                line[kept] = place
                kept += 1
        size = kept


def divide_gpus(
    int64_t[::1] order,
    int64_t[::1] pool,
    int64_t[::1] low,
    int64_t[::1] high,
    int64_t[::1] kind,
    uint8_t[:, ::1] accepts,
    int64_t[::1] free,
    bint keep,
    bint doubling,
    int64_t[::1] gpus,
    int64_t[::1] line,
):
    """Give jobs their minimum in an order, passing over those whose minimum is not free, then GPUs in turns.

    Parameters
    ----------
    order : array (k,)
        Places of the jobs, first the first.
    pool : array (k,)
        Pool in which each runs, -1 where it waits; overwritten with that in which it is to run.
    low, high : array (k,)
        Least and most GPUs.
    kind : array (k,)
        Row of `accepts` of each.
    accepts : array (K, P) of bool
        Pools that a job may use.
    free : array (P,)
        GPUs of each pool; overwritten with what is left.
    keep : bool
        Whether running jobs have their minimum before all others.
    doubling : bool
        Whether jobs grow by doubling and not by one.
    gpus : array (k,)
        Zeros; overwritten with the GPUs of each.
    line : array (k,)
        Room to work in.
    """
    cdef int64_t place, best
    if keep:
        for place in order:
            if pool[place] >= 0:
                gpus[place] = low[place]
                free[pool[place]] -= low[place]
    for place in order:
        if gpus[place] > 0:
            continue
        best = pool[place]
        if best < 0 or free[best] < low[place]:
            best = roomiest(accepts, kind[place], free, low[place])
        if best >= 0:
            pool[place] = best
            gpus[place] = low[place]
            free[best] -= low[place]
    grow(order, pool, high, free, doubling, gpus, line)
