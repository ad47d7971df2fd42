# The common job orders, compiled. Any other order is a Python function (see `Ordered.key`).


cdef class ByArrival(Key):
    """Earliest submission first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.submit_ms


cdef class Shortest(Key):
    """Shortest expected run time first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.estimate_ms


cdef class Smallest(Key):
    """Least expected GPU time first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.estimate_ms * job.gpus


cdef class ShortestLeft(Key):
    """Least remaining run time first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.remaining_ms


cdef class SmallestLeft(Key):
    """Least remaining GPU time first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.remaining_ms * job.gpus


cdef class LeastAttained(Key):
    """Lowest level first, and in submission order within a level."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.level * KEY_SPAN + job.submit_ms


cdef class LeastAttainedStays(Key):
    """Lowest level first. Jobs with equal keys do not preempt each other and wait in submission order."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.level


cdef class MostUrgent(Key):
    """Largest `value` first, and ties in submission order."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.submit_ms - job.value * KEY_SPAN


# Compiled keys by the name of the equivalent Python function in `replay.keys`.
KEYS = {
    "by_arrival": ByArrival,
    "shortest": Shortest,
    "smallest": Smallest,
    "shortest_left": ShortestLeft,
    "smallest_left": SmallestLeft,
    "least_attained": LeastAttained,
    "least_attained_stays": LeastAttainedStays,
    "most_urgent": MostUrgent,
}
