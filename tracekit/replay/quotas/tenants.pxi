# The scheduling pass of policies with tenants: repeatedly pick a tenant and start its first job if allowed.

# The cause that blocks a queue: no place or resources (1), or its tenant's quota (2).
cdef enum:
    _BY_QUOTA = 2


cdef inline int tenants_arrive(State s, TenantBooks books, int64_t j, bint begins) except -1:
    """Count a queued job. If its wait begins, record its tenant's past use and schedule the end of its attempt."""
    cdef Account* account
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    cdef Job* job = &s.jobs[j]
    line_up(books.pools, books.accounts, books.line, job.tenant)
    if begins and rules.attributed:
        account = &books.accounts[job.tenant]
        settle_account(rules, account, g.now)
        books.claims[j].mark = account.over
    if begins and rules.attempt > 0:
        books.claims[j].tries = books.claims[j].out = 0
    if rules.attempt > 0 and s.job_classes[job.job_class].relaxed != NONE:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + rules.attempt) * 4 + KIND_TIMER, j)
        g.event_size += 1


cdef inline int rings(State s, TenantBooks books, int64_t j) except -1:
    """End a waiting job's failed attempt, or the pause after it."""
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    cdef Job* job = &s.jobs[j]
    cdef Claim* claim = &books.claims[j]
    cdef bint rests = claim.out == 0 and rules.backoff > 0
    if claim.out == 0:
        dequeue(s, j)
        accounts_leave_line(books.pools, books.accounts, books.line, job.tenant)
        claim.tries += 1
        if claim.tries >= rules.attempts:
            claim.tries = 0
            job.job_class = s.job_classes[job.job_class].relaxed
    claim.out = rests
    if rests:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + rules.backoff) * 4 + KIND_TIMER, j)
        g.event_size += 1
    else:
        enqueue(s, j, job.key)
        tenants_arrive(s, books, j, False)


cdef inline int read_instant(State s, TenantBooks books, Key key, bint evicts) except -1:
    """Record the events of this instant: ends, submissions and attempts."""
    cdef int64_t i, j
    cdef Job* job
    cdef Account* account
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    while g.ended != NONE:
        j = g.ended
        job = &s.jobs[j]
        g.ended = job.stopped
        account = &books.accounts[job.tenant]
        accounts_charge(rules, books.pools, books.claims, account, j, -job.gpus, g.now)
        if evicts:
            heap_remove(s.eviction_queue, s.eviction_at, account.eviction_base, account.eviction_size, g.jobs - 1 - j)
            account.eviction_size -= 1
    take_back(s, key)
    for i in range(g.broken):
        tenants_arrive(s, books, s.broken[i], True)
    for j in range(rules.seen, g.submitted):
        if s.jobs[j].status == WAITING:
            tenants_arrive(s, books, j, True)
    rules.seen = g.submitted
    while g.rung != NONE:
        j = g.rung
        g.rung = s.jobs[j].stopped
        rings(s, books, j)


cdef inline bint earlier(Queue[::1] queues, Entry[::1] waiting, int64_t q, int64_t other):
    """Return whether the first job of one queue goes before the first job of another."""
    cdef Entry* a = &waiting[queues[q].base + queues[q].head]
    cdef Entry* b = &waiting[queues[other].base + queues[other].head]
    return a.key < b.key or (a.key == b.key and a.job < b.job)


cdef inline int64_t line(State s, TenantRules* rules, Account* account, int64_t most):
    """Return the queue of the tenant's next job. If its jobs may pass each other, the job has at most `most` GPUs.

    Return NONE if no job is next. If the pass ends at the first tenant that cannot start, only the tenant's first job
    counts.
    """
    cdef int64_t q
    cdef Queue* queue
    if rules.across:
        return account.queue_low
    cdef int64_t best = NONE
    for q in range(account.queue_low, account.queue_high):
        queue = &s.queues[q]
        if queue.size == 0 or queue.blocked or queue.gpus > most:
            continue
        if best == NONE or earlier(s.queues, s.waiting, q, best):
            best = q
    return best


