# The arrays of a plan.


cdef class PlanColumns(Arrays):
    """What a plan gives each job that it names (see `plan_reader.PlanColumns`)."""

    cdef public int64_t[::1] jobs
    cdef public int64_t[::1] gpus
    cdef public int64_t[::1] rates
    cdef public int64_t[::1] groups
    cdef public int64_t[::1] models
    cdef public uint8_t[::1] optional
