# The arrays that a run with switched nodes needs in addition to the engine's (see `switches.Switches`).


cdef struct SwitchRow:
    int64_t off_after, wake_ms, reserve_nodes, reserve_gpus, since, lead
    # Integral of the price until `since` [price * ms].
    double paid


# Nodes of one domain and GPU model.
cdef struct SwitchPool:
    int64_t domain, group_low, group_high, node_low, node_high, gpus
    # What waiting jobs want, and what is available.
    int64_t wanted, waits, idle_nodes, idle_gpus, free_gpus, waking_nodes, waking_gpus, leaving
    # GPUs of nodes that are off, and of nodes that are off or waking; both integrated over time, to now and to the last
    # end.
    int64_t off, down, off_ms, down_ms, off_ms_at_end, down_ms_at_end, wakes_at_end, wakes
    # What the GPUs that were off would have cost, per GPU [GPU * price * ms].
    double unpaid, unpaid_at_end


cdef class Switches(Arrays):
    """The arrays of a run with switched nodes (see `switches.Switches`)."""

    cdef public SwitchRow[::1] m
    cdef public SwitchPool[::1] pools
    cdef public int8_t[::1] status
    cdef public int64_t[::1] due
    cdef public int64_t[::1] idle_since
    cdef public double[::1] price


EXAMPLES["SwitchRow"] = <SwitchRow[:1]><SwitchRow*>_row
EXAMPLES["SwitchPool"] = <SwitchPool[:1]><SwitchPool*>_row
