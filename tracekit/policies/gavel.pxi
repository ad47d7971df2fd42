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
