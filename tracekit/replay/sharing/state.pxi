# The arrays for jobs that share whole GPUs, in addition to the engine's (see `residents`).


cdef struct SharedJob:
    int64_t mark, utilization
    int32_t held, alone, place, model, step


cdef struct SharedGpu:
    int32_t node, jobs, memory


cdef struct SharedNode:
    int64_t mark
    int32_t first, jobs, open, listed


cdef struct SharedGroup:
    int64_t idle, open, row, count, most


cdef struct Candidates:
    int64_t base, size


cdef struct Head:
    int64_t job, bound


cdef struct Held:
    int32_t gpu, next


cdef struct SharedGlobals:
    int64_t seats, strength, test, consolidate, free_held, chosen, change, away, most, alone, work, partners


cdef class Residents(Arrays):
    """The jobs that share each GPU (see `residents.Residents`)."""

    cdef public SharedGlobals[::1] g
    cdef public SharedJob[::1] jobs
    cdef public SharedGpu[::1] gpus
    cdef public int32_t[::1] seats
    cdef public SharedNode[::1] nodes
    cdef public SharedGroup[::1] groups
    cdef public Candidates[::1] domains
    cdef public int32_t[::1] candidates
    cdef public Head[::1] heads
    cdef public Held[::1] held
    cdef public uint64_t[:, ::1] bits
    cdef public int32_t[:, ::1] counts
    cdef public int32_t[:, ::1] memory
    cdef public int64_t[::1] speeds
    cdef public int32_t[::1] chosen
    cdef public Entry[::1] partners
    cdef public int32_t[::1] partner_at
    cdef public int64_t[::1] pairs


EXAMPLES |= {
    "SharedJob": <SharedJob[:1]><SharedJob*>_row,
    "SharedGpu": <SharedGpu[:1]><SharedGpu*>_row,
    "SharedNode": <SharedNode[:1]><SharedNode*>_row,
    "SharedGroup": <SharedGroup[:1]><SharedGroup*>_row,
    "Candidates": <Candidates[:1]><Candidates*>_row,
    "Head": <Head[:1]><Head*>_row,
    "Held": <Held[:1]><Held*>_row,
    "SharedGlobals": <SharedGlobals[:1]><SharedGlobals*>_row,
}
