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