cdef inline int64_t pick(State s, TenantBooks books, bint evicts, int64_t d):
    """Return the account with the smallest share that has a job to try. Ties go to the earlier job."""
    cdef int64_t i, a, share, most, q
    cdef Account* account
    cdef int64_t now = s.g[0].now
    cdef TenantRules* rules = &books.rules[0]
    cdef Pool* pool = &books.pools[d]
    cdef int64_t best = NONE
    cdef int64_t best_share = 0
    cdef int64_t best_queue = NONE
    for i in range(pool.open):
        a = books.line[pool.low + i]
        account = &books.accounts[a]
        if account.stuck:
            continue
        share = share_of(rules, account, now)
        if best != NONE and share > best_share:
            continue
        most = ANY_NUMBER
        if not evicts:
            most = min(s.domains[d].free, room(rules, pool, account))
        q = line(s, rules, account, most)
        if q == NONE:
            account.stuck = 1
            continue
        if best == NONE or share < best_share or earlier(s.queues, s.waiting, q, best_queue):
            best, best_share, best_queue = a, share, q
    if best != NONE:
        books.accounts[best].candidate = best_queue
    return best


cdef inline int64_t nominate(State s, TenantBooks books, bint evicts, int64_t d):
    """Let every tenant nominate its next job for a cycle; return the number of nominations.

    A tenant that cannot start a job in this pass loses its turn at once.
    """
    cdef int64_t i, q, j, gpus
    cdef Account* account
    cdef TenantRules* rules = &books.rules[0]
    cdef Pool* pool = &books.pools[d]
    cdef int64_t found = 0
    for i in range(pool.open):
        account = &books.accounts[books.line[pool.low + i]]
        account.candidate = NONE
        if account.stuck:
            continue
        q = line(s, rules, account, ANY_NUMBER)
        if q == NONE:
            account.stuck = 1
            continue
        found += 1
        j = s.waiting[s.queues[q].base + s.queues[q].head].job
        gpus = s.jobs[j].gpus
        if not evicts:
            if gpus > room(rules, pool, account):
                s.queues[q].blocked = _BY_QUOTA
                continue
            if gpus > s.domains[d].free:
                s.queues[q].blocked = 1
                if rules.attributed:
                    books.claims[j].refused = 1
                continue
        account.candidate = q
        if rules.fair:
            account.turn = above(account, account.use + gpus)
        else:
            account.turn = account.use + gpus > account.quota
    return found


cdef inline int64_t next_candidate(State s, TenantBooks books, Pool* pool):
    """Return the account whose candidate comes next in a cycle, or NONE if all have had their turn."""
    cdef int64_t i, a
    cdef Account* account
    cdef Account* other
    cdef int64_t best = NONE
    for i in range(pool.open):
        a = books.line[pool.low + i]
        account = &books.accounts[a]
        if account.candidate == NONE:
            continue
        if best != NONE:
            other = &books.accounts[best]
            if account.turn > other.turn:
                continue
            if account.turn == other.turn and not earlier(s.queues, s.waiting, account.candidate, other.candidate):
                continue
        best = a
    return best


