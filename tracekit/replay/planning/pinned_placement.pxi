# Plans that name the nodes of a job, or put it on the GPUs of another job.
#
# Rows of a plan are (place in the plan, node, GPUs, GPU): GPUs of a node, starting at a given GPU, or GPUs without any
# job (NONE). If jobs share GPUs, the `beside` of a job is the job whose GPUs it shares. It is the job itself if only
# jobs that the plan puts next to it may share its GPUs, or NONE if any may.

# Possible errors of a row, which is `g.culprit`.
cpdef enum:
    NOT_ACCEPTED = 11
    MODELS_MIXED = 12
    NO_ROOM = 13
# Possible errors of a job next to another job.
cpdef enum:
    BESIDE_UNKNOWN = 21
    BESIDE_SIZE = 22
    CROWDED = 23
    TOO_FAR = 24
cdef enum:
    _NODE = 1
    _GPUS = 2
    _GPU = 3


cdef inline uint64_t narrow(State s, JobClass* job_class, int64_t group, int64_t model, bint any_model):
    """Return the groups that a plan allows a job to use, as bits."""
    cdef uint64_t named
    cdef int64_t index
    cdef Domain* domain = &s.domains[job_class.domain]
    cdef uint64_t accept = job_class.accept
    if model != NONE:
        named = 0
        for index in range(domain.group_low, domain.group_high):
            if s.groups[index].model == model:
                named |= <uint64_t>1 << <uint64_t>(index - domain.group_low)
        accept = named if any_model else accept & named
    if group != NONE:
        accept &= <uint64_t>1 << <uint64_t>(group - domain.group_low)
    return accept


cdef inline bint may_go(State s, JobClass* job_class, PlanArrays p, int64_t i, int64_t node):
    """Return whether a plan allows a job to use a node. Naming a node implies its GPU model."""
    cdef int64_t model = p.models[i]
    cdef int64_t index = s.nodes[node].group
    cdef Domain* domain = &s.domains[job_class.domain]
    if index < domain.group_low or index >= domain.group_high:
        return False
    if p.any_model and model == NONE:
        model = s.groups[index].model
    cdef uint64_t accept = narrow(s, job_class, p.groups[i], model, p.any_model)
    return (accept >> <uint64_t>(index - domain.group_low)) & <uint64_t>1 == <uint64_t>1


def rows_sound(
    int64_t[:, ::1] rows, int64_t[::1] sizes, int64_t[::1] jobs, int64_t[::1] gpus, int64_t[::1] beside
):
    """Return whether the rows are valid: sorted, existing nodes, no GPU twice, and none or all of each job's GPUs.

    Parameters
    ----------
    rows : array (r, 4)
        Rows of a plan for the jobs (k,).
    sizes : array (N,)
        GPUs of each node.
    gpus, beside : arrays (k,)
        Columns of the plan.
    """
    cdef int64_t at, place, node, held, gpu
    cdef int64_t total = 0
    for at in range(len(rows)):
        place, node, held, gpu = rows[at, 0], rows[at, _NODE], rows[at, _GPUS], rows[at, _GPU]
        if place < 0 or place >= len(jobs) or node < 0 or node >= len(sizes):
            return False
        if held < 1 or gpu < NONE or held > sizes[node] - max(gpu, 0):
            return False
        if beside[place] != NONE and beside[place] != jobs[place]:
            return False
        if at > 0 and rows[at - 1, 0] == place:
            if rows[at - 1, _NODE] == node and (
                rows[at - 1, _GPU] == NONE or rows[at - 1, _GPU] + rows[at - 1, _GPUS] > gpu
            ):
                return False
            total += held
        else:
            total = held
        if (at + 1 == len(rows) or rows[at + 1, 0] != place) and total != gpus[place]:
            return False
    return True


cdef inline int64_t check_rows(State s, PlanArrays p):
    """Return 0 or the error in the nodes that a plan names for its jobs. Free room is checked elsewhere."""
    cdef int64_t i, at, first
    cdef JobClass* job_class
    for i in range(len(p.jobs)):
        job_class = &s.job_classes[s.jobs[p.jobs[i]].job_class]
        for at in range(p.ends[i], p.ends[i + 1]):
            s.g[0].culprit = at
            if not may_go(s, job_class, p, i, p.rows[at, _NODE]):
                return NOT_ACCEPTED
            first = s.nodes[p.rows[p.ends[i], _NODE]].group
            if s.groups[s.nodes[p.rows[at, _NODE]].group].model != s.groups[first].model:
                return MODELS_MIXED
    return 0


