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


# AFS-L: GPUs one at a time to the job that wins a comparison in pairs.


cdef inline double speed_with(double[::1] speed, int64_t n):
    return speed[n] if n > 0 else 0.0


cdef inline int64_t pair_winner(
    int64_t a, int64_t b, double[::1] work, int64_t[::1] gpus, int64_t[::1] low, double[::1] speed
):
    """Return which of two jobs the next GPU is for; -1 stands for nobody, and between equals `a`, the earlier, wins."""
    cdef int64_t shorter = a
    cdef int64_t longer = b
    cdef int64_t n
    cdef double gain_short, gain_long, now
    if a < 0 or b < 0:
        return max(a, b)
    if work[b] / speed[max(gpus[b], low[b])] < work[a] / speed[max(gpus[a], low[a])]:
        shorter, longer = b, a
    # Without GPUs every gain is infinite for the shorter job, and the whole of its speed for the longer.
    if gpus[shorter] == 0:
        return shorter
    n = gpus[longer] + 1 if gpus[longer] > 0 else low[longer]
    gain_long = (speed[n] - speed_with(speed, gpus[longer])) / speed[n]
    now = speed[gpus[shorter]]
    gain_short = (speed[gpus[shorter] + 1] - now) / now
    return longer if gain_long > gain_short else shorter


def divide_by_pairs(
    int64_t[::1] line,
    double[::1] work,
    int64_t[::1] low,
    int64_t[::1] high,
    double[::1] speed,
    int64_t free,
    int64_t[::1] gpus,
    int64_t[::1] tree,
):
    """Give the GPUs of a pool, one at a time or a minimum at first, each to the winner of all; return what is left.

    Parameters
    ----------
    line : array (m,)
        Places of the jobs, in an order.
    work : array (k,)
        What each has left, in time on one GPU.
    low, high : array (k,)
        Least and most GPUs.
    speed : array
        Speed on 0, 1, ... GPUs.
    free : int
        GPUs of the pool.
    gpus : array (k,)
        Zeros; overwritten with the GPUs of each.
    tree : array (2 m,)
        Room to work in: of each two the one that wins, at half their index.
    """
    cdef int64_t i, j, step
    cdef int64_t m = len(line)
    for i in range(m):
        tree[m + i] = line[i]
    for i in range(m - 1, 0, -1):
        tree[i] = pair_winner(tree[2 * i], tree[2 * i + 1], work, gpus, low, speed)
    # Where each job stands among the leaves is told by walking down from the top.
    while m > 0 and free > 0 and tree[1] >= 0:
        j = tree[1]
        i = 1
        while i < m:
            i = 2 * i if tree[2 * i] == j else 2 * i + 1
        step = 1 if gpus[j] > 0 else low[j]
        if step > free:
            tree[i] = -1
        else:
            gpus[j] += step
            free -= step
            if gpus[j] >= high[j] or speed[gpus[j] + 1] <= speed[gpus[j]]:
                tree[i] = -1
        i //= 2
        while i > 0:
            tree[i] = pair_winner(tree[2 * i], tree[2 * i + 1], work, gpus, low, speed)
            i //= 2
    return free
