# The compiled part of planners: request plans, collect the jobs for the planner, and carry out plans.
#
# There are no queues: a planner sees every waiting or running job and decides how many GPUs each should have.

# Why a run stopped.
cpdef enum:
    ASK = 0
    OVER = 1
    MORE = 2


def next_plan(State s, Key key, int64_t round_ms, int64_t gap_ms, int64_t instants):
    """Run until the planner must be asked (ASK), no event is left (OVER), or `instants` instants have passed (MORE).

    With rounds, an event between two rounds only requests a plan for the next. With a gap, it requests one for after
    the gap.
    """
    cdef int64_t _, i, due
    cdef bint changed
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return OVER
        changed = g.touched > 0
        for i in range(g.touched):
            s.domains[s.touched[i]].touched = 0
            s.domains[s.touched[i]].freed = 0
        g.touched = 0
        due = g.now
        if gap_ms > 0 and g.asked >= 0:
            due = max(due, g.asked + gap_ms)
        if round_ms > 0:
            due = (due + round_ms - 1) // round_ms * round_ms
        if (g.wake >= 0 and g.wake <= g.now) or (changed and due == g.now):
            g.wake = NONE
            g.asked = g.now
            return ASK
        if changed and (g.wake < 0 or g.wake > due):
            g.wake = due
    return MORE


def settle_running(State s):
    """Record the progress of the running jobs until now. Only running jobs have entries among the events."""
    cdef int64_t i
    cdef Globals* g = &s.g[0]
    for i in range(g.event_size):
        settle(&s.jobs[s.events[i].job], g.now)


def gather(State s, ViewRow[::1] view):
    """Write a ViewRow for each waiting or running job, by index; return their number."""
    cdef int64_t i, j, settled
    cdef Job* job
    cdef ViewRow* row
    cdef Globals* g = &s.g[0]
    cdef int64_t kept = 0
    for i in range(g.active):
        j = s.active[i]
        job = &s.jobs[j]
        if job.status == DONE:
            continue
        s.active[kept] = j
        settled = job.since
        if job.status == RUNNING:
            settle(job, g.now)
            settled = job.since
        row = &view[kept]
        row.job = j
        row.running = job.status == RUNNING
        row.held = job.gpus if job.status == RUNNING else 0
        row.remaining_ms = (job.remaining + PPM - 1) // PPM
        row.attained = job.attained
        row.overhead_ms = job.overhead
        row.rate = job.rate if job.status == RUNNING else 0
        row.group = NONE
        if job.status == RUNNING and job.allocation != NONE:
            row.group = s.nodes[s.allocations[job.allocation].node].group
        row.since_ms = job.stopped if job.status == WAITING else settled
        kept += 1
    g.active = kept
    return kept


# Carry out a plan: stop jobs, let jobs continue, and place jobs.

# Possible errors of a plan.
cpdef enum:
    TOO_MANY = 1
    NOT_ACTIVE = 2
    NAMED_TWICE = 3
    GROUP_UNKNOWN = 4
    NO_SPEED = 5
# Highest speed that a plan may set [ppm].
cdef enum:
    _FASTEST = 1_000_000_000


cdef inline int64_t check(State s, PlanArrays p, int64_t[::1] wanted):
    """Note the place of each job in the plan, plus 1; return 0 or the plan's error, with the place in `g.culprit`."""
    cdef int64_t i, j
    cdef Domain* domain
    cdef Globals* g = &s.g[0]
    for i in range(len(p.jobs)):
        j = p.jobs[i]
        g.culprit = i
        if j < 0 or j >= g.submitted or (s.jobs[j].status != WAITING and s.jobs[j].status != RUNNING):
            return NOT_ACTIVE
        if wanted[j]:
            return NAMED_TWICE
        wanted[j] = i + 1
        if p.rates[i] <= 0 or p.rates[i] > _FASTEST:
            return NO_SPEED
        domain = &s.domains[s.job_classes[s.jobs[j].job_class].domain]
        if p.groups[i] != NONE and (p.groups[i] < domain.group_low or p.groups[i] >= domain.group_high):
            return GROUP_UNKNOWN
        if p.gpus[i] < 0:
            return TOO_MANY
    return 0


