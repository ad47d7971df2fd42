# The inflate mode (see inflate.py).


def inflate_arrive(Fractions state, int32_t[::1] shapes, int32_t[::1] gpus, int64_t[::1] left, int64_t[::1] wasted):
    cdef int64_t number, node
    for number in range(len(shapes)):
        node = rules_place(state, shapes[number], gpus)
        if node >= 0:
            supply_take(state, shapes[number], node, gpus)
        left[number] = state.totals[MILLI_LEFT]
        wasted[number] = state.totals[WASTED]
