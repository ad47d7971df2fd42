# Turns: choose the jobs that run next, where every job has fixed nodes.


def take_homes(
    int64_t[::1] order,
    int64_t[::1] first,
    int64_t[::1] rows,
    int64_t[::1] node,
    int64_t[::1] gpus,
    int64_t[::1] free,
    uint8_t[::1] chosen,
):
    """Choose jobs, in order, whose nodes all have enough free GPUs, and reduce `free` by the GPUs taken.

    Job j has rows[j] rows, starting at first[j]. `chosen` is indexed by position in the order.
    """
    cdef int64_t i, j, at
    cdef bint fits
    for i in range(len(order)):
        j = order[i]
        fits = True
        for at in range(first[j], first[j] + rows[j]):
            if free[node[at]] < gpus[at]:
                fits = False
        if fits:
            chosen[i] = 1
            for at in range(first[j], first[j] + rows[j]):
                free[node[at]] -= gpus[at]


# Gavel: choose the jobs that run in the next round, and their GPU types.


def choose_types(
    int64_t[::1] order,
    int64_t[::1] gpus,
    int64_t[::1] place_job,
    int64_t[::1] place_other,
    int64_t[::1] place_pool,
    int64_t[::1] free,
    int64_t[::1] chosen,
    int64_t[::1] partner,
):
    """Give jobs GPUs in the order of their entries, each on one type, skipping jobs for which too few GPUs are free.

    An entry is a single job (`place_other` is NONE), or a pair of jobs that share the same GPUs.
    """
    cdef int64_t i, place, other, pool
    for i in range(len(order)):
        place, other, pool = place_job[order[i]], place_other[order[i]], place_pool[order[i]]
        if chosen[place] >= 0 or gpus[place] > free[pool] or (other != NONE and chosen[other] >= 0):
            continue
        chosen[place] = pool
        free[pool] -= gpus[place]
        if other != NONE:
            chosen[other] = pool
            partner[place] = other
            partner[other] = place