cdef inline int64_t plan_count(State s, PlanArrays p, int64_t[::1] wanted):
    """Compare requested with available GPUs, domain by domain; return 0 or TOO_MANY."""
    cdef int64_t d, i, j
    cdef Domain* domain
    cdef Globals* g = &s.g[0]
    for d in range(len(s.domains)):
        s.domains[d].held = s.domains[d].free
    for i in range(g.event_size):
        j = s.events[i].job
        if not p.keep or wanted[j]:
            s.domains[s.job_classes[s.jobs[j].job_class].domain].held += s.jobs[j].gpus
    for i in range(len(p.jobs)):
        domain = &s.domains[s.job_classes[s.jobs[p.jobs[i]].job_class].domain]
        g.culprit = i
        if p.gpus[i] > domain.held:
            if not p.optional[i]:
                return TOO_MANY
        else:
            domain.held -= p.gpus[i]
    return 0


cdef inline int64_t plan_count_alone(State s, PlanArrays p, int64_t low, int64_t high):
    """Compare requested GPUs with GPUs that have no job once the plan's jobs have left; return 0 or TOO_MANY."""
    cdef int64_t i, j
    if low == high:
        return 0
    cdef int64_t left = s.domains[s.job_classes[s.jobs[p.jobs[low]].job_class].domain].free
    for i in range(low, high):
        j = p.jobs[i]
        if s.jobs[j].status == RUNNING or is_named(p, i) or (p.beside[i] != NONE and p.beside[i] != j):
            continue
        s.g[0].culprit = i
        if p.gpus[i] <= left:
            left -= p.gpus[i]
        elif not p.optional[i]:
            return TOO_MANY
    return 0


cdef inline bint must_move(State s, Job* job, int64_t gpus, int64_t group, int64_t model):
    """Return whether a running job must leave its GPUs to get the GPUs of the plan."""
    if job.gpus != gpus:
        return True
    if job.allocation == NONE:
        return False
    cdef int64_t index = s.nodes[s.allocations[job.allocation].node].group
    return (group >= 0 and index != group) or (model >= 0 and s.groups[index].model != model)


cdef inline int sort(int64_t[::1] values, int64_t count) except -1:
    """Sort the first `count` numbers, ascending."""
    cdef int64_t i, value, place
    cdef int64_t gap = count // 2
    while gap > 0:
        for i in range(gap, count):
            value = values[i]
            place = i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 2


cdef inline int64_t find_unnamed(State s, int64_t[::1] wanted, int64_t[::1] stopped):
    """Write the running jobs that the plan does not name, by index; return their number."""
    cdef int64_t i, j
    cdef Globals* g = &s.g[0]
    cdef int64_t count = 0
    for i in range(g.event_size):
        j = s.events[i].job
        if wanted[j] == 0:
            stopped[count] = j
            count += 1
    sort(stopped, count)
    return count


cdef inline int64_t check_all(State s, PlanArrays p, int64_t[::1] wanted):
    cdef int64_t wrong = check(s, p, wanted)
    if p.rows is not None and not wrong:
        wrong = check_rows(s, p)
    if p.beside is None and not wrong:
        wrong = plan_count(s, p, wanted)
    if p.beside is not None and not wrong:
        wrong = check_beside(s, p, wanted)
    return wrong


def apply_plan(State s, Key key, PlanArrays p, int64_t[::1] wanted, int64_t[::1] stopped):
    """Carry out a plan; return 0 or the plan's error, with the place in the plan or the row in `g.culprit`.

    Parameters
    ----------
    p : PlanArrays
        The plan.
    wanted : array (n,)
        Zeros, to which the array is reset on return.
    stopped : array (events,)
        Scratch space.
    """
    cdef int64_t i, d, high
    cdef int64_t wrong = check_all(s, p, wanted)
    if wrong:
        return wrong
    cdef int64_t unnamed = 0 if p.keep else find_unnamed(s, wanted, stopped)
    for i in range(len(p.jobs)):
        wanted[p.jobs[i]] = 0
    cdef int64_t low = 0
    for d in range(len(s.domains)):
        for i in range(unnamed):
            if s.job_classes[s.jobs[stopped[i]].job_class].domain == d:
                stop_job(s, key, stopped[i])
                lose_job(s, &s.jobs[stopped[i]], 0)
        high = low
        while high < len(p.jobs) and s.job_classes[s.jobs[p.jobs[high]].job_class].domain == d:
            high += 1
        clear(s, key, p, low, high, wanted)
        if p.rows is not None:
            wrong = give_rows(s, key, p, low, high)
        if not wrong:
            wrong = give_rest(s, key, p, low, high)
        if wrong:
            return wrong
        low = high
    return 0


