# The parts that every replay has: the structs of its arrays, the arrays, and the constants.
#
# Units: milliseconds, GPUs, and work in millionths of a millisecond. A rate in parts per million then subtracts whole
# units. NumPy's dtypes come from these structs (see `state.struct_dtype`). Python allocates all arrays, and compiled
# code reads and writes them in place.

cimport cython
from libc.math cimport exp
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t

cdef extern from *:
    """
    #define PPM INT64_C(1000000)
    #define ONE UINT64_C(1)
    #define NEVER (INT64_C(1) << 62)
    #define ANY_NUMBER (INT64_C(1) << 40)
    #define KEY_SPAN (INT64_C(1) << 44)
    #define count_trailing_zeros(value) ((int64_t)__builtin_ctzll(value))
    """
    # The recorded speed.
    const int64_t PPM
    const uint64_t ONE
    # Later than any time of a run.
    const int64_t NEVER
    # More than any number of GPUs.
    const int64_t ANY_NUMBER
    # Larger than any submission time [ms]: 557 years.
    const int64_t KEY_SPAN
    int64_t count_trailing_zeros(uint64_t value)

cpdef enum:
    # No node, no job, or the end of a linked list.
    NONE = -1

# Status of a job.
cpdef enum:
    FUTURE = 0
    WAITING = 1
    RUNNING = 2
    DONE = 3
    REJECTED = 4

# Kinds of entries in the event heap, in their order within an instant. An entry's key is time * 4 + kind.
cdef enum:
    KIND_FINISH = 0
    KIND_TIMER = 3

# How the key of a running job changes: not at all, by -1 per millisecond, or so that the key must be called.
cpdef enum:
    DRIFT_NONE = 0
    DRIFT_TIME = 1
    DRIFT_ANY = 2

# One row of each struct by name, for NumPy. All rows are zeros.
EXAMPLES = {}
cdef int64_t _row[128]


# The fields used at every start and end of a job come first and share cache lines.
cdef struct Job:
    int64_t submit, remaining, since, overhead, attained, ran, first
    int32_t rate, gpus, job_class, allocation, nodes, level
    int8_t status, never, spare
    int32_t pace
    int64_t overhead_done, period, end, key, estimate, value, stopped, base, begun, saved, clock, lost
    int32_t preemptions, migrations, evicted, tenant, restarts, saving


cdef struct Node:
    int32_t free, gpus, group, bit, up, holder, blocks, seat
    uint64_t busy


# Groups that differ only in their partitions are siblings: `first` is the first of them, and `next` the next or NONE.
cdef struct Group:
    int32_t domain, low, high, largest, words, bits, tops, summary, model, speed, first, next


cdef struct Domain:
    int32_t group_low, group_high, queue_low, queue_high, free, held, eviction_base, eviction_size, touched, freed
    int32_t eviction_sorted


cdef struct JobClass:
    uint64_t accept
    int32_t domain, gpus, scope, queue, relaxed, tenant


cdef struct Queue:
    int64_t base, head, size
    int32_t domain, blocked, tenant, gpus


cdef struct Allocation:
    int64_t key
    int32_t node, gpus, next, gpu, job, before, after


# An entry of a heap.
cdef struct Entry:
    int64_t key, job


cdef struct Change:
    int64_t time
    int32_t node
    int16_t up, kills


cdef struct ViewRow:
    int64_t job, held, remaining_ms, attained, overhead_ms, rate, group, since_ms
    uint8_t running


cdef struct LogRow:
    int64_t time_ms
    int8_t kind
    int32_t job, node, gpu
    int64_t value


cdef struct Sample:
    int64_t time, running, pending, busy, free, fragmented


cdef struct Globals:
    int64_t now, jobs, submitted, change, changes, event_size, unused_allocation, serial, log_on, log_size, running
    int64_t pending, busy, free, fragmented, busy_ms, free_ms, fragmented_ms, sample_at, sample_step, samples, touched
    int64_t evicted, listed, loosened, events, last_end, busy_at_end, free_at_end, fragmented_at_end, skip, by_count
    int64_t ring, rule, preemptive, drift, relax_ms, age_cap, levels, promote, stall, planned, shared, tenants
    int64_t ended, rung, active, wake, asked, culprit, scope, keeps, capped, speed, begun, lacking, blocks, seats
    int64_t interval, broken, restart


cdef class Arrays:
    """Makes each array a typed attribute. The arrays may also be given as one named tuple."""

    def __init__(self, together=None, **arrays):
        for name, array in (arrays if together is None else together._asdict()).items():
            setattr(self, name, array)


cdef class State(Arrays):
    """The arrays of one run (see `state.EngineState`)."""

    cdef public Globals[::1] g
    cdef public Job[::1] jobs
    cdef public Node[::1] nodes
    cdef public Group[::1] groups
    cdef public Domain[::1] domains
    cdef public JobClass[::1] job_classes
    cdef public Queue[::1] queues
    cdef public Allocation[::1] allocations
    cdef public uint64_t[::1] bits
    cdef public uint64_t[::1] tops
    cdef public Entry[::1] events
    cdef public int32_t[::1] event_at
    cdef public Entry[::1] waiting
    cdef public int32_t[::1] waiting_at
    cdef public Entry[::1] eviction_queue
    cdef public int32_t[::1] eviction_at
    cdef public Change[::1] changes
    cdef public int64_t[::1] overheads
    cdef public int64_t[::1] thresholds
    cdef public int64_t[::1] level_values
    cdef public int32_t[:, ::1] spread
    cdef public LogRow[::1] log
    cdef public Sample[::1] samples
    cdef public int32_t[::1] touched
    cdef public int32_t[::1] scratch
    cdef public int32_t[::1] evicted
    cdef public int32_t[::1] active
    cdef public int32_t[::1] loosened
    cdef public int32_t[::1] broken


cdef struct JobFacts:
    # The facts that a key may use, in milliseconds, GPUs and GPU * ms.
    int64_t submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value


cdef class Key:
    """A key. Called from Python, it takes the seven facts in order."""

    cdef int64_t of(self, JobFacts* job) except? -1:
        raise NotImplementedError

    def __call__(
        self,
        int64_t submit_ms,
        int64_t gpus,
        int64_t estimate_ms,
        int64_t remaining_ms,
        int64_t attained_gpu_ms,
        int64_t level,
        int64_t value,
    ):
        cdef JobFacts job = JobFacts(submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value)
        return self.of(&job)


cdef class PythonKey(Key):
    """A Python function as a key. An exception from it ends the run."""

    cdef object function

    def __init__(self, function):
        self.function = function

    cdef int64_t of(self, JobFacts* job) except? -1:
        return self.function(
            job.submit_ms,
            job.gpus,
            job.estimate_ms,
            job.remaining_ms,
            job.attained_gpu_ms,
            job.level,
            job.value,
        )


EXAMPLES |= {
    "Job": <Job[:1]><Job*>_row,
    "Node": <Node[:1]><Node*>_row,
    "Group": <Group[:1]><Group*>_row,
    "Domain": <Domain[:1]><Domain*>_row,
    "JobClass": <JobClass[:1]><JobClass*>_row,
    "Queue": <Queue[:1]><Queue*>_row,
    "Allocation": <Allocation[:1]><Allocation*>_row,
    "Entry": <Entry[:1]><Entry*>_row,
    "Change": <Change[:1]><Change*>_row,
    "ViewRow": <ViewRow[:1]><ViewRow*>_row,
    "LogRow": <LogRow[:1]><LogRow*>_row,
    "Sample": <Sample[:1]><Sample*>_row,
    "Globals": <Globals[:1]><Globals*>_row,
}
