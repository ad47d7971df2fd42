# The arrays that a run with tenants needs in addition to the engine's (see `tenant_books`).


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
    """The accounts of tenants (see `tenant_books.TenantBooks`)."""

    cdef public TenantRules[::1] rules
    cdef public Account[::1] accounts
    cdef public Pool[::1] pools
    cdef public Claim[::1] claims
    cdef public int32_t[::1] line
    cdef public int32_t[::1] kind
    cdef public int64_t[::1] refused
    cdef public int64_t[:, :, ::1] limits
    cdef public int64_t[::1] limit_ms


EXAMPLES |= {
    "TenantRules": <TenantRules[:1]><TenantRules*>_row,
    "Account": <Account[:1]><Account*>_row,
    "Pool": <Pool[:1]><Pool*>_row,
    "Claim": <Claim[:1]><Claim*>_row,
}