cdef inline int clear(State s, Key key, PlanArrays p, int64_t low, int64_t high, int64_t[::1] count) except -1:
    """Stop the jobs that change size or place, to free all their GPUs before placing them again."""
    cdef int64_t i
    cdef Job* job
    cdef bint moves
    for i in range(low, high):
        job = &s.jobs[p.jobs[i]]
        if job.status != RUNNING:
            continue
        moves = must_move(s, job, p.gpus[i], p.groups[i], p.models[i])
        if p.rows is not None and not moves:
            moves = differs(s, job, p.rows, p.ends[i], p.ends[i + 1])
        if moves:
            stop_job(s, key, p.jobs[i])
    if p.beside is not None:
        part_company(s, key, p.jobs, p.beside, low, high, count)


cdef inline int64_t give_rows(State s, Key key, PlanArrays p, int64_t low, int64_t high):
    """Place the jobs whose nodes the plan names; return 0 or NO_ROOM."""
    cdef int64_t i, j, old, nodes
    cdef Job* job
    for i in range(low, high):
        j = p.jobs[i]
        job = &s.jobs[j]
        if job.status == RUNNING or not is_named(p, i):
            continue
        old = job.allocation
        job.allocation = NONE
        nodes = hold_rows(s, job, p.rows, p.ends[i], p.ends[i + 1], p.share)
        if nodes == 0:
            job.allocation = old
            if not p.optional[i]:
                return NO_ROOM
        else:
            go_on(s, key, j, old, nodes, p, i)
    return 0


cdef inline int64_t give_rest(State s, Key key, PlanArrays p, int64_t low, int64_t high):
    """Place the jobs for which the engine or another job determines the nodes; return 0 or the plan's error."""
    cdef int64_t i
    cdef Job* job
    cdef int64_t wrong = 0
    if p.beside is not None:
        wrong = plan_count_alone(s, p, low, high)
    for i in range(low, high):
        if wrong:
            return wrong
        job = &s.jobs[p.jobs[i]]
        if job.status == RUNNING:
            change_rate(s, p.jobs[i], max(p.rates[i] * job.pace // PPM, 1))
        elif p.gpus[i] > 0 and not is_named(p, i):
            wrong = give(s, key, p, i)
    for i in range(low, high):
        # The job found no place, so it waits as if it had been stopped.
        if s.jobs[p.jobs[i]].evicted:
            lose_job(s, &s.jobs[p.jobs[i]], p.lost[i])
    return wrong


cdef inline bint is_named(PlanArrays p, int64_t i):
    """Return whether the plan names nodes for the job at this place."""
    return p.rows is not None and p.ends[i] < p.ends[i + 1]


cdef inline int64_t give(State s, Key key, PlanArrays p, int64_t i):
    """Place a job that is not running; return 0 or the plan's error."""
    cdef JobClass* scratch
    cdef int64_t j = p.jobs[i]
    cdef Job* job = &s.jobs[j]
    cdef JobClass* job_class = &s.job_classes[job.job_class]
    cdef int64_t old = job.allocation
    job.allocation = NONE
    cdef bint alone = True
    cdef int64_t nodes = 0
    if p.beside is not None and p.beside[i] != NONE and p.beside[i] != j:
        alone = False
        nodes = hold_beside(s, job, job_class, p, i)
    if alone:
        scratch = &s.job_classes[len(s.job_classes) - 1]
        scratch.accept = narrow(s, job_class, p.groups[i], p.models[i], p.any_model)
        scratch.domain = job_class.domain
        scratch.scope = s.g[0].scope
        scratch.gpus = p.gpus[i]
        nodes = take(s, j, scratch)
    if nodes < 0:
        s.g[0].culprit = i
        return -nodes
    if nodes == 0:
        job.allocation = old
    else:
        go_on(s, key, j, old, nodes, p, i)
    return 0