cdef inline int64_t try_start(State s, TenantBooks books, Key key, bint evicts, int64_t a, int64_t q):
    """Start the first job of a queue if quota, resources and free nodes allow it, possibly after evictions.

    Return 0 if the job starts, else the cause that blocks the queue.
    """
    cdef int64_t rank
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    cdef int64_t j = s.waiting[s.queues[q].base + s.queues[q].head].job
    cdef Job* job = &s.jobs[j]
    cdef JobClass* job_class = &s.job_classes[job.job_class]
    cdef Account* account = &books.accounts[a]
    cdef Pool* pool = &books.pools[account.pool]
    cdef int64_t kind = books.kind[job.job_class]
    cdef int64_t nodes = 0
    cdef bint allowed = room(rules, pool, account) >= job_class.gpus
    cdef int64_t by = 1 if allowed else _BY_QUOTA
    allowed = allowed and has_resources(rules, pool, books.claims, j)
    cdef bint may_reclaim = job.evicted == 0
    while True:
        # A job that found no place finds none until GPUs become free, whatever its tenant.
        if allowed and s.domains[job_class.domain].free >= job_class.gpus and books.refused[kind] != pool.round:
            nodes = take(s, j, job_class) if not evicts else take_again(s, j, job_class)
            if nodes == 0 and job.evicted == 0:
                books.refused[kind] = pool.round
        if nodes > 0:
            break
        if allowed and rules.attributed:
            books.claims[j].refused = 1
        if not evicts or not may_reclaim or not reclaim(s, books, key, a, j, job_class, allowed):
            return by
        may_reclaim = False
        allowed = True
        pool.round += 1
    dequeue(s, j)
    start(s, key, j, nodes, PPM)
    accounts_leave_line(books.pools, books.accounts, books.line, a)
    accounts_charge(rules, books.pools, books.claims, account, j, job_class.gpus, g.now)
    if rules.attributed:
        books.claims[j].delayed += account.over - books.claims[j].mark
    if evicts:
        rank = seniority(&books.claims[j], job)
        heap_push(s.eviction_queue, s.eviction_at, account.eviction_base, account.eviction_size, rank, g.jobs - 1 - j)
        account.eviction_size += 1
    return 0


cdef inline bint sweep(State s, TenantBooks books, Key key, bint evicts, int64_t d):
    """Let tenants take turns or go in cycles until none can start a job; return whether any job started."""
    cdef int64_t a, q
    cdef TenantRules* rules = &books.rules[0]
    cdef bint cycle = rules.pick == PICK_CYCLE
    cdef bint started = False
    cdef int64_t left = 0
    while True:
        if cycle:
            a = next_candidate(s, books, &books.pools[d])
            if a == NONE:
                left = nominate(s, books, evicts, d)
                if left == 0:
                    return started
                continue
        else:
            a = pick(s, books, evicts, d)
            if a == NONE:
                return started
        q = books.accounts[a].candidate
        books.accounts[a].candidate = NONE
        if s.queues[q].blocked == 0:
            s.queues[q].blocked = try_start(s, books, key, evicts, a, q)
            if s.queues[q].blocked == 0:
                started = True
                continue
        if rules.across:
            return started


cdef inline int tenants_unblock(State s, TenantBooks books, Pool* pool) except -1:
    """Allow every queue to be tried again, except the queues of tenants at their quota that released nothing."""
    cdef int64_t i, q
    cdef Account* account
    cdef bint own = books.rules[0].limit == LIMIT_OWN
    pool.round += 1
    for i in range(pool.open):
        account = &books.accounts[books.line[pool.low + i]]
        account.stuck = 0
        for q in range(account.queue_low, account.queue_high):
            if s.queues[q].blocked == _BY_QUOTA and own and not account.eased:
                continue
            s.queues[q].blocked = 0
        account.eased = 0


cdef inline bint is_full(State s, TenantBooks books, Pool* pool, int64_t d, int64_t use):
    """Return whether a domain is full enough for tenants to reclaim if `use` of its GPUs are in use."""
    return use * PPM >= books.rules[0].theta * (pool.use + s.domains[d].free)


cdef inline int tenants_pass(State s, TenantBooks books, Key key, bint evicts, int64_t d) except -1:
    """Start all jobs of a domain that can start. If jobs may reclaim, one start can make more possible."""
    cdef int64_t over, use
    cdef bint started
    cdef Pool* pool = &books.pools[d]
    cdef bint again = s.domains[d].freed > 0
    while True:
        if again:
            tenants_unblock(s, books, pool)
        over, use = pool.over, pool.use
        started = sweep(s, books, key, evicts, d)
        again = started and (
            pool.over > over or is_full(s, books, pool, d, pool.use) > is_full(s, books, pool, d, use)
        )
        if not evicts or not again:
            break
    if evicts:  # noqa: SIM102 -- decided at compile time
        if s.g[0].evicted > 0:
            settle_evictions(s, key)
    s.domains[d].freed = 0


