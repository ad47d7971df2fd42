# Evict jobs of tenants above their quota, for a job whose tenant is entitled to GPUs.
#
# We set victims aside one by one, youngest first within a tenant, until the job fits, and put back those that are not
# needed. If the job does not fit, all return exactly to where they were. In one instant, a job is evicted at most once,
# and an evicted job evicts no other, so a pass always ends.

cpdef enum:
    RECLAIM_NEVER = 0
    RECLAIM_OVERDRAWN = 1
    RECLAIM_COHORT = 2
# The jobs that may be evicted: jobs of lower priority, or also newer jobs of equal priority (own) or any jobs (others).
cdef enum:
    _LOWER = 1
    _MORE = 2
# The rules for choosing victims. The last two are the rules of fair sharing.
cdef enum:
    _OVERDRAWN = 0
    _CLASSIC = 1
    _FAIR_FIRST = 2
    _FAIR_SECOND = 3
# Bits of a time in the eviction order, enough for 139 years.
cdef enum:
    _TIME_BITS = 42


cdef inline int64_t seniority(Claim* claim, Job* job):
    """Return the position of a running job in the eviction order: lowest priority first, then the youngest run."""
    return (claim.priority << _TIME_BITS) - job.begun


cdef inline int reclaim_move(State s, TenantBooks books, int64_t v, int64_t sign) except -1:
    """Set a running job aside (-1), or put it back where it was (1)."""
    cdef Job* job = &s.jobs[v]
    cdef int64_t d = s.job_classes[job.job_class].domain
    if sign < 0:
        release(s, job, d)
    else:
        hold_again(s, job, d)
    cdef Account* account = &books.accounts[job.tenant]
    accounts_charge(&books.rules[0], books.pools, books.claims, account, v, sign * job.gpus, s.g[0].now)


cdef inline int64_t next_account(
    TenantBooks books, Entry[::1] eviction_queue, int64_t a, bint fair, int64_t own, int64_t others
):
    """Return the account of the next victim, or NONE."""
    cdef int64_t b
    cdef Account* account
    cdef Entry* first
    cdef Entry* other
    cdef Pool* pool = &books.pools[books.accounts[a].pool]
    cdef int64_t best = NONE
    if others:
        for b in range(pool.low, pool.high):
            account = &books.accounts[b]
            if b == a or account.eviction_size == 0 or account.use <= account.quota:
                continue
            if best == NONE:
                best = b
            elif fair:
                if account.share > books.accounts[best].share:
                    best = b
            else:
                first = &eviction_queue[account.eviction_base]
                other = &eviction_queue[books.accounts[best].eviction_base]
                if first.key < other.key or (first.key == other.key and first.job < other.job):
                    best = b
    cdef Account* mine = &books.accounts[a]
    if own and mine.eviction_size > 0 and (best == NONE or (fair and mine.share > books.accounts[best].share)):
        best = a
    return best


cdef inline bint reclaim_may_evict(
    TenantBooks books,
    int64_t a,
    int64_t gpus,
    int64_t j,
    int64_t v,
    Job* victim,
    int64_t rule,
    int64_t own,
    int64_t others,
    int64_t below,
):
    """Return whether waiting job j may replace running job v, which has run for some time."""
    cdef int64_t mine, its
    cdef Account* account = &books.accounts[victim.tenant]
    if rule == _OVERDRAWN:
        return account.use - victim.gpus >= account.quota
    mine, its = books.claims[j].priority, books.claims[v].priority
    if victim.tenant == a:
        return its < mine or (own == _MORE and its == mine and v > j)
    if its >= below or (others == _LOWER and its >= mine):
        return False
    if rule == _CLASSIC:
        return True
    cdef int64_t after = above(&books.accounts[a], books.accounts[a].use + gpus)
    if rule == _FAIR_FIRST:
        return after <= above(account, account.use - victim.gpus)
    return after < above(account, account.use)


