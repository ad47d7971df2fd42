# Turns: who runs next, where every job has its nodes.


def take_homes(
    int64_t[::1] order,
    int64_t[::1] first,
    int64_t[::1] rows,
    int64_t[::1] node,
    int64_t[::1] gpus,
    int64_t[::1] free,
    uint8_t[::1] chosen,
):
    """Let jobs run in an order, each if all of its nodes have the GPUs that it needs there; `free` is what is left.

    Job j has the rows from first[j] on, rows[j] of them; `chosen` is by place in the order.
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


# Gavel: who runs on which GPU type in the next round.


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
    """Give jobs GPUs in the order of their entries, each on one type, passing over those for which none is free.

    An entry is a job alone (`place_other` is NONE) or a pair of jobs that have the same GPUs.
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
