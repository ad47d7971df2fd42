# The event loop: the clock, and the events of jobs and nodes. All mechanisms use it.
#
# An instant consists of all events at one time, in the order finish, node change, submission, timer. A scheduling pass
# follows it (`list_pass`, and the passes of the other mechanisms).


cdef inline int touch(State s, int64_t d, int64_t freed) except -1:
    """Request a pass over a domain. `freed` means that jobs without a place may now have one."""
    cdef int64_t place
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    domain.freed |= freed
    if domain.touched == 0:
        domain.touched = 1
        place = g.touched
        while place > 0 and s.touched[place - 1] > d:
            s.touched[place] = s.touched[place - 1]
            place -= 1
        s.touched[place] = d
        g.touched += 1


cdef inline int enqueue(State s, int64_t j, int64_t key) except -1:
    """Queue a waiting job by its key. If it becomes the first of its queue, the queue is tried again."""
    cdef Entry* entry
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    if g.planned:
        return 0
    job.key = key
    cdef Queue* queue = &s.queues[s.job_classes[job.job_class].queue]
    if g.ring:
        entry = &s.waiting[queue.base + queue.head + queue.size]
        entry.key = key
        entry.job = j
        if queue.size == 0:
            queue.blocked = 0
    else:
        heap_push(s.waiting, s.waiting_at, queue.base, queue.size, key, j)
        if s.waiting_at[j] == 0:
            queue.blocked = 0
    queue.size += 1


cdef inline int dequeue(State s, int64_t j) except -1:
    """Remove a waiting job from its queue. In a ring queue, it must be the first job."""
    cdef Globals* g = &s.g[0]
    cdef Queue* queue = &s.queues[s.job_classes[s.jobs[j].job_class].queue]
    if g.ring:
        queue.head += 1
    else:
        heap_remove(s.waiting, s.waiting_at, queue.base, queue.size, j)
    queue.size -= 1


cdef inline int eviction_push(State s, int64_t j, int64_t d, int64_t key) except -1:
    """Add a running job to the jobs that may be evicted."""
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    if g.drift == DRIFT_TIME:
        key += g.now
    s.jobs[j].key = key
    eviction_push_again(s, j, domain)


cdef inline int eviction_push_again(State s, int64_t j, Domain* domain) except -1:
    """Add a running job to the jobs that may be evicted, with its existing key."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    heap_push(s.eviction_queue, s.eviction_at, domain.eviction_base, domain.eviction_size, -job.key, g.jobs - 1 - j)
    domain.eviction_size += 1
    cdef int64_t link = job.allocation if g.listed else NONE
    while link != NONE:
        enlist(s, link, j, job.key)
        link = s.allocations[link].next


cdef inline int eviction_remove(State s, int64_t j, int64_t d) except -1:
    """Remove a running job from the jobs that may be evicted."""
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    heap_remove(s.eviction_queue, s.eviction_at, domain.eviction_base, domain.eviction_size, g.jobs - 1 - j)
    domain.eviction_size -= 1
    cdef int64_t link = s.jobs[j].allocation if g.listed else NONE
    while link != NONE:
        delist(s, link)
        link = s.allocations[link].next


cdef inline int drop_allocation(State s, Job* job) except -1:
    """Drop the allocation of a job without updating the nodes."""
    cdef int64_t link
    cdef Globals* g = &s.g[0]
    while job.allocation != NONE:
        link = job.allocation
        job.allocation = s.allocations[link].next
        s.allocations[link].next = g.unused_allocation
        g.unused_allocation = link


cdef inline int release(State s, Job* job, int64_t d) except -1:
    """Free a job's GPUs, but keep the record of its allocation."""
    cdef Globals* g = &s.g[0]
    if g.by_count:
        s.domains[d].free += job.gpus
        g.busy -= job.gpus
        g.free += job.gpus
    else:
        take_allocation(s, job.allocation, -1)