cdef inline bint ends_with(
    TenantBooks books,
    int64_t a,
    int64_t b,
    int64_t gpus,
    int64_t j,
    int64_t v,
    int64_t rule,
    int64_t own,
    int64_t others,
    int64_t below,
):
    """Return whether no victim of account b, from its first victim v on, may be evicted."""
    cdef int64_t mine, its
    mine, its = books.claims[j].priority, books.claims[v].priority
    if b == a:
        return its > mine or (own == _LOWER and its == mine)
    if rule == _CLASSIC:
        return its >= below or (others == _LOWER and its >= mine)
    return above(&books.accounts[a], books.accounts[a].use + gpus) >= books.accounts[b].share


cdef inline bint reclaim_has_place(
    State s, TenantBooks books, int64_t a, int64_t j, JobClass* job_class, int64_t rule, int64_t borrow
):
    """Return whether the job could start now, without starting it."""
    cdef Pool* pool
    cdef Account* account = &books.accounts[a]
    if rule != _OVERDRAWN:
        if not borrow and account.use + job_class.gpus > account.quota:
            return False
        pool = &books.pools[account.pool]
        if room(&books.rules[0], pool, account) < job_class.gpus or not has_resources(
            &books.rules[0], pool, books.claims, j
        ):
            return False
    if s.domains[job_class.domain].free < job_class.gpus or take(s, j, job_class) == 0:
        return False
    release(s, &s.jobs[j], job_class.domain)
    drop_allocation(s, &s.jobs[j])
    return True


cdef inline int reclaim_evict(State s, TenantBooks books, Key key, int64_t v) except -1:
    """Requeue a job that was set aside."""
    cdef Globals* g = &s.g[0]
    cdef TenantRules* rules = &books.rules[0]
    cdef int64_t log = max(g.log_size, 0)
    suspend(s, key, v)
    cdef Job* job = &s.jobs[v]
    job.evicted = log + 1
    s.evicted[g.evicted] = v
    g.evicted += 1
    cdef Account* account = &books.accounts[job.tenant]
    line_up(books.pools, books.accounts, books.line, job.tenant)
    if rules.attributed:
        settle_account(rules, account, g.now)
        books.claims[v].mark = account.over
    books.claims[v].tries = books.claims[v].out = 0
    if rules.attempt > 0 and s.job_classes[job.job_class].relaxed != NONE:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + rules.attempt) * 4 + KIND_TIMER, v)
        g.event_size += 1


cdef inline int conclude(State s, TenantBooks books, Key key, int64_t count, bint found) except -1:
    """Evict the victims if the job now has a place, and put all other jobs back into the eviction queue."""
    cdef int64_t i, v, rank
    cdef Account* account
    cdef Globals* g = &s.g[0]
    for i in range(count):
        v = s.scratch[i]
        if v >= 0 and found:
            reclaim_evict(s, books, key, v)
            continue
        if v >= 0:
            reclaim_move(s, books, v, 1)
        v = max(v, ~v)
        account = &books.accounts[s.jobs[v].tenant]
        rank = seniority(&books.claims[v], &s.jobs[v])
        heap_push(s.eviction_queue, s.eviction_at, account.eviction_base, account.eviction_size, rank, g.jobs - 1 - v)
        account.eviction_size += 1