cdef inline int change_quotas(State s, TenantBooks books) except -1:
    """Apply the quotas that are valid from now on, and check every domain again."""
    cdef int64_t a, d
    cdef Account* account
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    while rules.row + 1 < len(books.limit_ms) and books.limit_ms[rules.row + 1] <= g.now:
        rules.row += 1
        g.events += 1
    for a in range(len(books.accounts)):
        account = &books.accounts[a]
        settle_account(rules, account, g.now)
        accounts_count(&books.pools[account.pool], account, -1)
        account.quota = books.limits[rules.row, a, 0]
        account.weight = books.limits[rules.row, a, 1]
        account.borrow = books.limits[rules.row, a, 2]
        account.lend = books.limits[rules.row, a, 3]
        account.eased = 1
        accounts_count(&books.pools[account.pool], account, 1)
        accounts_refresh(rules, &books.pools[account.pool], account)
    for d in range(len(s.domains)):
        touch(s, d, 1)
    g.wake = books.limit_ms[rules.row + 1] if rules.row + 1 < len(books.limit_ms) else NONE


def run_tenants(State s, TenantBooks books, Key key, bint evicts, int64_t instants):
    """Run at most `instants` instants of a policy with tenants; return False if no event is left.

    `evicts` means that jobs may be evicted.
    """
    cdef int64_t _, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        read_instant(s, books, key, evicts)
        if g.wake == g.now:
            change_quotas(s, books)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            tenants_pass(s, books, key, evicts, d)
        g.touched = 0
    return True


# Accounts of tenants: the GPUs that each tenant uses, has used and may use, and whether its jobs wait.
#
# An account is a tenant in a domain. These functions take single records if possible, to keep compilation short.

cpdef enum:
    PICK_USAGE = 0
    PICK_DOMINANT = 1
    PICK_CYCLE = 2
cpdef enum:
    LIMIT_NONE = 0
    LIMIT_OWN = 1
    LIMIT_COHORT = 2
# The share of a tenant without weight, behind all others.
cdef int64_t LAST_SHARE = 1 << 62
# Each period multiplies past use by a fixed fraction of 2^14.
cpdef enum:
    DECAY_BITS = 14
cdef enum:
    _SHARE = 1_000_000_000
cdef enum:
    _DECAYED_SHARE = 1000
cdef enum:
    _PERIODS = 1024


cdef inline int settle_account(TenantRules* rules, Account* account, int64_t now) except -1:
    """Bring an account's past use up to date. Call this before its use or its quota changes."""
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
    """Compute an account's share from its current use. The account with the smallest share goes first."""
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
    """Return an account's current share, based on its past use if past use counts, or otherwise on its current use."""
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

    In a cohort, an account keeps the GPUs that it does not lend, and the lent parts of all accounts form a pool. Beyond
    its own GPUs, an account uses this pool, up to what it lends itself plus its borrowing limit.
    """
    if rules.limit == LIMIT_NONE:
        return ANY_NUMBER
    if rules.limit == LIMIT_OWN:
        return account.quota - account.use
    cdef int64_t kept = account.quota - account.lend
    cdef int64_t lent = min(pool.lend - pool.lent, account.lend - max(account.use - kept, 0) + account.borrow)
    return max(kept - account.use, 0) + max(lent, 0)


cdef inline bint has_resources(TenantRules* rules, Pool* pool, Claim[::1] claims, int64_t j):
    """Return whether a domain has the CPUs and memory that a job requests."""
    if rules.resources == 0:
        return True
    return (pool.cpu_all < 0 or claims[j].cpu <= pool.cpu) and (pool.memory_all < 0 or claims[j].memory <= pool.memory)
