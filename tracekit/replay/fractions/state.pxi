# The arrays for jobs that share GPUs in fractions (see `supply`).


cdef struct Shape:
    int64_t cpu, memory
    int32_t count, milli, models
    int64_t weight


cdef struct PartNode:
    int64_t cpu_left, memory_left, milli_left, wasted, changed
    int32_t gpus, whole, model


cdef struct Gang:
    int32_t full, parts, rest, milli


cdef class Fractions(Arrays):
    """Nodes and the tasks on them (see `supply.Fractions`)."""

    cdef public int64_t rule
    cdef public PartNode[::1] nodes
    cdef public int32_t[:, ::1] gpu_left
    cdef public int32_t[:, ::1] holders
    cdef public uint8_t[:, ::1] accepted
    cdef public Shape[::1] shapes
    cdef public Shape[::1] expected
    cdef public int64_t[::1] totals
    cdef public int32_t[::1] changed
    cdef public int8_t[:, ::1] scores
    cdef public int32_t[::1] scored_shape
    cdef public int64_t[::1] scored_until
    cdef public uint64_t[::1] random
    cdef public int32_t[::1] scratch


cdef class Gangs(Arrays):
    """The arrays that jobs sharing GPUs need in addition to `EngineState` and `Fractions`."""

    # How the jobs of each class are split into parts, each of which runs on one node.
    cdef public Gang[::1] gangs
    # Buffer for the GPUs of a part (G,).
    cdef public int32_t[::1] chosen
    # Buffer for the nodes of a gang (N,).
    cdef public int32_t[::1] barred


EXAMPLES |= {
    "Shape": <Shape[:1]><Shape*>_row,
    "PartNode": <PartNode[:1]><PartNode*>_row,
    "Gang": <Gang[:1]><Gang*>_row,
}
