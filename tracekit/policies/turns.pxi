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
