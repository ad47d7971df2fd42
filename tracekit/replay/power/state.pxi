# The arrays that a capped run needs in addition to the engine's.


cdef struct MeterRow:
    int64_t cap, lowest, step, size, full, rest, level, total, present, there, mean, change, since, mwh, part, peak
    int64_t over, slowed, changes, over_at_end, slowed_at_end


cdef class Meter(Arrays):
    """The arrays that a capped run needs in addition to the engine's."""

    # Sums, the current step, and the values reported at the end (1,).
    cdef public MeterRow[::1] m
    # Running jobs, in any order.
    cdef public int32_t[::1] running
    # Position of each running job in `running` (n,).
    cdef public int32_t[::1] at
    # Nodes that are counted as available (N,).
    cdef public int8_t[::1] up
    # Idle power of each node [mW] (N,).
    cdef public int64_t[::1] idle
    # Power of one GPU of each job at full clock [mW] (n,).
    cdef public int64_t[::1] busy
    # Part of `busy` that the GPU would use while idle [mW] (n,).
    cdef public int64_t[::1] rest
    # Speed of each step [ppm] (K,).
    cdef public int64_t[::1] speed
    # Share of `busy` used at each step [ppm] (K,).
    cdef public int64_t[::1] drawn


EXAMPLES["MeterRow"] = <MeterRow[:1]><MeterRow*>_row


# The arrays that a run with switched nodes needs in addition to the engine's.


cdef struct SwitchRow:
    int64_t off_after, wake_ms, reserve_nodes, reserve_gpus, since, lead
    # Integral of the price until `since` [price * ms].
    double paid


# Nodes of one domain and GPU model.
cdef struct SwitchPool:
    int64_t domain, group_low, group_high, node_low, node_high, gpus
    # The requests of waiting jobs, and the available resources.
    int64_t wanted, waits, idle_nodes, idle_gpus, free_gpus, waking_nodes, waking_gpus, leaving
    # GPUs of nodes that are off, and of nodes that are off or waking. Both are integrated over time, to now and to the
    # last end.
    int64_t off, down, off_ms, down_ms, off_ms_at_end, down_ms_at_end, wakes_at_end, wakes
    # The avoided cost of the GPUs that were off, per GPU [GPU * price * ms].
    double unpaid, unpaid_at_end


cdef class Switches(Arrays):
    """The arrays that a run with switched nodes needs in addition to the engine's."""

    # The rule (1,).
    cdef public SwitchRow[::1] m
    # Nodes of one domain and model, and the integrals of the GPUs that are off (P,).
    cdef public SwitchPool[::1] pools
    # Whether each node is on, about to leave, off or waking (N,).
    cdef public int8_t[::1] status
    # Time of the node's last or next switch [ms], or -1 if none (N,).
    cdef public int64_t[::1] due
    # Time at which the node became completely idle while on [ms], or -1 if it is not idle (N,).
    cdef public int64_t[::1] idle_since
    # Repeating price of each hour [per kWh] (L,).
    cdef public double[::1] price


EXAMPLES["SwitchRow"] = <SwitchRow[:1]><SwitchRow*>_row
EXAMPLES["SwitchPool"] = <SwitchPool[:1]><SwitchPool*>_row
