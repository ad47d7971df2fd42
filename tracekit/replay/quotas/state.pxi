# The arrays that a run with tenants needs in addition to the engine's.


cdef struct TenantRules:
    int64_t pick, across, limit, reclaim, fair, own, others, borrowing, cap, theta, period, keep, attempt, backoff
    int64_t attempts, resources, attributed, row, seen


cdef struct Account:
    int64_t use, quota, weight, borrow, lend, cpu, memory, share, decayed, settled, over, turn
    int32_t waiting, place, stuck, eased, candidate, pool, queue_low, queue_high, eviction_base, eviction_size


cdef struct Pool:
    int64_t low, high, open, gpus, cpu, memory, cpu_all, memory_all, use, over, lend, lent, round


cdef struct Claim:
    int64_t priority, cpu, memory, mark, delayed
    int32_t tries, out, refused


cdef class TenantBooks(Arrays):
    """The arrays that a run with tenants needs in addition to `EngineState`."""

    # TenantRules (1,): the settings, and the time up to which the accounts are current.
    cdef public TenantRules[::1] rules
    # Account of each tenant in each domain, grouped by domain (A,).
    cdef public Account[::1] accounts
    # Pool of each domain, with its accounts and resources (D,).
    cdef public Pool[::1] pools
    # Claim of each job (n,), or a single unused claim if the policy needs none.
    cdef public Claim[::1] claims
    # Accounts with queued jobs, starting at the first account of each domain (A,).
    cdef public int32_t[::1] line
    # Kind of each job class. Either all jobs of one kind find a place, or none do.
    cdef public int32_t[::1] kind
    # Last `round` of the pool in which a kind found no place. A round is a period in which no GPUs become free.
    cdef public int64_t[::1] refused
    # Quota, weight, borrowing limit and lending limit of each account over time (Q, A, 4).
    cdef public int64_t[:, :, ::1] limits
    # Times from which the rows of `limits` apply [ms] (Q,).
    cdef public int64_t[::1] limit_ms


EXAMPLES |= {
    "TenantRules": <TenantRules[:1]><TenantRules*>_row,
    "Account": <Account[:1]><Account*>_row,
    "Pool": <Pool[:1]><Pool*>_row,
    "Claim": <Claim[:1]><Claim*>_row,
}
