# The arrays that a capped run needs in addition to the engine's (see `meter.Meter`).


cdef struct MeterRow:
    int64_t cap, lowest, step, size, full, rest, level, total, present, there, mean, change, since, mwh, part, peak
    int64_t over, slowed, changes, over_at_end, slowed_at_end


cdef class Meter(Arrays):
    """The arrays that meter a capped run (see `meter.Meter`)."""

    cdef public MeterRow[::1] m
    cdef public int32_t[::1] running
    cdef public int32_t[::1] at
    cdef public int8_t[::1] up
    cdef public int64_t[::1] idle
    cdef public int64_t[::1] busy
    cdef public int64_t[::1] rest
    cdef public int64_t[::1] speed
    cdef public int64_t[::1] drawn


EXAMPLES["MeterRow"] = <MeterRow[:1]><MeterRow*>_row
