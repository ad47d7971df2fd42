# The arrays of a plan.


cdef class PlanArrays(Arrays):
    """A plan (see `mechanism.PlanArrays`)."""

    cdef public int64_t[::1] jobs
    cdef public int64_t[::1] gpus
    cdef public int64_t[::1] rates
    cdef public int64_t[::1] groups
    cdef public int64_t[::1] models
    cdef public uint8_t[::1] optional
    cdef public int64_t[:, ::1] rows
    cdef public int64_t[::1] ends
    cdef public int64_t[::1] beside
    cdef public int64_t[::1] lost
    cdef public int64_t share
    cdef public bint keep
    cdef public bint any_model
    cdef public int64_t resize_ms
