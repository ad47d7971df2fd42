# The arrays of a plan.


cdef class PlanColumns:
    """What a plan gives each job that it names (see `plan_reader.PlanColumns`)."""

    cdef int64_t[::1] jobs
    cdef int64_t[::1] gpus
    cdef int64_t[::1] rates
    cdef int64_t[::1] groups
    cdef int64_t[::1] models
    cdef uint8_t[::1] optional

    def __init__(self, arrays):
        self.jobs = arrays.jobs
        self.gpus = arrays.gpus
        self.rates = arrays.rates
        self.groups = arrays.groups
        self.models = arrays.models
        self.optional = arrays.optional