cdef inline int64_t check_beside(State s, PlanArrays p, int64_t[::1] wanted):
    """Return 0 or the error in the job pairs of a plan. `wanted` contains places in the plan, plus 1."""
    cdef int64_t i, other, has, place
    for i in range(len(p.jobs)):
        other = p.beside[i]
        if other == NONE or other == p.jobs[i] or p.gpus[i] == 0:
            continue
        s.g[0].culprit = i
        if other < 0 or other >= s.g[0].submitted:
            return BESIDE_UNKNOWN
        has = s.jobs[other].gpus
        if wanted[other]:
            place = wanted[other] - 1
            has = p.gpus[place]
            if place >= i or (p.beside[place] != NONE and p.beside[place] != other):
                return BESIDE_UNKNOWN
        elif not p.keep or s.jobs[other].status != RUNNING:
            return BESIDE_UNKNOWN
        if has != p.gpus[i]:
            return BESIDE_SIZE
    return 0


cdef inline bint differs(State s, Job* job, int64_t[:, ::1] rows, int64_t low, int64_t high):
    """Return whether a running job has rows but runs on other GPUs. The number of GPUs is the same."""
    cdef int64_t at, left, link, from_first
    cdef Allocation* allocation
    for at in range(low, high):
        left = rows[at, _GPUS]
        link = job.allocation
        while link != NONE:
            allocation = &s.allocations[link]
            from_first = allocation.gpu - rows[at, _GPU]
            if allocation.node == rows[at, _NODE] and (rows[at, _GPU] == NONE or 0 <= from_first < rows[at, _GPUS]):
                left -= allocation.gpus
            link = allocation.next
        if left != 0:
            return True
    return False


cdef inline bint row_fits(State s, int64_t[:, ::1] rows, int64_t at, int64_t share):
    """Return whether the GPUs of a row are free."""
    cdef int64_t gpu
    cdef Node* node = &s.nodes[rows[at, _NODE]]
    if not s.g[0].seats or rows[at, _GPU] == NONE:
        return node.free >= rows[at, _GPUS]
    for gpu in range(rows[at, _GPU], rows[at, _GPU] + rows[at, _GPUS]):
        if s.allocations[node.seat + gpu].gpus >= share:
            return False
    return True


cdef inline int hold_row(State s, Job* job, int64_t[:, ::1] rows, int64_t at) except -1:
    """Allocate the GPUs of a row to a job."""
    cdef int64_t gpu
    if not s.g[0].seats or rows[at, _GPU] == NONE:
        hold(s, job, rows[at, _NODE], rows[at, _GPUS])
        return 0
    for gpu in range(rows[at, _GPU] + rows[at, _GPUS] - 1, rows[at, _GPU] - 1, -1):
        hold_seat(s, job, rows[at, _NODE], gpu)


cdef inline int64_t hold_rows(State s, Job* job, int64_t[:, ::1] rows, int64_t low, int64_t high, int64_t share):
    """Allocate its rows' GPUs to a job without GPUs; return its nodes, or 0 (nothing allocated) if any is not free."""
    cdef int64_t at
    for at in range(low, high):
        if s.nodes[rows[at, _NODE]].up == 0 or not row_fits(s, rows, at, share):
            s.g[0].culprit = at
            return 0
    cdef int64_t nodes = 0
    for at in range(high - 1, low - 1, -1):
        hold_row(s, job, rows, at)
        nodes += at == low or rows[at - 1, _NODE] != rows[at, _NODE]
    return nodes


cdef inline int64_t hold_beside(State s, Job* job, JobClass* job_class, PlanArrays p, int64_t i):
    """Let a job without GPUs share the GPUs of its partner in the plan; return its number of nodes.

    Return 0 (nothing allocated) if no job may start there now, or a negative number for an error of the plan.
    """
    cdef Allocation* allocation
    cdef Job* other = &s.jobs[p.beside[i]]
    if other.status != RUNNING:
        return 0
    cdef int64_t link = other.allocation
    while link != NONE:
        allocation = &s.allocations[link]
        if not may_go(s, job_class, p, i, allocation.node):
            return -TOO_FAR
        if s.allocations[s.nodes[allocation.node].seat + allocation.gpu].gpus >= p.share:
            return -CROWDED
        if s.nodes[allocation.node].up == 0:
            return 0
        link = allocation.next
    link = other.allocation
    while link != NONE:
        hold_seat(s, job, s.allocations[link].node, s.allocations[link].gpu)
        link = s.allocations[link].next
    return other.nodes


