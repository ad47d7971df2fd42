# The inflate mode: tasks only arrive and none leaves, to see how full a placement rule can make a cluster.
#
# It repeats the experiment of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, on any tasks and nodes.


def inflate_arrive(Fractions state, int32_t[::1] shapes, int32_t[::1] gpus, int64_t[::1] left, int64_t[::1] wasted):
    cdef int64_t number, node
    for number in range(len(shapes)):
        node = rules_place(state, shapes[number], gpus)
        if node >= 0:
            supply_take(state, shapes[number], node, gpus)
        left[number] = state.totals[MILLI_LEFT]
        wasted[number] = state.totals[WASTED]
