# The scheduling pass of ordering policies, which start jobs by key, with or without eviction.
#
# Waiting jobs of one class share a queue, and only the first job of a queue can be the next to start. A pass therefore
# looks at queues, not at jobs. A queue whose first job did not fit is blocked until GPUs become free, a node changes, a
# level rises, an earlier job evicts others, or another job becomes its first. Nothing else can make room: the set of
# jobs that it could evict only shrinks.


cdef inline int64_t first_queue(State s, bint blocked, int64_t low, int64_t high):
    """Return the queue whose first job has the smallest key, or NONE. `blocked` includes blocked queues."""
    cdef int64_t q
    cdef Queue* queue
    cdef Entry* entry
    cdef int64_t best = NONE
    cdef int64_t best_key = 0
    cdef int64_t best_job = 0
    for q in range(low, high):
        queue = &s.queues[q]
        if queue.size == 0 or (queue.blocked and not blocked):
            continue
        entry = &s.waiting[queue.base + queue.head]
        if best == NONE or entry.key < best_key or (entry.key == best_key and entry.job < best_job):
            best, best_key, best_job = q, entry.key, entry.job
    return best


cdef inline int64_t take(State s, int64_t j, JobClass* job_class):
    """Allocate GPUs to a job without any; return its number of nodes (1 if by count), or 0 if it does not fit."""
    cdef Globals* g = &s.g[0]
    if not g.by_count:
        return place_gang(s, j, job_class)
    cdef Domain* domain = &s.domains[job_class.domain]
    if domain.free < job_class.gpus:
        return 0
    domain.free -= job_class.gpus
    g.busy += job_class.gpus
    g.free -= job_class.gpus
    return 1


cdef int64_t take_apart(State s, int64_t j, JobClass* job_class):
    """Like `take`, but compiled once for all callers."""
    return take(s, j, job_class)


cdef inline int64_t take_again(State s, int64_t j, JobClass* job_class):
    """Like `take`, but a job evicted in the same pass returns to its old nodes if they still have room."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    if job.evicted and not g.by_count and allocation_fits(s, job.allocation):
        take_allocation(s, job.allocation, 1)
        forgive_stop(s, job)
        return job.nodes
    if s.domains[job_class.domain].free < job_class.gpus:
        return 0
    cdef int64_t old = job.allocation
    job.allocation = NONE
    cdef int64_t nodes = take(s, j, job_class)
    if nodes == 0 or not job.evicted:
        job.allocation = old if nodes == 0 else job.allocation
    elif g.by_count:
        forgive_stop(s, job)
    else:
        move(s, job, old)
    return nodes


cdef inline int move(State s, Job* job, int64_t old) except -1:
    """Record that an evicted job, which had the allocation `old`, continues elsewhere."""
    cdef int64_t fresh = job.allocation
    job.allocation = old
    drop_allocation(s, job)
    job.allocation = fresh
    job.evicted = 0
    job.migrations += 1
    job.overhead += overhead_of(s, job.gpus)
    save(job)


cdef inline int64_t eviction_last_key(State s, int64_t d):
    """Return the current key of the domain's lowest-ranked running job. At least one job must be running."""
    cdef Globals* g = &s.g[0]
    cdef int64_t key = -s.eviction_queue[s.domains[d].eviction_base].key
    return key - g.now if g.drift == DRIFT_TIME else key


cdef inline int eviction_sort(State s, Key key, int64_t d) except -1:
    """Sort a domain's running jobs by their current keys."""
    cdef int64_t size, mirrored
    cdef Job* job
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    for size in range(domain.eviction_size):
        mirrored = s.eviction_queue[domain.eviction_base + size].job
        job = &s.jobs[g.jobs - 1 - mirrored]
        settle(job, g.now)
        job.key = key_now(s, key, job)
        heap_push(s.eviction_queue, s.eviction_at, domain.eviction_base, size, -job.key, mirrored)


cdef inline bint could_free(State s, int64_t d, int64_t j, int64_t wanted):
    """Return whether the free GPUs and the GPUs of running jobs ranked below job j are enough."""
    cdef int64_t i
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    cdef int64_t total = domain.free
    cdef int64_t limit = eviction_limit(s, j)
    for i in range(domain.eviction_base, domain.eviction_base + domain.eviction_size):
        if -s.eviction_queue[i].key > limit:
            total += held(&s.jobs[g.jobs - 1 - s.eviction_queue[i].job])
            if total >= wanted:
                return True
    return False


cdef inline bint may_evict(State s, Key key, int64_t d, int64_t j):
    """Return whether any running jobs rank below job j, and sort them if so."""
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    if g.preemptive == 0 or domain.eviction_size == 0:
        return False
    if not domain.eviction_sorted:
        eviction_sort(s, key, d)
        domain.eviction_sorted = 1
    return eviction_last_key(s, d) > s.jobs[j].key