cdef inline bint together(State s, Job* job, Job* other):
    """Return whether two running jobs with the same number of GPUs share all of them."""
    cdef int64_t link = other.allocation
    while link != NONE:
        s.allocations[s.nodes[s.allocations[link].node].seat + s.allocations[link].gpu].job = 1
        link = s.allocations[link].next
    cdef bint same = True
    link = job.allocation
    while link != NONE:
        if s.allocations[s.nodes[s.allocations[link].node].seat + s.allocations[link].gpu].job == 0:
            same = False
        link = s.allocations[link].next
    link = other.allocation
    while link != NONE:
        s.allocations[s.nodes[s.allocations[link].node].seat + s.allocations[link].gpu].job = 0
        link = s.allocations[link].next
    return same


cdef inline bint in_company(State s, Job* job, int64_t jobs):
    """Return whether any GPU of a running job has a number of jobs other than `jobs`."""
    cdef int64_t link = job.allocation
    while link != NONE:
        if s.allocations[s.nodes[s.allocations[link].node].seat + s.allocations[link].gpu].gpus != jobs:
            return True
        link = s.allocations[link].next
    return False


cdef inline int part_company(
    State s, Key key, int64_t[::1] jobs, int64_t[::1] beside, int64_t low, int64_t high, int64_t[::1] count
) except -1:
    """Stop jobs that do not share exactly the GPUs of their partner in the plan. Of two jobs, stop the later one.

    `count` contains a zero for each job and is reset to zeros on return.
    """
    cdef int64_t i, other, j, at
    cdef Job* job
    for i in range(low, high):
        job, other = &s.jobs[jobs[i]], beside[i]
        if other == NONE or other == jobs[i] or job.status != RUNNING:
            continue
        if s.jobs[other].status == RUNNING and together(s, job, &s.jobs[other]):
            count[other] += 1
        else:
            stop_job(s, key, jobs[i])
    for i in range(high - 1, low - 1, -1):
        j = jobs[i]
        if beside[i] != j or s.jobs[j].status != RUNNING or not in_company(s, &s.jobs[j], 1 + count[j]):
            continue
        stop_job(s, key, j)
        at = i + 1
        while count[j] > 0:
            if beside[at] == j and s.jobs[jobs[at]].status == RUNNING:
                stop_job(s, key, jobs[at])
                count[j] -= 1
            at += 1
    for i in range(low, high):
        if beside[i] != NONE:
            count[beside[i]] = 0


# The costs and event-log rows if a planner stops a running job or lets it continue elsewhere.


cdef inline int stop_job(State s, Key key, int64_t j) except -1:
    """Take a running job off its GPUs. `evicted` becomes the row of its stop in the log, plus 1."""
    cdef Job* job = &s.jobs[j]
    settle(job, s.g[0].now)
    release(s, job, s.job_classes[job.job_class].domain)
    suspend(s, key, j)
    job.evicted = max(s.g[0].log_size, 1)


cdef inline int charge(State s, Job* job, int64_t cost) except -1:
    """Charge a job that was stopped, and record the charge in the row of its stop."""
    cdef Globals* g = &s.g[0]
    if g.log_on and job.evicted <= len(s.log):
        s.log[job.evicted - 1].value = cost
    job.overhead += cost
    job.evicted = 0


cdef inline int lose_job(State s, Job* job, int64_t lost) except -1:
    """Record that a stopped job did not start again, so it was preempted and must redo `lost` ms of work."""
    charge(s, job, overhead_of(s, job.gpus) + lost)
    save(job)
    drop_allocation(s, job)
    job.preemptions += 1


cdef inline bint same_seats(State s, int64_t old, int64_t new):
    """Return whether two allocations with equally many links have the same GPUs."""
    cdef int64_t link
    while old != NONE:
        link = new
        while link != NONE and (
            s.allocations[link].node != s.allocations[old].node or s.allocations[link].gpu != s.allocations[old].gpu
        ):
            link = s.allocations[link].next
        if link == NONE:
            return False
        old = s.allocations[old].next
    return True


cdef inline int go_on(State s, Key key, int64_t j, int64_t old, int64_t nodes, PlanArrays p, int64_t i) except -1:
    """Run the job at place i of a plan on the GPUs just allocated to it. `old` is its previous allocation.

    If jobs share GPUs, the job may return to its old GPUs at no charge.
    """
    cdef Job* job = &s.jobs[j]
    cdef int64_t old_gpus = job.gpus
    cdef int64_t gpus = p.gpus[i]
    cdef int64_t fresh = job.allocation
    if p.beside is not None and job.evicted and old_gpus == gpus and same_seats(s, old, fresh):
        forgive_stop(s, job)
    job.allocation = old
    drop_allocation(s, job)
    job.allocation = fresh
    job.gpus = gpus
    if job.evicted:
        charge(s, job, p.lost[i] + (p.resize_ms if old_gpus != gpus else overhead_of(s, gpus)))
        save(job)
        job.migrations += 1
    start(s, key, j, nodes, p.rates[i])
