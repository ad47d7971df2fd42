# Elastic jobs: each job gets its minimum in order, then the remaining GPUs are handed out one by one.


cdef inline int64_t roomiest(uint8_t[:, ::1] accepts, int64_t kind, int64_t[::1] free, int64_t least):
    """Return the pool with most GPUs left, at least `least`, or -1 for none."""
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
    """Grow jobs with GPUs in turns."""
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
    """Give jobs their minimum in order, skipping jobs whose minimum is not free, and then more GPUs in turns.

    Parameters
    ----------
    order : array (k,)
        Indices of the jobs, in order.
    pool : array (k,)
        Current pool of each job, or -1 if the job waits; overwritten with the planned pool.
    low, high : array (k,)
        Minimum and maximum GPUs of each job.
    kind : array (k,)
        Row of `accepts` for each job.
    accepts : array (K, P) of bool
        Pools that a job may use.
    free : array (P,)
        GPUs of each pool; overwritten with the GPUs that are left.
    keep : bool
        Whether running jobs get their minimum before all others.
    doubling : bool
        Whether jobs grow by doubling instead of one GPU at a time.
    gpus : array (k,)
        Zeros; overwritten with the GPUs of each job.
    line : array (k,)
        Scratch space.
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


# AFS-L: GPUs go one at a time to the job that wins all pairwise comparisons.


cdef inline double speed_with(double[::1] speed, int64_t n):
    return speed[n] if n > 0 else 0.0


cdef inline int64_t pair_winner(
    int64_t a, int64_t b, double[::1] work, int64_t[::1] gpus, int64_t[::1] low, double[::1] speed
):
    """Return which of two jobs gets the next GPU, or -1 for neither. The earlier job, `a`, wins ties."""
    cdef int64_t shorter = a
    cdef int64_t longer = b
    cdef int64_t n
    cdef double gain_short, gain_long, now
    if a < 0 or b < 0:
        return max(a, b)
    if work[b] / speed[max(gpus[b], low[b])] < work[a] / speed[max(gpus[a], low[a])]:
        shorter, longer = b, a
    # A job without GPUs has an infinite gain if it is the shorter job, and its full speed if it is the longer one.
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
    """Give a pool's GPUs to the winner of all jobs, first a minimum, then one at a time. Return the GPUs left.

    Parameters
    ----------
    line : array (m,)
        Indices of the jobs, in an order.
    work : array (k,)
        Remaining work of each job, as its time on one GPU.
    low, high : array (k,)
        Minimum and maximum GPUs of each job.
    speed : array
        Speed on 0, 1, ... GPUs.
    free : int
        GPUs of the pool.
    gpus : array (k,)
        Zeros; overwritten with the GPUs of each job.
    tree : array (2 m,)
        Scratch space: a tournament tree with the winner of each pair at half its index.
    """
    cdef int64_t i, j, step
    cdef int64_t m = len(line)
    for i in range(m):
        tree[m + i] = line[i]
    for i in range(m - 1, 0, -1):
        tree[i] = pair_winner(tree[2 * i], tree[2 * i + 1], work, gpus, low, speed)
    # Walk down from the root to find the winner's leaf.
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
