# The arrays of GPUs that jobs share in parts (see `supply` and `build`).


cdef struct Shape:
    int64_t cpu, memory
    int32_t count, milli, models
    int64_t weight


cdef struct PartNode:
    int64_t cpu_left, memory_left, milli_left, wasted, changed
    int32_t gpus, whole, model


cdef struct Gang:
    int32_t full, parts, rest, milli


cdef class Fractions:
    """Nodes and what runs on them (see `supply.Fractions`)."""

    cdef int64_t rule
    cdef PartNode[::1] nodes
    cdef int32_t[:, ::1] gpu_left
    cdef int32_t[:, ::1] holders
    cdef uint8_t[:, ::1] accepted
    cdef Shape[::1] shapes
    cdef Shape[::1] expected
    cdef int64_t[::1] totals
    cdef int32_t[::1] changed
    cdef int8_t[:, ::1] scores
    cdef int32_t[::1] scored_shape
    cdef int64_t[::1] scored_until
    cdef uint64_t[::1] random
    cdef int32_t[::1] scratch

    def __init__(self, arrays):
        self.rule = arrays.rule
        self.nodes = arrays.nodes
        self.gpu_left = arrays.gpu_left
        self.holders = arrays.holders
        self.accepted = arrays.accepted
        self.shapes = arrays.shapes
        self.expected = arrays.expected
        self.totals = arrays.totals
        self.changed = arrays.changed
        self.scores = arrays.scores
        self.scored_shape = arrays.scored_shape
        self.scored_until = arrays.scored_until
        self.random = arrays.random
        self.scratch = arrays.scratch


cdef class Gangs:
    """Jobs of several parts (see `build.Gangs`)."""

    cdef Gang[::1] gangs
    cdef int32_t[::1] chosen
    cdef int32_t[::1] barred

    def __init__(self, arrays):
        self.gangs = arrays.gangs
        self.chosen = arrays.chosen
        self.barred = arrays.barred


cdef Shape _shape
cdef PartNode _partnode
cdef Gang _gang
EXAMPLES |= {
    "Shape": <Shape[:1]>&_shape,
    "PartNode": <PartNode[:1]>&_partnode,
    "Gang": <Gang[:1]>&_gang,
}
