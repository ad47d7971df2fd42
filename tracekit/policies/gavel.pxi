# Gavel: who runs on which GPU type in the next round.


def choose_types(
    int64_t[::1] order,
    int64_t[::1] pools,
    int64_t[::1] gpus,
    int64_t[::1] place_job,
    int64_t[::1] place_pool,
    int64_t[::1] free,
    int64_t[::1] chosen,
):
    """Give jobs GPUs in the order of their entries, each on one type, passing over those for which none is free."""
    cdef int64_t i, place, pool
    for i in range(len(order)):
        place, pool = place_job[order[i]], place_pool[order[i]]
        if chosen[place] < 0 and gpus[place] <= free[pool]:
            chosen[place] = pool
            free[pool] -= gpus[place]