cdef inline int64_t next_victims(State s, int64_t d, int64_t j, JobClass* job_class, int64_t gone):
    """Append the jobs to release next for waiting job j to the `gone` jobs in `scratch`; return their new number."""
    cdef int64_t count
    cdef Domain* domain = &s.domains[d]
    if gone == 0:
        count = first_victims(s, d, j, job_class)
        if count != UNKNOWN:
            return count
        if not could_free(s, d, j, job_class.gpus):
            return 0
    if domain.eviction_size == 0 or eviction_last_key(s, d) <= s.jobs[j].key:
        return gone
    s.scratch[gone] = s.g[0].jobs - 1 - s.eviction_queue[domain.eviction_base].job
    return gone + 1


cdef inline int settle_victims(State s, Key key, int64_t d, int64_t j, int64_t count, bint placed) except -1:
    """Evict the released jobs that had GPUs on job j's nodes, and give the others their GPUs back."""
    cdef int64_t i, victim
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    cdef int64_t evicted = g.evicted
    for i in range(count):
        victim = s.scratch[i]
        if not placed or not (g.by_count or meet(s, s.jobs[victim].allocation, s.jobs[j].allocation)):
            hold_again(s, &s.jobs[victim], d)
            eviction_push_again(s, victim, domain)
        else:
            s.evicted[g.evicted] = victim
            g.evicted += 1
    for i in range(evicted, g.evicted):
        victim = s.evicted[i]
        suspend(s, key, victim)
        s.jobs[victim].evicted = max(g.log_size, 1)
    if placed:
        unblock_after(s, domain.queue_low, domain.queue_high, s.jobs[j].key)


cdef inline bint meet(State s, int64_t first, int64_t second):
    """Return whether two allocations share a node."""
    cdef int64_t other
    cdef int64_t link = first
    while link != NONE:
        other = second
        while other != NONE:
            if s.allocations[other].node == s.allocations[link].node:
                return True
            other = s.allocations[other].next
        link = s.allocations[link].next
    return False


cdef inline int hold_again(State s, Job* job, int64_t d) except -1:
    """Give a job that was just released its GPUs back."""
    cdef Globals* g = &s.g[0]
    if g.by_count:
        s.domains[d].free -= job.gpus
        g.busy += job.gpus
        g.free -= job.gpus
    else:
        take_allocation(s, job.allocation, 1)


cdef inline int settle_evictions(State s, Key key) except -1:
    """Record the results of the pass's evictions. Jobs that did not start again were preempted."""
    cdef int64_t i, j, cost, moved
    cdef Job* job
    cdef Globals* g = &s.g[0]
    for i in range(g.evicted):
        j = s.evicted[i]
        job = &s.jobs[j]
        if job.evicted == 0:
            continue
        job.evicted = 0
        drop_allocation(s, job)
        job.preemptions += 1
        save(job)
        cost = overhead_of(s, job.gpus)
        if cost > 0 and job.status == WAITING:
            job.overhead += cost
            moved = key_now(s, key, job)
            # Some keys include the preemption cost, so a job that was never tried may now be first.
            if moved != job.key:
                if s.waiting_at[j] == 0:
                    s.queues[s.job_classes[job.job_class].queue].blocked = 0
                dequeue(s, j)
                enqueue(s, j, moved)
    g.evicted = 0


cdef inline bint patience_ended(State s, int64_t low, int64_t high):
    """Return whether a queue whose first job cannot start contains a job that has waited longer than the age cap."""
    cdef int64_t q
    cdef Queue* queue
    cdef Job* job
    cdef Globals* g = &s.g[0]
    for q in range(low, high):
        queue = &s.queues[q]
        if queue.size > 0 and queue.blocked:
            job = &s.jobs[s.waiting[queue.base + queue.head].job]
            if g.now - job.submit >= g.age_cap:
                return True
    return False


cdef inline int unblock_after(State s, int64_t low, int64_t high, int64_t key) except -1:
    """Try the queues behind an evicting job again: the evicted jobs may have had more GPUs than it took."""
    cdef int64_t q
    cdef Queue* queue
    for q in range(low, high):
        queue = &s.queues[q]
        if queue.size > 0 and queue.blocked and s.waiting[queue.base + queue.head].key >= key:
            queue.blocked = 0


cdef inline bint could_host(State s, int64_t j, JobClass* job_class, int64_t index):
    """Return whether a node could be part of job j's placement if every job ranked below j were evicted from it."""
    cdef Node* node = &s.nodes[index]
    cdef Group* group = &s.groups[node.group]
    if node.up == 0 or job_class.scope > 0:
        return job_class.scope > 0
    cdef Domain* domain = &s.domains[group.domain]
    if not accepts(job_class, node.group, domain.group_low):
        return False
    cdef int64_t room = room_without(s, index, eviction_limit(s, j))
    cdef int64_t largest = largest_node(s, job_class, domain, group.first)
    if job_class.gpus <= largest:
        return room >= job_class.gpus
    cdef int64_t rest = job_class.gpus % largest
    return room == largest or (rest > 0 and room >= rest)