cdef inline bint attempt(
    State s,
    TenantBooks books,
    Key key,
    int64_t a,
    int64_t j,
    JobClass* job_class,
    int64_t rule,
    int64_t own,
    int64_t others,
    int64_t below,
    int64_t borrow,
    int64_t lasting,
):
    """Evict by one rule until the job has a place; change nothing and return False if it cannot get one.

    Victims of other tenants have a priority below `below`. With `borrow`, the job's tenant may end above its quota, but
    not once a victim of another tenant has a priority of at least `lasting`. Victims that are not needed are put back,
    the last one first.
    """
    cdef int64_t b, v
    cdef Account* account
    cdef Job* job
    cdef bint placed
    cdef Globals* g = &s.g[0]
    cdef bint fair = rule == _FAIR_FIRST or rule == _FAIR_SECOND
    cdef int64_t count = 0
    cdef int64_t at = NONE
    cdef bint found = False
    # In `scratch`, v is a victim and ~v is a job that stays.
    while True:
        if not found:
            b = next_account(books, s.eviction_queue, a, fair, own, others)
            if b == NONE:
                break
            account = &books.accounts[b]
            v = g.jobs - 1 - s.eviction_queue[account.eviction_base].job
            if rule != _OVERDRAWN and ends_with(books, a, b, job_class.gpus, j, v, rule, own, others, below):
                if b == a:
                    own = 0
                else:
                    others = 0
                continue
            heap_pop(s.eviction_queue, s.eviction_at, account.eviction_base, account.eviction_size)
            account.eviction_size -= 1
            job = &s.jobs[v]
            s.scratch[count] = ~v
            count += 1
            if job.begun == g.now or not reclaim_may_evict(
                books, a, job_class.gpus, j, v, job, rule, own, others, below
            ):
                continue
            s.scratch[count - 1] = v
            if lasting != NONE and b != a and books.claims[v].priority >= lasting:
                borrow = 0
            reclaim_move(s, books, v, -1)
        else:
            while at >= 0 and s.scratch[at] < 0:
                at -= 1
            if at < 0:
                break
            v = s.scratch[at]
            reclaim_move(s, books, v, 1)
        placed = reclaim_has_place(s, books, a, j, job_class, rule, borrow)
        if found:
            if placed:
                s.scratch[at] = ~v
            else:
                reclaim_move(s, books, v, -1)
        elif placed:
            found = True
            at = count - 1
        at -= 1
    conclude(s, books, key, count, found)
    return found


cdef inline bint has_right(State s, TenantBooks books, int64_t a, int64_t j, JobClass* job_class, bint allowed):
    """Return whether a job may evict at all and could free enough GPUs in this way."""
    cdef int64_t v
    cdef TenantRules* rules = &books.rules[0]
    cdef Account* account = &books.accounts[a]
    cdef Pool* pool = &books.pools[account.pool]
    cdef int64_t free = s.domains[job_class.domain].free
    if rules.reclaim == RECLAIM_OVERDRAWN:
        if account.use + job_class.gpus > account.quota or free + pool.over < job_class.gpus:
            return False
        return pool.use * PPM >= rules.theta * (pool.use + free)
    if allowed:
        return False
    cdef int64_t within = rules.fair or rules.borrowing or account.use < account.quota
    if rules.others and within and pool.over - max(account.use - account.quota, 0) > 0:
        return True
    if rules.own and account.eviction_size > 0:
        # The job that ranks first has the lowest priority.
        v = s.g[0].jobs - 1 - s.eviction_queue[account.eviction_base].job
        return books.claims[v].priority < books.claims[j].priority + (rules.own == _MORE)
    return False


cdef inline bint reclaim(State s, TenantBooks books, Key key, int64_t a, int64_t j, JobClass* job_class, bint allowed):
    """Evict jobs for a waiting job that did not start; return whether it now has a place. If not, nothing changes.

    `allowed` means that the quota was large enough and only a place was missing; a cohort then evicts no job.
    """
    cdef int64_t step, rule, own, others, below, borrow, lasting, only_once
    cdef TenantRules* rules = &books.rules[0]
    if not has_right(s, books, a, j, job_class, allowed):
        return False
    cdef bint within = books.accounts[a].use < books.accounts[a].quota
    cdef int64_t priority = books.claims[j].priority
    for step in range(2):
        rule, own, others, below, borrow, lasting = _OVERDRAWN, 0, 1, LAST_SHARE, 1, NONE
        if rules.reclaim == RECLAIM_COHORT:
            rule, own, others = _CLASSIC, rules.own, rules.others
            if rules.fair:
                rule = _FAIR_SECOND if step else _FAIR_FIRST
            elif rules.borrowing:
                lasting = min(priority, rules.cap + 1) if rules.cap >= 0 else priority
                below = below if within else lasting
            elif step == 0:
                borrow = 0
                others = others if within else 0
            else:
                others = 0
        only_once = rule == _OVERDRAWN or (rules.borrowing and not rules.fair)
        if (step > 0 and only_once) or not (own or others):
            continue
        if attempt(s, books, key, a, j, job_class, rule, own, others, below, borrow, lasting):
            return True
    return False