cdef inline int64_t pace_on(State s, int64_t gpus, Group* group, int64_t nodes):
    """Return the speed of a gang on `nodes` nodes of a group [ppm], given its spread and the GPU model."""
    cdef int64_t least
    cdef int64_t pace = PPM
    cdef int64_t widest = len(s.spread) - 1
    if nodes > 1 and widest > 0:
        least = (gpus + group.largest - 1) // group.largest
        if nodes > least:
            pace = s.spread[min(least, widest), min(nodes, widest)]
    if group.speed != PPM:
        pace = pace * group.speed // PPM
    return pace


cdef inline int start(State s, Key key, int64_t j, int64_t nodes, int64_t rate) except -1:
    """Run a waiting job, which has left its queue, on the GPUs just allocated to it.

    `rate` is the speed that the policy chose [ppm]. The effects of GPU model and spread are added to it.
    """
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    job.status = RUNNING
    job.since = job.begun = g.now
    if job.first < 0:
        job.first = g.now
    job.nodes = nodes
    job.pace = PPM
    if not g.by_count and job.allocation != NONE:
        job.pace = pace_on(s, job.gpus, &s.groups[s.nodes[s.allocations[job.allocation].node].group], nodes)
    if job.period > 0:
        job.pace = job.pace * <int64_t>job.saving // PPM
    job.rate = rate if job.pace == PPM else max(rate * job.pace // PPM, 1)
    g.running += 1
    g.pending -= 1
    unschedule_event(s, j)
    schedule_event(s, j)
    if g.preemptive:
        eviction_push(s, j, s.job_classes[job.job_class].domain, key_now(s, key, job))
    log_start(s, j, job)


cdef inline int suspend(State s, Key key, int64_t j) except -1:
    """Requeue a running job whose GPUs are free and which has left the eviction queue."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    settle(job, g.now)
    g.running -= 1
    unschedule_event(s, j)
    log_row(s, STOP, j, NONE, overhead_of(s, job.gpus))
    wait_again(s, key, j)


cdef inline int wait_again(State s, Key key, int64_t j) except -1:
    """Requeue a settled job that has lost its GPUs."""
    cdef int64_t patience
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    job.status = WAITING
    job.stopped = g.now
    g.pending += 1
    if g.promote > 0:
        patience = (g.now - job.begun) * g.promote // PPM
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + patience) * 4 + KIND_TIMER, j)
        g.event_size += 1
    elif g.relax_ms > 0 and s.job_classes[job.job_class].relaxed != NONE:
        if g.now - job.submit >= g.relax_ms:
            job.job_class = s.job_classes[job.job_class].relaxed
        else:
            heap_push(s.events, s.event_at, 0, g.event_size, (job.submit + g.relax_ms) * 4 + KIND_TIMER, j)
            g.event_size += 1
    enqueue(s, j, key_now(s, key, job))


cdef inline int loosen(State s, Job* job, int64_t d) except -1:
    """Request a pass over a domain because a job on its nodes ended or dropped in rank."""
    cdef Globals* g = &s.g[0]
    cdef int64_t link = job.allocation
    if not g.listed or link == NONE:
        touch(s, d, 1)
        return 0
    while link != NONE:
        if g.loosened == len(s.loosened):
            touch(s, d, 1)
            return 0
        s.loosened[g.loosened] = s.allocations[link].node
        g.loosened += 1
        link = s.allocations[link].next
    touch(s, d, 0)


cdef inline int note_end(State s, int64_t j) except -1:
    """Record that a job ends now."""
    cdef Globals* g = &s.g[0]
    s.jobs[j].status = DONE
    s.jobs[j].end = g.now
    g.last_end = g.now
    g.busy_at_end = g.busy_ms
    g.free_at_end = g.free_ms
    g.fragmented_at_end = g.fragmented_ms
    g.running -= 1
    log_row(s, FINISH, j, NONE, 0)


cdef inline int end_job(State s, int64_t j) except -1:
    """End a running job. The caller frees its GPUs."""
    settle(&s.jobs[j], s.g[0].now)
    s.g[0].events += 1
    note_end(s, j)


cdef inline int finish(State s, int64_t j) except -1:
    end_job(s, j)
    leave_nodes(s, j)


cdef inline int leave_nodes(State s, int64_t j) except -1:
    """Free the GPUs of a job that ended or was stopped by a failure, and inform the mechanism."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    cdef int64_t d = s.job_classes[job.job_class].domain
    release(s, job, d)
    loosen(s, job, d)
    if g.preemptive:
        eviction_remove(s, j, d)
    if not g.keeps:
        drop_allocation(s, job)
    if g.tenants or g.shared:
        job.stopped = g.ended
        g.ended = j


cdef inline int break_off(State s, int64_t j, int64_t node) except -1:
    """Stop a running job because its node failed: its work since the last checkpoint must be redone.

    The job joins the `broken` jobs of this instant, which rejoin their queues once the mechanism has closed their
    accounts. A restart in progress starts over.
    """
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    settle(job, g.now)
    job.lost += job.clock * held(job)
    job.clock = 0
    job.remaining = job.saved
    job.overhead = max(job.overhead, g.restart)
    job.restarts += 1
    g.running -= 1
    unschedule_event(s, j)
    log_row(s, FAIL, j, node, job.overhead)
    leave_nodes(s, j)
    s.broken[g.broken] = j
    g.broken += 1


cdef inline int fail(State s, int64_t index) except -1:
    """Stop every job that has GPUs on the given node because the node failed."""
    cdef int64_t i, j, link, place, first
    cdef Globals* g = &s.g[0]
    # Under a mechanism that keeps records, a node with all GPUs free may run jobs without GPUs.
    if s.nodes[index].free == s.nodes[index].gpus and not g.keeps:
        return 0
    first = g.broken
    for i in range(g.event_size):
        j = s.events[i].job
        link = s.jobs[j].allocation if s.jobs[j].status == RUNNING else NONE
        while link != NONE and s.allocations[link].node != index:
            link = s.allocations[link].next
        if link == NONE:
            continue
        place = g.broken
        while place > first and s.broken[place - 1] > j:
            s.broken[place] = s.broken[place - 1]
            place -= 1
        s.broken[place] = j
        g.broken += 1
    cdef int64_t last = g.broken
    g.broken = first
    for i in range(first, last):
        break_off(s, s.broken[i], index)


cdef inline int take_back(State s, Key key) except -1:
    """Requeue the jobs that failures stopped in this instant. They stay listed in `broken`."""
    cdef int64_t i
    for i in range(s.g[0].broken):
        wait_again(s, key, s.broken[i])


cdef inline int submit(State s, Key key, int64_t j) except -1:
    """Add a submitted job to its queue, or reject it."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    g.events += 1
    log_row(s, SUBMIT, j, NONE, 0)
    if job.never:
        job.status = REJECTED
        log_row(s, REJECT, j, NONE, 0)
        return 0
    job.status = WAITING
    job.stopped = g.now
    g.pending += 1
    if g.planned:
        s.active[g.active] = j
        g.active += 1
    enqueue(s, j, key_now(s, key, job))
    if g.relax_ms > 0 and s.job_classes[job.job_class].relaxed != NONE:
        heap_push(s.events, s.event_at, 0, g.event_size, (g.now + g.relax_ms) * 4 + KIND_TIMER, j)
        g.event_size += 1
    touch(s, s.job_classes[job.job_class].domain, 0)


cdef inline int timer(State s, Key key, int64_t j) except -1:
    """Handle a timer: a waiting job has waited long enough, or a running job reaches the next level."""
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    cdef int64_t d = s.job_classes[job.job_class].domain
    g.events += 1
    if job.status == WAITING and g.tenants:
        job.stopped = g.rung
        g.rung = j
        touch(s, d, 0)
        return 0
    if job.status == WAITING:
        dequeue(s, j)
        if g.promote > 0:
            job.base = job.attained
            job.level = 0
            enqueue(s, j, key_now(s, key, job))
        else:
            job.job_class = s.job_classes[job.job_class].relaxed
            enqueue(s, j, job.key)
        touch(s, d, 0)
        return 0
    settle(job, g.now)
    while job.level < g.levels and job.attained - job.base >= s.thresholds[job.level]:
        job.level += 1
    schedule_event(s, j)
    if g.preemptive:
        eviction_remove(s, j, d)
        eviction_push(s, j, d, key_now(s, key, job))
    loosen(s, job, d)


cdef inline int change_nodes(State s, int64_t now) except -1:
    cdef Change* change
    cdef int64_t d, sign
    cdef Globals* g = &s.g[0]
    while g.change < g.changes and s.changes[g.change].time <= now:
        change = &s.changes[g.change]
        d = s.groups[s.nodes[change.node].group].domain
        g.events += 1
        g.change += 1
        log_row(s, UP if change.up else DOWN, NONE, change.node, 0)
        touch(s, d, 1)
        if change.kills:
            fail(s, change.node)
        if change.up == s.nodes[change.node].up:
            continue
        if g.by_count:
            sign = 1 if change.up else -1
            s.nodes[change.node].up = change.up
            s.domains[d].free += sign * s.nodes[change.node].gpus
            g.free += sign * s.nodes[change.node].gpus
        elif change.up:
            node_joins(s, change.node)
        else:
            node_leaves(s, change.node)


cdef inline int stall(State s) except -1:
    """Stop every running job of an evicting policy for `value` ms again, as some simulators do."""
    cdef int64_t d, i, j
    cdef Domain* domain
    cdef Globals* g = &s.g[0]
    for d in range(len(s.domains)):
        domain = &s.domains[d]
        for i in range(domain.eviction_base, domain.eviction_base + domain.eviction_size):
            j = g.jobs - 1 - s.eviction_queue[i].job
            settle(&s.jobs[j], g.now)
            s.jobs[j].overhead = s.jobs[j].value
            schedule_event(s, j)


cdef inline int advance(State s, int64_t now) except -1:
    """Move the clock, and record the state before the move in totals and samples."""
    cdef Globals* g = &s.g[0]
    cdef int64_t elapsed = now - g.now
    if elapsed > 0:
        g.busy_ms += elapsed * g.busy
        g.free_ms += elapsed * g.free
        g.fragmented_ms += elapsed * g.fragmented
        sample(s, now)
        g.now = now


cdef inline int64_t next_time(State s):
    """Return the time of the next event, or NEVER if no event is left."""
    cdef Globals* g = &s.g[0]
    cdef int64_t now = NEVER
    if g.event_size > 0:
        now = s.events[0].key >> 2
    if g.submitted < g.jobs:
        now = min(now, s.jobs[g.submitted].submit)
    elif g.event_size == 0 and g.pending == 0:
        return NEVER
    if g.change < g.changes:
        now = min(now, s.changes[g.change].time)
    if g.wake >= 0:
        now = min(now, g.wake)
    return now


cdef inline int64_t due(State s, int64_t entry):
    """Remove the first job from the event heap if its key equals `entry` and return the job, else return NONE."""
    cdef Globals* g = &s.g[0]
    if g.event_size == 0 or s.events[0].key != entry:
        return NONE
    cdef int64_t j = s.events[0].job
    heap_pop(s.events, s.event_at, 0, g.event_size)
    g.event_size -= 1
    return j


cdef inline bint next_instant(State s, Key key):
    """Process every event of the next instant, or return False if no event is left."""
    cdef Globals* g = &s.g[0]
    cdef int64_t now = next_time(s)
    if now == NEVER:
        return False
    advance(s, now)
    g.serial += 1
    cdef int64_t j = due(s, now * 4 + KIND_FINISH)
    while j != NONE:
        finish(s, j)
        j = due(s, now * 4 + KIND_FINISH)
    g.broken = 0
    if g.change < g.changes:
        change_nodes(s, now)
        if g.broken > 0 and not (g.tenants or g.shared):
            take_back(s, key)
    while g.submitted < g.jobs and s.jobs[g.submitted].submit <= now:
        g.submitted += 1
        submit(s, key, g.submitted - 1)
    j = due(s, now * 4 + KIND_TIMER)
    while j != NONE:
        timer(s, key, j)
        j = due(s, now * 4 + KIND_TIMER)
    if g.stall:
        stall(s)
    return True


# The rows of the event log (see `Outcome.log`) and the samples of the timeline, written by compiled code.

# Kinds, as in `outcome.LOG_KINDS`.
cpdef enum:
    SUBMIT = 1
    START = 2
    TAKE = 3
    STOP = 4
    FINISH = 5
    RATE = 6
    UP = 7
    DOWN = 8
    REJECT = 9
    FAIL = 10


cdef inline int log_row(State s, int64_t kind, int64_t job, int64_t node, int64_t value) except -1:
    """Write a row if the log is on. Count it even if the log is full, so that the caller can allocate a larger one."""
    cdef Globals* g = &s.g[0]
    if g.log_on == 0:
        return 0
    cdef LogRow* row
    if g.log_size < len(s.log):
        row = &s.log[g.log_size]
        row.time_ms = g.now
        row.kind = kind
        row.job = job
        row.node = node
        row.gpu = NONE
        row.value = value
    g.log_size += 1


cdef inline int log_gpu(State s, int64_t job, int64_t node, int64_t gpu, int64_t milli) except -1:
    """Write the share of one GPU that a job takes. The GPU is given by its index in the node."""
    log_row(s, TAKE, job, node, milli)
    if s.g[0].log_on and s.g[0].log_size <= len(s.log):
        s.log[s.g[0].log_size - 1].gpu = gpu


cdef inline int log_start(State s, int64_t j, Job* job) except -1:
    """Write the start of a job and the GPUs that it takes."""
    cdef int64_t gpu
    cdef Allocation* allocation
    if s.g[0].log_on == 0:
        return 0
    log_row(s, START, j, NONE, job.rate)
    if job.allocation == NONE:
        log_row(s, TAKE, j, NONE, <int64_t>job.gpus * 1000)
    cdef int64_t link = job.allocation
    while link != NONE:
        allocation = &s.allocations[link]
        if s.g[0].blocks:
            for gpu in range(allocation.gpu, allocation.gpu + allocation.gpus):
                log_gpu(s, j, allocation.node, gpu, 1000)
        else:
            log_gpu(s, j, allocation.node, allocation.gpu, <int64_t>allocation.gpus * 1000)
        link = allocation.next


cdef inline int forgive_stop(State s, Job* job) except -1:
    """Clear the overhead of a job's stop (row `evicted` - 1): the pass that evicted the job put it back."""
    if s.g[0].log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = 0
    job.evicted = 0


cdef inline int sample(State s, int64_t until) except -1:
    """Record the state at each sampling time before `until`. A full table drops every other row; its step doubles."""
    cdef int64_t i
    cdef Sample* row
    cdef Globals* g = &s.g[0]
    while g.sample_at < until:
        if g.samples == len(s.samples):
            for i in range(len(s.samples) // 2):
                s.samples[i] = s.samples[2 * i]
            g.samples = len(s.samples) // 2
            g.sample_step *= 2
            g.sample_at = s.samples[g.samples - 1].time + g.sample_step
            continue
        row = &s.samples[g.samples]
        row.time = g.sample_at
        row.running = g.running
        row.pending = g.pending
        row.busy = g.busy
        row.free = g.free
        row.fragmented = g.fragmented
        g.samples += 1
        g.sample_at += g.sample_step