cdef inline int unblock_where_loose(State s, int64_t d, int64_t low, int64_t high) except -1:
    """Try queues again if enough nodes became looser for their first job.

    All other nodes have at most as much room as when the job was last tried.
    """
    cdef int64_t q, j, i, index
    cdef Queue* queue
    cdef JobClass* job_class
    cdef Globals* g = &s.g[0]
    for q in range(low, high):
        queue = &s.queues[q]
        if queue.size == 0 or not queue.blocked:
            continue
        j = s.waiting[queue.base + queue.head].job
        job_class = &s.job_classes[s.jobs[j].job_class]
        for i in range(g.loosened):
            index = s.loosened[i]
            if s.groups[s.nodes[index].group].domain == d and could_host(s, j, job_class, index):
                queue.blocked -= 1
                if not queue.blocked:
                    break


cdef inline int unblock(State s, int64_t d, int64_t low, int64_t high, bint evicts) except -1:
    """Try the queues of a domain again if they may have room that they did not have when they were blocked."""
    cdef int64_t q
    cdef Globals* g = &s.g[0]
    if s.domains[d].freed or g.age_cap > 0 or g.drift == DRIFT_ANY:
        for q in range(low, high):
            s.queues[q].blocked = 0
    elif evicts and g.loosened > 0:
        unblock_where_loose(s, d, low, high)


cdef inline int64_t make_room(State s, Key key, int64_t d, int64_t j):
    """Allocate GPUs to a waiting job, evicting lower-ranked jobs if needed; return its number of nodes, or 0.

    Release the lowest-ranked job first. Released jobs without GPUs on the chosen nodes just continue. If all
    lower-ranked jobs together are not enough, evict none.
    """
    cdef int64_t nodes, count, i
    cdef JobClass* job_class = &s.job_classes[s.jobs[j].job_class]
    cdef int64_t gone = 0
    while True:
        nodes = take_again(s, j, job_class)
        if nodes > 0 or (gone == 0 and not may_evict(s, key, d, j)):
            break
        count = next_victims(s, d, j, job_class, gone)
        if count == gone:
            break
        for i in range(gone, count):
            eviction_remove(s, s.scratch[i], d)
            release(s, &s.jobs[s.scratch[i]], d)
        gone = count
    if gone > 0:
        settle_victims(s, key, d, j, gone, nodes > 0)
    return nodes


cdef inline int list_pass(State s, Key key, int64_t d, bint evicts) except -1:
    """Start all jobs of a domain that can start. `evicts` means that a waiting job may stop running jobs."""
    cdef int64_t low, high, q, j, nodes
    cdef Queue* queue
    cdef JobClass* job_class
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    low, high = domain.queue_low, domain.queue_high
    unblock(s, d, low, high, evicts)
    domain.eviction_sorted = g.drift != DRIFT_ANY
    while True:
        q = first_queue(s, False, low, high)
        if q == NONE or (g.age_cap > 0 and patience_ended(s, low, high)):
            break
        queue = &s.queues[q]
        j = s.waiting[queue.base + queue.head].job
        if not evicts:
            job_class = &s.job_classes[s.jobs[j].job_class]
            nodes = take(s, j, job_class) if domain.free >= job_class.gpus else 0
        else:
            g.lacking = 1
            nodes = make_room(s, key, d, j)
        if nodes > 0:
            dequeue(s, j)
            start(s, key, j, nodes, g.speed)
            if g.capped:
                s.jobs[j].stopped = g.begun
                g.begun = j
            continue
        queue.blocked = g.lacking
        if not g.skip:
            break
    if evicts and g.evicted > 0:
        settle_evictions(s, key)
    domain.freed = 0


cdef inline bint decides_later(State s):
    """Return whether requested passes wait for the end of the decision interval; if so, set the clock to it."""
    cdef Globals* g = &s.g[0]
    g.wake = NONE
    if g.interval == 0 or g.touched == 0 or g.now % g.interval == 0:
        return False
    g.wake = (g.now // g.interval + 1) * g.interval
    return True


def run_ordered(State s, Key key, bint evicts, int64_t instants):
    """Run at most `instants` instants of an ordering policy; return False if no event is left.

    `evicts` means that a waiting job may stop running jobs.
    """
    cdef int64_t _, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        if decides_later(s):
            continue
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            list_pass(s, key, d, evicts)
        g.touched = 0
        g.loosened = 0
    return True
