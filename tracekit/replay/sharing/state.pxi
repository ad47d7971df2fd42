# The arrays of jobs that share whole GPUs, beside those of the engine (see `residents`).


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


cdef class Residents:
    """Who sits on each GPU (see `residents.Residents`)."""

    cdef SharedGlobals[::1] g
    cdef SharedJob[::1] jobs
    cdef SharedGpu[::1] gpus
    cdef int32_t[::1] seats
    cdef SharedNode[::1] nodes
    cdef SharedGroup[::1] groups
    cdef Candidates[::1] domains
    cdef int32_t[::1] candidates
    cdef Head[::1] heads
    cdef Held[::1] held
    cdef uint64_t[:, ::1] bits
    cdef int32_t[:, ::1] counts
    cdef int32_t[:, ::1] memory
    cdef int64_t[::1] speeds
    cdef int32_t[::1] chosen
    cdef Entry[::1] partners
    cdef int32_t[::1] partner_at
    cdef int64_t[::1] pairs

    def __init__(self, arrays):
        self.g = arrays.g
        self.jobs = arrays.jobs
        self.gpus = arrays.gpus
        self.seats = arrays.seats
        self.nodes = arrays.nodes
        self.groups = arrays.groups
        self.domains = arrays.domains
        self.candidates = arrays.candidates
        self.heads = arrays.heads
        self.held = arrays.held
        self.bits = arrays.bits
        self.counts = arrays.counts
        self.memory = arrays.memory
        self.speeds = arrays.speeds
        self.chosen = arrays.chosen
        self.partners = arrays.partners
        self.partner_at = arrays.partner_at
        self.pairs = arrays.pairs


cdef SharedJob _sharedjob
cdef SharedGpu _sharedgpu
cdef SharedNode _sharednode
cdef SharedGroup _sharedgroup
cdef Candidates _candidates
cdef Head _head
cdef Held _held
cdef SharedGlobals _sharedglobals
EXAMPLES |= {
    "SharedJob": <SharedJob[:1]>&_sharedjob,
    "SharedGpu": <SharedGpu[:1]>&_sharedgpu,
    "SharedNode": <SharedNode[:1]>&_sharednode,
    "SharedGroup": <SharedGroup[:1]>&_sharedgroup,
    "Candidates": <Candidates[:1]>&_candidates,
    "Head": <Head[:1]>&_head,
    "Held": <Held[:1]>&_held,
    "SharedGlobals": <SharedGlobals[:1]>&_sharedglobals,
}
