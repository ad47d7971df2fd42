# The usual orders of jobs, compiled; any other is a function of Python (see `mechanisms.Ordered.key`).


cdef class ByArrival(Key):
    """Earliest submission first."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.submit_ms


cdef class Shortest(Key):
    """Least expected run time first."""

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
    """Lowest level first, by submission inside a level."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.level * KEY_SPAN + job.submit_ms


cdef class LeastAttainedStays(Key):
    """Lowest level first; equal keys evict nobody, and wait by submission."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.level


cdef class MostUrgent(Key):
    """Highest `value` first, by submission among equals."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        return job.submit_ms - job.value * KEY_SPAN


# By the name of the function of `replay.keys` that says the same in Python.
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
