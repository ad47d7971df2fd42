# Find the jobs to evict without trial evictions. Running jobs are evicted one by one, lowest rank first, until a gang
# fits.
#
# For a gang on one node, we find on each node the last job that would have to go. The node where this job ranks lowest
# has room first. A gang of whole nodes has room once enough nodes have lost all their jobs. For gangs with a remainder,
# we check only whether there would be any room.

# There may be room, but its place is known only after the jobs are gone.
cpdef enum:
    UNKNOWN = -2
cdef int64_t _LAST = 2**63 - 1
# Largest number of nodes of a gang for which we find the nodes that are clear first.
cdef enum:
    _FEW_NODES = 16


cdef inline int64_t eviction_limit(State s, int64_t j):
    """Return the eviction-queue key above which jobs rank below waiting job j."""
    cdef Globals* g = &s.g[0]
    cdef int64_t limit = s.jobs[j].key
    return limit + g.now if g.drift == DRIFT_TIME else limit


cdef inline int64_t last_to_go(State s, int64_t index, int64_t wanted, int64_t key, int64_t job):
    """Return the job whose eviction gives a node `wanted` free GPUs, if its jobs are evicted from the lowest rank up.

    Return NONE if evicting all jobs that rank below (`key`, `job`) is not enough.
    """
    cdef Allocation* allocation
    cdef int64_t free = s.nodes[index].free
    cdef int64_t last = NONE
    cdef int64_t link = s.nodes[index].holder
    while free < wanted:
        if link == NONE:
            return NONE
        allocation = &s.allocations[link]
        if allocation.key < key or (allocation.key == key and allocation.job <= job):
            return NONE
        free += allocation.gpus
        last = allocation.job
        link = allocation.after
    return last


cdef inline int64_t victims_on(State s, int64_t index, int64_t wanted):
    """Write to `scratch` the jobs to evict until a node has `wanted` free GPUs, lowest rank first; return the count."""
    cdef int64_t free = s.nodes[index].free
    cdef int64_t link = s.nodes[index].holder
    cdef int64_t count = 0
    while free < wanted and link != NONE:
        free += s.allocations[link].gpus
        s.scratch[count] = s.allocations[link].job
        link = s.allocations[link].after
        count += 1
    return count


cdef inline int64_t room_without(State s, int64_t index, int64_t limit):
    """Return the GPUs that would be free on a node without the jobs that have a larger eviction-queue key."""
    cdef Node* node = &s.nodes[index]
    cdef int64_t room = node.free
    cdef int64_t link = node.holder
    while link != NONE and s.allocations[link].key > limit:
        room += s.allocations[link].gpus
        link = s.allocations[link].after
    return room


cdef inline bint some_group_has_room(State s, Domain* domain, JobClass* job_class, int64_t limit):
    """Return whether a gang larger than any node would fit in siblings without the jobs with larger keys."""
    cdef int64_t first, index, largest, wanted, rest, whole, enough, member, room
    for first in range(domain.group_low, domain.group_high):
        if s.groups[first].first != first:
            continue
        largest = largest_node(s, job_class, domain, first)
        if largest == 0:
            continue
        wanted = job_class.gpus // largest
        rest = job_class.gpus % largest
        whole = enough = 0
        index = first
        while index != NONE:
            if accepts(job_class, index, domain.group_low):
                for member in range(s.groups[index].low, s.groups[index].high):
                    if s.nodes[member].up:
                        room = room_without(s, member, limit)
                        whole += room == largest
                        enough += room >= rest
            index = s.groups[index].next
        if whole >= wanted and (rest == 0 or enough > wanted):
            return True
    return False


cdef inline int64_t first_victim_suffices(State s, Domain* domain, JobClass* job_class, int64_t limit):
    """Return the node of the lowest-ranked job if evicting this job alone is enough, else NONE."""
    cdef int64_t first = s.g[0].jobs - 1 - s.eviction_queue[domain.eviction_base].job
    if s.jobs[first].nodes > 1:
        return NONE
    cdef int64_t index = s.allocations[s.jobs[first].allocation].node
    cdef Node* node = &s.nodes[index]
    if node.up == 0 or not accepts(job_class, node.group, domain.group_low):
        return NONE
    return index if last_to_go(s, index, job_class.gpus, limit, _LAST) == first else NONE


