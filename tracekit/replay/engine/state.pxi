"""Spans of time."""

cdef struct Span:
    long long start
    long long end


cdef class Spans:
    """Spans over an array of records (start, end) [ms]."""

    cdef Span[::1] rows

    def __init__(self, Span[::1] rows):
        self.rows = rows

    cdef long long length(self, Py_ssize_t index) except? -1:
        cdef Span* span = &self.rows[index]
        return span.end - span.start


def longest(Spans spans, Py_ssize_t count):
    """Return the greatest length of the first so many spans [ms]; 0 of none."""
    cdef long long found = 0
    cdef Py_ssize_t index
    for index in range(count):
        found = max(found, spans.length(index))
    return found
