# The arrays for jobs that share whole GPUs, in addition to the engine's.


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
    """The arrays that shared GPUs need in addition to `EngineState`."""

    # SharedGlobals (1,): seats per GPU, the policy's settings, sizes.
    cdef public SharedGlobals[::1] g
    # SharedJob (n,): utilization [ppm], allocated GPUs, number of GPUs used alone, place among the candidates.
    cdef public SharedJob[::1] jobs
    # SharedGpu: all GPUs, grouped by node, with the jobs on each and the memory that they use [ppm].
    cdef public SharedGpu[::1] gpus
    # Jobs on each GPU in order of arrival (GPUs * seats).
    cdef public int32_t[::1] seats
    # SharedNode (N,): first GPU, jobs on the node, open GPUs.
    cdef public SharedNode[::1] nodes
    # SharedGroup (G,): idle and open GPUs of the available nodes, positions in the bit tables.
    cdef public SharedGroup[::1] groups
    # Candidates (D,): each domain's range in `candidates`.
    cdef public Candidates[::1] domains
    # Jobs of each domain that have a GPU to themselves.
    cdef public int32_t[::1] candidates
    # Head of each queue: its first job, and an upper bound on the GPUs that this job could get.
    cdef public Head[::1] heads
    # Held: the GPUs of running jobs, as linked lists in allocation order. Unused entries are linked from
    # SharedGlobals.free_held.
    cdef public Held[::1] held
    # One bit per node by kind, group and number of jobs (2, ...).
    cdef public uint64_t[:, ::1] bits
    # Number of bits set, by kind, group and number of jobs (2, ...).
    cdef public int32_t[:, ::1] counts
    # Memory of each job by sub-batches [ppm of the GPU's memory] (S, n).
    cdef public int32_t[:, ::1] memory
    # Speed by sub-batches [ppm] (S,).
    cdef public int64_t[::1] speeds
    # GPUs chosen for a job.
    cdef public int32_t[::1] chosen
    # Heap of partners for a job, by mean end.
    cdef public Entry[::1] partners
    # Position of each job in `partners`, or -1 if it is not there (n,).
    cdef public int32_t[::1] partner_at
    # Buffer for the speeds next to each job of a GPU.
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