cdef inline int64_t last_of(State s, int64_t index, int64_t limit):
    """Return the link of the node's job that is evicted last, or NONE if a job's key is not above `limit`."""
    cdef int64_t last = s.nodes[index].holder
    while s.allocations[last].key > limit:
        if s.allocations[last].after == NONE:
            return last
        last = s.allocations[last].after
    return NONE


cdef inline bint goes_before(State s, int64_t link, int64_t other):
    """Return whether the job of a link ranks below the job of another link and is evicted first."""
    cdef Allocation* allocation = &s.allocations[link]
    cdef Allocation* than = &s.allocations[other]
    return allocation.key > than.key or (allocation.key == than.key and allocation.job > than.job)


cdef inline int64_t first_to_be_clear(State s, Group* group, int64_t wanted, int64_t limit):
    """Find the `wanted` nodes of a group that are clear first, including nodes that have no jobs.

    For each node, write the link that is evicted last, after the jobs in `evicted`, and return the number of links. If
    there would never be enough nodes, note how many are missing and return 0. Return UNKNOWN if too many nodes become
    clear at once.
    """
    cdef int64_t count, clear, index, link, place
    cdef Node* node
    cdef int64_t base = s.g[0].evicted
    count = clear = 0
    for index in range(group.low, group.high):
        node = &s.nodes[index]
        if node.up == 0 or node.gpus < group.largest:
            continue
        if node.free == node.gpus:
            clear += 1
            continue
        link = last_of(s, index, limit)
        if link == NONE:
            continue
        # Keep one more node than wanted, to check whether it becomes clear together with the one before.
        place = count
        while place > 0 and goes_before(s, link, s.evicted[base + place - 1]):
            if place <= wanted:
                s.evicted[base + place] = s.evicted[base + place - 1]
            place -= 1
        if place <= wanted:
            s.evicted[base + place] = link
        count = min(count + 1, wanted + 1)
    cdef int64_t missing = wanted - clear
    if count < missing:
        s.g[0].lacking = missing - count
        return 0
    cdef int64_t last = base + missing
    if count > missing and s.allocations[s.evicted[last]].job == s.allocations[s.evicted[last - 1]].job:
        return UNKNOWN
    return missing


cdef inline int64_t victims_of(State s, int64_t nodes):
    """Write to `scratch` the jobs of `nodes` nodes, up to the links just noted, lowest rank first."""
    cdef int64_t i, last, ahead, link, place, other, key, k
    cdef Allocation* allocation
    cdef int64_t base = s.g[0].evicted
    cdef int64_t count = 0
    for i in range(base, base + nodes):
        last = s.evicted[i]
        ahead = s.nodes[s.allocations[last].node].holder
        link = NONE
        while link != last:
            link = ahead
            allocation = &s.allocations[link]
            ahead = allocation.after
            place = count
            while place > 0:
                other = s.scratch[place - 1]
                key = s.jobs[other].key
                if key > allocation.key or (key == allocation.key and other >= allocation.job):
                    break
                place -= 1
            if place > 0 and s.scratch[place - 1] == allocation.job:
                continue
            for k in range(count, place, -1):
                s.scratch[k] = s.scratch[k - 1]
            s.scratch[place] = allocation.job
            count += 1
    return count


cdef inline int64_t victims_of_gang(State s, Domain* domain, JobClass* job_class, int64_t limit):
    """Return the result of `first_victims` for a gang larger than any node."""
    cdef int64_t nodes
    cdef Globals* g = &s.g[0]
    cdef Group* group = &s.groups[domain.group_low]
    cdef int64_t wanted = job_class.gpus // group.largest
    cdef bint one_group = domain.group_high == domain.group_low + 1 and job_class.gpus == wanted * group.largest
    if one_group and wanted <= _FEW_NODES and g.evicted + wanted < len(s.evicted):
        nodes = first_to_be_clear(s, group, wanted, limit)
        return victims_of(s, nodes) if nodes > 0 else nodes
    return UNKNOWN if some_group_has_room(s, domain, job_class, limit) else 0


