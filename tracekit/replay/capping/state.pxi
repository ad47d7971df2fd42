# The arrays of a capped run, beside those of the engine (see `meter.Meter`).


cdef struct MeterRow:
    int64_t cap, lowest, step, size, full, rest, level, total, present, there, mean, change, since, mwh, part, peak
    int64_t over, slowed, changes, over_at_end, slowed_at_end


cdef class Meter:
    """What a capped run meters (see `meter.Meter`)."""

    cdef MeterRow[::1] m
    cdef int32_t[::1] running
    cdef int32_t[::1] at
    cdef int8_t[::1] up
    cdef int64_t[::1] idle
    cdef int64_t[::1] busy
    cdef int64_t[::1] rest
    cdef int64_t[::1] speed
    cdef int64_t[::1] drawn

    def __init__(self, arrays):
        self.m = arrays.m
        self.running = arrays.running
        self.at = arrays.at
        self.up = arrays.up
        self.idle = arrays.idle
        self.busy = arrays.busy
        self.rest = arrays.rest
        self.speed = arrays.speed
        self.drawn = arrays.drawn


cdef MeterRow _meter_row
EXAMPLES["MeterRow"] = <MeterRow[:1]>&_meter_row
