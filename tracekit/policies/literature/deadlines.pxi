# ElasticFlow: the fewest GPUs that meet each job's deadline, and growth into spare GPUs. A pool's free GPUs over time
# are a row of steps: start [ms from now] and free GPUs. The last step has no end.


cdef inline int64_t largest_level(int64_t[::1] level, int64_t first, int64_t most, int64_t free):
    """Return the largest of the levels first .. most that fits into the free GPUs, or first - 1 if none does."""
    cdef int64_t at = most
    while at >= first and level[at] > free:
        at -= 1
    return at


cdef inline int64_t end_with(
    int64_t[::1] begins,
    int64_t[::1] free,
    int64_t size,
    int64_t[::1] level,
    int64_t[::1] rate,
    int64_t first,
    int64_t most,
    int64_t work,
    int64_t room,
):
    """Return when the work ends if each step uses the largest level that fits, up to `most`, or -1 if not in `room`."""
    cdef int64_t s, at, length, need
    for s in range(size):
        if begins[s] >= room:
            return -1
        at = largest_level(level, first, most, free[s])
        if at < first:
            continue
        length = room - begins[s]
        if s + 1 < size:
            length = min(length, begins[s + 1] - begins[s])
        need = (work + rate[at] - 1) // rate[at]
        if need <= length:
            return begins[s] + need
        work -= rate[at] * length
    return -1


cdef inline int64_t take_until(
    int64_t[::1] begins,
    int64_t[::1] free,
    int64_t size,
    int64_t[::1] level,
    int64_t first,
    int64_t most,
    int64_t end,
):
    """Subtract the GPUs used in `end_with` from the steps before `end`. Return the new number of steps."""
    cdef int64_t s, at, last
    last = size - 1
    while begins[last] >= end:
        last -= 1
    # Split the step that contains the end.
    if last + 1 == size or begins[last + 1] > end:
        for s in range(size, last + 1, -1):
            begins[s] = begins[s - 1]
            free[s] = free[s - 1]
        begins[last + 1] = end
        free[last + 1] = free[last]
        size += 1
    for s in range(last + 1):
        at = largest_level(level, first, most, free[s])
        if at >= first:
            free[s] -= level[at]
    return size


def least_shares(
    int64_t[::1] line,
    int64_t[::1] work,
    int64_t[::1] room,
    int64_t[::1] first,
    int64_t[::1] count,
    int64_t[::1] level,
    int64_t[::1] rate,
    int64_t[::1] kind,
    uint8_t[:, ::1] accepts,
    int64_t[::1] held,
    int64_t[::1] free,
    int64_t slot,
    int64_t[:, ::1] begins,
    int64_t[:, ::1] steps,
    int64_t[::1] share,
    int64_t[::1] pool,
):
    """Reserve the fewest GPUs that meet each job's deadline, in order. Return how many jobs meet it.

    A job's own level is the lowest that meets its deadline, and the most that it gets. While earlier jobs leave fewer
    GPUs, it gets the largest lower level that fits.

    Parameters
    ----------
    line : array (m,)
        Indices of the jobs, in order.
    work : array (k,)
        Remaining work of each job [ms at 1 ppm].
    room : array (k,)
        Time to each job's deadline [ms].
    first, count : array (k,)
        First level of each job, and number of levels.
    level, rate : array
        GPUs of each level, ascending for each job, and the speed at that level [ppm].
    kind, accepts
        Row of `accepts` (K, P) for each job: the pools that it may use.
    held : array (k,)
        Current pool of each job, which is tried first, or -1 for none.
    free : array (P,)
        GPUs of each pool.
    slot : int
        Reservations end at multiples of this time from now [ms].
    begins, steps : array (P, m + 2)
        Scratch space.
    share : array (k,)
        Overwritten for the jobs in `line` with their current GPUs, or -1 if the deadline cannot be met.
    pool : array (k,)
        Overwritten for the jobs in `line` with the pool of their GPUs.
    """
    cdef int64_t i, p, q, at, most, end
    cdef int64_t pools = len(free)
    cdef int64_t met = 0
    cdef int64_t[::1] size = share[:0]
    for p in range(pools):
        begins[p, 0] = 0
        steps[p, 0] = free[p]
        # The last column holds the number of steps.
        begins[p, begins.shape[1] - 1] = 1
    for i in line:
        share[i] = -1
        for most in range(first[i], first[i] + count[i]):
            # Skip this level if it is too slow even with all its GPUs.
            if room[i] <= 0 or (work[i] + rate[most] - 1) // rate[most] > room[i]:
                continue
            for q in range(-1, pools):
                p = held[i] if q < 0 else q
                if p < 0 or (q >= 0 and p == held[i]) or not accepts[kind[i], p]:
                    continue
                size = begins[p, begins.shape[1] - 1 :]
                end = end_with(begins[p], steps[p], size[0], level, rate, first[i], most, work[i], room[i])
                if end < 0:
                    continue
                at = largest_level(level, first[i], most, steps[p, 0])
                share[i] = level[at] if at >= first[i] else 0
                pool[i] = p
                end = max((end + slot - 1) // slot, 1) * slot
                size[0] = take_until(begins[p], steps[p], size[0], level, first[i], most, end)
                met += 1
                break
            if share[i] >= 0:
                break
    return met


def grow_by_levels(
    int64_t[::1] line,
    int64_t[::1] pool,
    int64_t[::1] first,
    int64_t[::1] count,
    int64_t[::1] level,
    int64_t[::1] free,
    int64_t[::1] gpus,
):
    """Grow jobs that have GPUs in order, each to the largest of its levels that fits into the free GPUs.

    Parameters
    ----------
    line : array (m,)
        Indices of the jobs, in order.
    pool : array (k,)
        Planned pool of each job.
    first, count, level
        As in `least_shares`.
    free : array (P,)
        GPUs of each pool; overwritten with the GPUs that are left.
    gpus : array (k,)
        GPUs of each job; overwritten.
    """
    cdef int64_t i, at
    for i in line:
        if gpus[i] == 0:
            continue
        at = largest_level(level, first[i], first[i] + count[i] - 1, gpus[i] + free[pool[i]])
        if at >= first[i] and level[at] > gpus[i]:
            free[pool[i]] -= level[at] - gpus[i]
            gpus[i] = level[at]
