# The scheduling pass of policies with shared GPUs: jobs by key, first on idle GPUs, then next to other jobs.
#
# No job is stopped. A job takes idle GPUs if there are enough. If not, it takes all idle GPUs of a GPU model and, for
# the rest, GPUs with a free seat and enough free memory. With the test `shares`, it takes only GPUs that one running
# job uses alone, and only if both jobs benefit. Otherwise, it waits.
#
# Waiting jobs with the same class, memory and utilization share a queue, and only its first job is considered. This is
# exact: all jobs in a queue have the same request, and the test favours the job with the least work, which comes first.
# A waiting job can get more GPUs only when a job leaves a GPU or a node joins: time only reduces the remaining work of
# running jobs, and a start never increases it. So each queue keeps an upper bound on the GPUs for its first job and
# raises it as jobs leave. We search for candidates only when the bound reaches the gang's size.


cdef inline int64_t speed_of(Residents r, int64_t j):
    """Return the speed of a running job on its slowest GPU, in its sub-batches [ppm]."""
    cdef int64_t gpu, count, known, place, other, speed, at, product, i
    cdef int64_t seats = r.g[0].seats
    cdef SharedJob* me = &r.jobs[j]
    cdef int64_t least = PPM
    cdef int64_t link = me.held
    while link != NONE:
        gpu = r.held[link].gpu
        count = r.gpus[gpu].jobs
        known = 0
        for place in range(gpu * seats, gpu * seats + count):
            other = r.seats[place]
            if other == j:
                continue
            speed = pair_speed(r.g[0].strength, me.utilization, r.jobs[other].utilization)
            at = known
            while at > 0 and r.pairs[at - 1] > speed:
                r.pairs[at] = r.pairs[at - 1]
                at -= 1
            r.pairs[at] = speed
            known += 1
        product = PPM
        for i in range(known):
            product = r.pairs[0] if i == 0 else (product * r.pairs[i] + PPM // 2) // PPM
        least = min(least, max(product, 1))
        link = r.held[link].next
    return least * r.speeds[me.step] // PPM


cdef inline int renew_neighbours(State s, Residents r, int64_t j, int64_t mark) except -1:
    """Update the rate of every other job on a job's GPUs, each job once."""
    cdef int64_t gpu, place, other
    cdef Job* job
    cdef int64_t seats = r.g[0].seats
    cdef int64_t link = r.jobs[j].held
    while link != NONE:
        gpu = r.held[link].gpu
        for place in range(gpu * seats, gpu * seats + r.gpus[gpu].jobs):
            other = r.seats[place]
            if other != j and r.jobs[other].mark != mark and s.jobs[other].status == RUNNING:
                r.jobs[other].mark = mark
                job = &s.jobs[other]
                change_rate(s, other, max(speed_of(r, other) * job.pace // PPM, 1))
        link = r.held[link].next


cdef inline int log_shared_start(State s, Residents r, int64_t j) except -1:
    cdef int64_t i, gpu, node
    cdef Globals* g = &s.g[0]
    if g.log_on == 0:
        return 0
    log_row(s, START, j, NONE, s.jobs[j].rate)
    for i in range(r.g[0].chosen):
        gpu = r.chosen[i]
        node = r.gpus[gpu].node
        log_gpu(s, j, node, gpu - r.nodes[node].first, 1000)


cdef inline int sharing_start(State s, Residents r, int64_t j, int64_t step) except -1:
    """Run a waiting job, which has left its queue, on the GPUs chosen for it."""
    cdef int64_t i, gpu, link
    cdef Globals* g = &s.g[0]
    cdef Job* job = &s.jobs[j]
    cdef SharedJob* mine = &r.jobs[j]
    mine.step = step
    cdef int64_t nodes = 0
    for i in range(r.g[0].chosen - 1, -1, -1):
        gpu = r.chosen[i]
        nodes += seat(s, r, j, gpu)
        link = r.g[0].free_held
        r.g[0].free_held = r.held[link].next
        r.held[link].gpu = gpu
        r.held[link].next = mine.held
        mine.held = link
    cdef Group* group = &s.groups[s.nodes[r.gpus[r.chosen[0]].node].group]
    mine.model = group.model
    job.status = RUNNING
    job.since = job.begun = job.first = g.now
    job.nodes = nodes
    job.pace = pace_on(s, job.gpus, group, nodes)
    job.rate = max(speed_of(r, j) * job.pace // PPM, 1)
    g.running += 1
    g.pending -= 1
    schedule_event(s, j)
    log_shared_start(s, r, j)
    renew_neighbours(s, r, j, 2 * j)


cdef inline int offer(State s, Residents r, int64_t j, int64_t d) except -1:
    """Raise the bound of each queue's first job: job j has left its GPUs."""
    cdef int64_t q, link, gpu
    cdef Queue* queue
    cdef Head* head
    for q in range(s.domains[d].queue_low, s.domains[d].queue_high):
        queue = &s.queues[q]
        if queue.size == 0:
            continue
        head = &r.heads[q]
        link = r.jobs[j].held
        while link != NONE:
            gpu = r.held[link].gpu
            head.bound += new_to(s, r, head.job, gpu)
            link = r.held[link].next


cdef inline bint new_to(State s, Residents r, int64_t j, int64_t gpu):
    """Return whether a waiting job (or any job if NONE) could take a GPU that a job has just left."""
    cdef int64_t step
    cdef SharedGpu* cell = &r.gpus[gpu]
    if cell.jobs == 0 or j == NONE:
        return True
    if r.g[0].test and cell.jobs > 1:
        return False
    for step in range(len(r.speeds)):
        if r.g[0].test == 0:
            if cell.memory + r.memory[step, j] <= PPM:
                return True
        else:
            ask(s, r, j, step)
            if gains(s, r, j, step, r.seats[gpu * r.g[0].seats]):
                return True
    return False


cdef inline int sharing_leave(State s, Residents r, int64_t j) except -1:
    """Free the GPUs of a job that has ended."""
    cdef int64_t d = s.job_classes[s.jobs[j].job_class].domain
    cdef SharedJob* mine = &r.jobs[j]
    cdef int64_t link = mine.held
    while link != NONE:
        unseat(s, r, j, r.held[link].gpu)
        link = r.held[link].next
    renew_neighbours(s, r, j, 2 * j + 1)
    offer(s, r, j, d)
    while mine.held != NONE:
        link = mine.held
        mine.held = r.held[link].next
        r.held[link].next = r.g[0].free_held
        r.g[0].free_held = link


cdef inline int follow_nodes(State s, Residents r) except -1:
    """Add the nodes that joined since the last instant to the tables, and remove the nodes that left."""
    cdef int64_t node, q
    cdef Domain* domain
    while r.g[0].change < s.g[0].change:
        node = s.changes[r.g[0].change].node
        r.g[0].change += 1
        unlist(s, r, node)
        list_node(s, r, node)
        domain = &s.domains[s.groups[s.nodes[node].group].domain]
        for q in range(domain.queue_low, domain.queue_high):
            r.heads[q].job = NONE


cdef inline int64_t first_that_fits(State s, Residents r, int64_t d):
    """Return the queue whose first job has the smallest key among first jobs with a place, or NONE."""
    cdef int64_t best_key, best_job, q
    cdef Queue* queue
    cdef Entry* entry
    cdef Head* head
    cdef JobClass* job_class
    cdef int64_t best = NONE
    best_key, best_job = 0, 0
    for q in range(s.domains[d].queue_low, s.domains[d].queue_high):
        queue = &s.queues[q]
        if queue.size == 0:
            continue
        entry = &s.waiting[queue.base + queue.head]
        head = &r.heads[q]
        job_class = &s.job_classes[s.jobs[entry.job].job_class]
        if head.job != entry.job:
            head.job = entry.job
            head.bound = NEVER
        if head.bound < job_class.gpus:
            continue
        if best != NONE and (entry.key > best_key or (entry.key == best_key and entry.job > best_job)):
            continue
        head.bound = reach(s, r, entry.job, job_class)
        if head.bound >= job_class.gpus:
            best, best_key, best_job = q, entry.key, entry.job
    return best


cdef inline int sharing_pass(State s, Residents r, int64_t d) except -1:
    cdef int64_t q, j, step
    cdef Queue* queue
    while True:
        q = first_that_fits(s, r, d)
        if q == NONE:
            return 0
        queue = &s.queues[q]
        j = s.waiting[queue.base + queue.head].job
        step = sharing_choose(s, r, j, &s.job_classes[s.jobs[j].job_class])
        dequeue(s, j)
        sharing_start(s, r, j, step)


def run_shared(State s, Residents r, Key key, int64_t instants):
    """Run at most `instants` instants of a policy that shares GPUs; return False if no event is left."""
    cdef int64_t _, j, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        follow_nodes(s, r)
        while g.ended != NONE:
            j = g.ended
            g.ended = s.jobs[j].stopped
            sharing_leave(s, r, j)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            s.domains[d].freed = 0
            sharing_pass(s, r, d)
        g.touched = 0
    return True


# The jobs that share each GPU, and the nodes with idle or open GPUs (see `residents`).

# Kinds of GPUs: without a job, or with at least one job and a free seat.
cpdef enum:
    IDLE_GPUS = 0
    OPEN_GPUS = 1


def list_all(State s, Residents r):
    cdef int64_t node
    for node in range(len(s.nodes)):
        list_node(s, r, node)


cdef inline int flip(
    Residents r, int64_t kind, Group* group, SharedGroup* shared, Node* node, int64_t jobs, int64_t step
) except -1:
    cdef uint64_t bit = ONE << (node.bit & 63)
    cdef int64_t word = shared.row + jobs * group.words + (node.bit >> 6)
    r.bits[kind, word] ^= bit
    r.counts[kind, shared.count + jobs] += step


cdef inline int list_node(State s, Residents r, int64_t index) except -1:
    """Add an available node to the tables."""
    cdef Node* node = &s.nodes[index]
    if node.up == 0:
        return 0
    cdef SharedNode* mine = &r.nodes[index]
    mine.listed = 1
    cdef SharedGroup* shared = &r.groups[node.group]
    shared.idle += node.free
    shared.open += mine.open
    if node.free > 0:
        flip(r, IDLE_GPUS, &s.groups[node.group], shared, node, mine.jobs, 1)
    if mine.open > 0:
        flip(r, OPEN_GPUS, &s.groups[node.group], shared, node, mine.jobs, 1)


cdef inline int unlist(State s, Residents r, int64_t index) except -1:
    """Remove a node from the tables. Its jobs must be the same as when it was added."""
    cdef SharedNode* mine = &r.nodes[index]
    if mine.listed == 0:
        return 0
    mine.listed = 0
    cdef Node* node = &s.nodes[index]
    cdef SharedGroup* shared = &r.groups[node.group]
    shared.idle -= node.free
    shared.open -= mine.open
    if node.free > 0:
        flip(r, IDLE_GPUS, &s.groups[node.group], shared, node, mine.jobs, -1)
    if mine.open > 0:
        flip(r, OPEN_GPUS, &s.groups[node.group], shared, node, mine.jobs, -1)


cdef inline int enter_candidate(Residents r, int64_t d, int64_t j) except -1:
    cdef Candidates* domain = &r.domains[d]
    r.candidates[domain.base + domain.size] = j
    r.jobs[j].place = domain.size
    domain.size += 1


cdef inline int leave_candidate(Residents r, int64_t d, int64_t j) except -1:
    cdef Candidates* domain = &r.domains[d]
    domain.size -= 1
    cdef int64_t last = r.candidates[domain.base + domain.size]
    r.candidates[domain.base + r.jobs[j].place] = last
    r.jobs[last].place = r.jobs[j].place
    r.jobs[j].place = NONE


cdef inline int sharing_count_alone(Residents r, int64_t d, int64_t j, int64_t change) except -1:
    cdef SharedJob* job = &r.jobs[j]
    job.alone += change
    if job.alone > 0 and job.place == NONE:
        enter_candidate(r, d, j)
    elif job.alone == 0 and job.place != NONE:
        leave_candidate(r, d, j)


cdef inline bint seat(State s, Residents r, int64_t j, int64_t gpu):
    """Let a job join a GPU that has a seat and enough memory; return whether the job is new on the node."""
    cdef Globals* g = &s.g[0]
    cdef int64_t seats = r.g[0].seats
    cdef SharedGpu* cell = &r.gpus[gpu]
    cdef SharedNode* mine = &r.nodes[cell.node]
    cdef int64_t d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    if cell.jobs == 0:
        take_gpus(s, cell.node, 1)
        sharing_count_alone(r, d, j, 1)
    elif cell.jobs == 1:
        sharing_count_alone(r, d, r.seats[gpu * seats], -1)
    r.seats[gpu * seats + cell.jobs] = j
    mine.open += (cell.jobs == 0 and seats > 1) - (cell.jobs > 0 and cell.jobs + 1 == seats)
    cell.jobs += 1
    cell.memory += r.memory[r.jobs[j].step, j]
    cdef bint new = mine.mark != 2 * j
    if new:
        mine.mark = 2 * j
        mine.jobs += 1
    list_node(s, r, cell.node)
    return new


cdef inline int unseat(State s, Residents r, int64_t j, int64_t gpu) except -1:
    """Let a job leave a GPU."""
    cdef Globals* g = &s.g[0]
    cdef int64_t seats = r.g[0].seats
    cdef SharedGpu* cell = &r.gpus[gpu]
    cdef SharedNode* mine = &r.nodes[cell.node]
    cdef int64_t d = s.groups[s.nodes[cell.node].group].domain
    unlist(s, r, cell.node)
    cdef int64_t place = gpu * seats
    while r.seats[place] != j:
        place += 1
    while place < gpu * seats + cell.jobs - 1:
        r.seats[place] = r.seats[place + 1]
        place += 1
    mine.open += (cell.jobs > 1 and cell.jobs == seats) - (cell.jobs == 1 and seats > 1)
    cell.jobs -= 1
    cell.memory -= r.memory[r.jobs[j].step, j]
    if cell.jobs == 0:
        take_gpus(s, cell.node, -1)
        sharing_count_alone(r, d, j, -1)
    elif cell.jobs == 1:
        sharing_count_alone(r, d, r.seats[gpu * seats], 1)
    if mine.mark != 2 * j + 1:
        mine.mark = 2 * j + 1
        mine.jobs -= 1
    list_node(s, r, cell.node)


cdef inline int64_t seats_of_node(
    State s, Residents r, int64_t index, int64_t kind, int64_t room, int64_t wanted, bint keep
):
    """Count a node's GPUs of a kind by index, up to a limit. Open GPUs count only if their memory leaves room.

    `room` is the memory that the GPU's jobs may use [ppm]. With `keep`, the GPUs are chosen.
    """
    cdef int64_t gpu
    cdef SharedGpu* cell
    cdef bint fits
    cdef int64_t seats = r.g[0].seats
    cdef int64_t first = r.nodes[index].first
    cdef int64_t found = 0
    for gpu in range(first, first + s.nodes[index].gpus):
        cell = &r.gpus[gpu]
        fits = cell.jobs == 0 if kind == IDLE_GPUS else 0 < cell.jobs < seats and cell.memory <= room
        if fits and found < wanted:
            found += 1
            if keep:
                r.chosen[r.g[0].chosen] = gpu
                r.g[0].chosen += 1
    return found


cdef inline int64_t sharing_gather(
    State s, Residents r, int64_t d, int64_t model, int64_t kind, int64_t room, int64_t wanted, bint keep
):
    """Count GPUs of a kind on a domain's nodes of one model, and stop once there are enough.

    Nodes with fewer jobs come first, and ties go to the lowest index. See `seats_of_node`.
    """
    cdef int64_t jobs, index, row, word, node
    cdef Group* group
    cdef SharedGroup* shared
    cdef uint64_t bits
    cdef Domain* domain = &s.domains[d]
    cdef int64_t found = 0
    for jobs in range(r.g[0].most + 1):
        for index in range(domain.group_low, domain.group_high):
            group = &s.groups[index]
            shared = &r.groups[index]
            if group.model != model or jobs > shared.most or r.counts[kind, shared.count + jobs] == 0:
                continue
            row = shared.row + jobs * group.words
            for word in range(group.words):
                bits = r.bits[kind, row + word]
                while bits != 0:
                    node = group.low + word * 64 + count_trailing_zeros(bits)
                    bits &= bits - ONE
                    found += seats_of_node(s, r, node, kind, room, wanted - found, keep)
                    if found >= wanted:
                        return found
    return found