cdef inline int64_t first_victims(State s, int64_t d, int64_t j, JobClass* job_class):
    """Write to `scratch` the jobs to evict until waiting job j has room, lowest rank first; return their number.

    Return 0 if evicting all jobs that rank below it would not make room, or UNKNOWN if we cannot determine this or the
    jobs. Running jobs are sorted by rank, and the domain has at least one.
    """
    cdef Globals* g = &s.g[0]
    cdef Domain* domain = &s.domains[d]
    if not g.listed or job_class.scope > 0 or s.jobs[j].evicted or g.rule == BUDDY:
        return UNKNOWN
    cdef int64_t limit = eviction_limit(s, j)
    cdef int64_t kinds = sizes(s, domain, job_class)
    if kinds & 2:
        return UNKNOWN if kinds & 1 else victims_of_gang(s, domain, job_class, limit)
    cdef int64_t node = first_victim_suffices(s, domain, job_class, limit)
    cdef int64_t last = NONE
    if node == NONE:
        node, last = first_to_have_room(s, domain, job_class, limit)
    if node == NONE:
        return 0
    if last == NONE:
        return victims_on(s, node, job_class.gpus)
    cdef int64_t nodes = cleared_by(s, domain, job_class, last)
    return victims_of(s, nodes) if nodes > 0 else UNKNOWN


cdef inline int64_t sizes(State s, Domain* domain, JobClass* job_class):
    """Return 1 if some groups can hold a gang on one node, 2 if some can hold it only on several nodes, 3 for both."""
    cdef int64_t index
    cdef int64_t kinds = 0
    for index in range(domain.group_low, domain.group_high):
        if accepts(job_class, index, domain.group_low):
            kinds |= 2 if job_class.gpus > s.groups[index].largest else 1
    return kinds


cdef inline (int64_t, int64_t) first_to_have_room(State s, Domain* domain, JobClass* job_class, int64_t limit):
    """Return the node that has room first, or NONE, and the job evicted last there if other nodes tie with it."""
    cdef int64_t best, several, key, job, index, member, last
    best = several = NONE
    key, job = limit, _LAST
    for index in range(domain.group_low, domain.group_high):
        if not accepts(job_class, index, domain.group_low):
            continue
        for member in range(s.groups[index].low, s.groups[index].high):
            if s.nodes[member].up == 0 or s.nodes[member].gpus < job_class.gpus:
                continue
            last = last_to_go(s, member, job_class.gpus, key, job)
            if last == NONE:
                continue
            # If the same job gives two nodes room at once, the placement rule chooses.
            several = last if best != NONE and last == job + 1 else NONE
            best = member
            key, job = s.jobs[last].key, <int64_t>(last - 1)
    return best, several


cdef inline int64_t cleared_by(State s, Domain* domain, JobClass* job_class, int64_t job):
    """Note the nodes that have room once a job is evicted, as its links after the jobs in `evicted`; count them.

    Return UNKNOWN if there are too many.
    """
    cdef int64_t index, may_go_there
    cdef Node* node
    cdef Globals* g = &s.g[0]
    cdef int64_t count = 0
    cdef int64_t link = s.jobs[job].allocation
    while link != NONE:
        index = s.allocations[link].node
        node = &s.nodes[index]
        may_go_there = node.up and node.gpus >= job_class.gpus and accepts(job_class, node.group, domain.group_low)
        if may_go_there and last_to_go(s, index, job_class.gpus, s.jobs[job].key, job - 1) == job:
            if g.evicted + count == len(s.evicted):
                return UNKNOWN
            s.evicted[g.evicted + count] = link
            count += 1
        link = s.allocations[link].next
    return count
