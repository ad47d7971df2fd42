# Accounts of tenants: what each tenant holds, has held and may hold, and whether its jobs wait.
#
# An account is a tenant in a domain. Functions here take single records if possible, which keeps compilation short.

cpdef enum:
    PICK_USAGE = 0
    PICK_DOMINANT = 1
    PICK_CYCLE = 2
cpdef enum:
    LIMIT_NONE = 0
    LIMIT_OWN = 1
    LIMIT_COHORT = 2
# The share of a tenant without weight: it comes after all others.
cdef int64_t LAST_SHARE = 1 << 62
# At each period, past use is multiplied by a fixed number of parts of 2^14.
cpdef enum:
    DECAY_BITS = 14
cdef enum:
    _SHARE = 1_000_000_000
cdef enum:
    _DECAYED_SHARE = 1000
cdef enum:
    _PERIODS = 1024


cdef inline int settle_account(TenantRules* rules, Account* account, int64_t now) except -1:
    """Bring an account's past use up to date; call this before its use or its quota changes."""
    cdef int64_t periods, _
    cdef int64_t elapsed = now - account.settled
    if elapsed == 0:
        return 0
    if account.use >= account.quota:
        account.over += elapsed
    cdef int64_t period = rules.period
    if period > 0:
        periods = now // period - account.settled // period
        if periods == 0:
            account.decayed += account.use * elapsed
        else:
            account.decayed += account.use * (period - account.settled % period)
            account.decayed = (account.decayed * rules.keep) >> DECAY_BITS
            # After this many periods nothing is left of the earlier use.
            for _ in range(min(periods - 1, _PERIODS)):
                account.decayed = ((account.decayed + account.use * period) * rules.keep) >> DECAY_BITS
            account.decayed += account.use * (now % period)
    account.settled = now


cdef inline int64_t above(Account* account, int64_t use):
    """Return the share above its quota that an account would have with the given use [GPUs * 10^9 / weight]."""
    if use <= account.quota:
        return 0
    return (use - account.quota) * _SHARE // account.weight if account.weight > 0 else LAST_SHARE


cdef inline int accounts_refresh(TenantRules* rules, Pool* pool, Account* account) except -1:
    """Compute an account's share from what it holds; the account with the smallest share goes first."""
    if rules.pick == PICK_CYCLE:
        account.share = above(account, account.use)
        return 0
    if account.weight <= 0:
        account.share = LAST_SHARE
        return 0
    cdef int64_t most = account.use * _SHARE
    if rules.pick == PICK_DOMINANT:
        most //= max(pool.gpus, 1)
        if pool.cpu_all > 0:
            most = max(most, account.cpu * _SHARE // pool.cpu_all)
        if pool.memory_all > 0:
            most = max(most, account.memory * _SHARE // pool.memory_all)
    account.share = most // account.weight


cdef inline int64_t share_of(TenantRules* rules, Account* account, int64_t now):
    """Return an account's current share: of what it holds, or of what it has held if past use counts."""
    if rules.period == 0 or account.weight <= 0:
        return account.share
    settle_account(rules, account, now)
    return account.decayed * _DECAYED_SHARE // account.weight


cdef inline int accounts_count(Pool* pool, Account* account, int64_t sign) except -1:
    """Add an account to the totals of its pool, or subtract it (-1)."""
    pool.use += sign * account.use
    pool.over += sign * max(account.use - account.quota, 0)
    pool.lend += sign * account.lend
    pool.lent += sign * max(account.use - (account.quota - account.lend), 0)


cdef inline int accounts_charge(
    TenantRules* rules, Pool[::1] pools, Claim[::1] claims, Account* account, int64_t j, int64_t gpus, int64_t now
) except -1:
    """Record that a job takes GPUs, CPUs and memory, or frees them (sign below 0)."""
    cdef int64_t sign
    settle_account(rules, account, now)
    cdef Pool* pool = &pools[account.pool]
    accounts_count(pool, account, -1)
    account.use += gpus
    accounts_count(pool, account, 1)
    if gpus < 0:
        account.eased = 1
    if rules.resources:
        sign = 1 if gpus > 0 else -1
        account.cpu += sign * claims[j].cpu
        account.memory += sign * claims[j].memory
        pool.cpu -= sign * claims[j].cpu
        pool.memory -= sign * claims[j].memory
    accounts_refresh(rules, pool, account)


cdef inline int line_up(Pool[::1] pools, Account[::1] accounts, int32_t[::1] line, int64_t a) except -1:
    """Count a job that joined a queue."""
    cdef Pool* pool
    cdef Account* account = &accounts[a]
    account.stuck = 0
    account.waiting += 1
    if account.waiting == 1:
        pool = &pools[account.pool]
        account.place = pool.open
        line[pool.low + pool.open] = a
        pool.open += 1


cdef inline int accounts_leave_line(Pool[::1] pools, Account[::1] accounts, int32_t[::1] line, int64_t a) except -1:
    """Count a job that left a queue."""
    cdef Pool* pool
    cdef int64_t moved
    cdef Account* account = &accounts[a]
    account.waiting -= 1
    if account.waiting == 0:
        pool = &pools[account.pool]
        pool.open -= 1
        moved = line[pool.low + pool.open]
        line[pool.low + account.place] = moved
        accounts[moved].place = account.place


cdef inline int64_t room(TenantRules* rules, Pool* pool, Account* account):
    """Return the number of GPUs that an account may still take, whether or not they are free.

    In a cohort an account keeps what it does not lend. The lent parts of all accounts form a pool; an account takes its
    further use from this pool, up to the amount that it lends itself plus its borrowing limit.
    """
    if rules.limit == LIMIT_NONE:
        return ANY_NUMBER
    if rules.limit == LIMIT_OWN:
        return account.quota - account.use
    cdef int64_t kept = account.quota - account.lend
    cdef int64_t lent = min(pool.lend - pool.lent, account.lend - max(account.use - kept, 0) + account.borrow)
    return max(kept - account.use, 0) + max(lent, 0)


cdef inline bint has_resources(TenantRules* rules, Pool* pool, Claim[::1] claims, int64_t j):
    """Return whether a domain has the CPUs and the memory that a job requests."""
    if rules.resources == 0:
        return True
    return (pool.cpu_all < 0 or claims[j].cpu <= pool.cpu) and (pool.memory_all < 0 or claims[j].memory <= pool.memory)
