# Placement of gangs: rules for whole GPUs, each a few bit scans.
#
# A gang never mixes GPU models. The rules below apply within the nodes of one domain, model and rack that the gang
# accepts, which are the accepted groups among siblings. `largest` is the number of GPUs of their largest node:
#
# - A gang of at most `largest` GPUs goes to one node with enough free GPUs: the node with the fewest free GPUs
#   (best-fit, and consolidate), with the most (worst-fit, also called spread), or the first (first-fit). Ties go to
#   the lowest index.
# - A larger gang takes completely free nodes of the largest size, lowest index first. For a remainder it takes the node
#   with the most free GPUs, if they are enough.
#
# A relaxed gang takes the nodes with the most free GPUs first until it has enough GPUs: within one rack (scope 1), or
# on any nodes of one model (scope 2).
#
# The rule `buddy` uses blocks instead (see `buddy`) and never relaxes: scattered GPUs form no blocks.

cpdef enum:
    BEST_FIT = 0
    WORST_FIT = 1
    FIRST_FIT = 2
    BUDDY = 3


cdef inline bint accepts(JobClass* job_class, int64_t group, int64_t low):
    """Return whether a job class may use a group of a domain whose first group is `low`."""
    return (job_class.accept >> (group - low)) & ONE == ONE


cdef inline int64_t node_of_group(State s, Group* group, int64_t gpus, int64_t rule):
    """Return the node of a group that a rule chooses for a gang that fits on one node, or NONE."""
    cdef int64_t free, node
    cdef int64_t best = NONE
    if rule == WORST_FIT:
        for free in range(group.largest, gpus - 1, -1):
            best = first_with(s, group, free)
            if best != NONE:
                break
        return best
    for free in range(gpus, group.largest + 1):
        node = first_with(s, group, free)
        if node == NONE:
            continue
        if rule == BEST_FIT:
            return node
        if best == NONE or node < best:
            best = node
    return best


cdef inline int64_t one_node(State s, JobClass* job_class, Domain* domain, int64_t rule):
    """Return the node for a gang that fits on one node, over all groups that it accepts, or NONE."""
    cdef int64_t index, node
    cdef Group* group
    cdef bint less, more
    cdef int64_t best = NONE
    for index in range(domain.group_low, domain.group_high):
        group = &s.groups[index]
        if job_class.gpus > group.largest or not accepts(job_class, index, domain.group_low):
            continue
        node = node_of_group(s, group, job_class.gpus, rule)
        if node == NONE:
            continue
        less = best == NONE or s.nodes[node].free < s.nodes[best].free
        more = best == NONE or s.nodes[node].free > s.nodes[best].free
        if (rule == BEST_FIT and less) or (rule == WORST_FIT and more) or best == NONE:
            best = node
    return best


cdef inline Allocation* add_allocation(State s, Job* job, int64_t node, int64_t gpus):
    """Add GPUs of a node to a job's allocation, and return the new entry. The caller updates the node."""
    cdef Globals* g = &s.g[0]
    cdef int64_t link = g.unused_allocation
    cdef Allocation* allocation = &s.allocations[link]
    g.unused_allocation = allocation.next
    allocation.node = node
    allocation.gpus = gpus
    allocation.next = job.allocation
    job.allocation = link
    return allocation


cdef inline int hold_seat(State s, Job* job, int64_t node, int64_t gpu) except -1:
    """Add a job to a shared GPU, and the GPU to its allocation."""
    add_allocation(s, job, node, 1).gpu = gpu
    take_seat(s, node, gpu, 1)


cdef inline int hold(State s, Job* job, int64_t node, int64_t gpus) except -1:
    """Allocate the lowest unused GPUs of a node to a job."""
    if s.g[0].seats:
        hold_seats(s, job, node, gpus)
    else:
        add_allocation(s, job, node, gpus)
        take_gpus(s, node, gpus)


cdef int hold_seats(State s, Job* job, int64_t node, int64_t gpus) except -1:
    cdef int64_t gpu
    cdef int64_t first = s.nodes[node].seat
    cdef int64_t left = s.nodes[node].free - gpus
    for gpu in range(s.nodes[node].gpus - 1, -1, -1):
        if s.allocations[first + gpu].gpus > 0:
            continue
        if left > 0:
            left -= 1
        else:
            hold_seat(s, job, node, gpu)


cdef inline int64_t largest_node(State s, JobClass* job_class, Domain* domain, int64_t first):
    """Return the GPUs of the largest node of accepted siblings, or 0 if the job class accepts none."""
    cdef int64_t largest = 0
    cdef int64_t index = first
    while index != NONE:
        if accepts(job_class, index, domain.group_low):
            largest = max(largest, s.groups[index].largest)
        index = s.groups[index].next
    return largest


cdef inline int64_t sibling_with(State s, JobClass* job_class, Domain* domain, int64_t first, int64_t free):
    """Return the first node with exactly `free` free GPUs in accepted siblings, or NONE."""
    cdef int64_t node
    cdef int64_t index = first
    while index != NONE:
        if s.groups[index].largest >= free and accepts(job_class, index, domain.group_low):
            node = first_with(s, &s.groups[index], free)
            if node != NONE:
                return node
        index = s.groups[index].next
    return NONE


cdef inline int64_t count_with(State s, JobClass* job_class, Domain* domain, int64_t first, int64_t free, int64_t most):
    """Count the nodes with exactly `free` free GPUs in accepted siblings. Counting stops at `most`."""
    cdef int64_t row, word
    cdef uint64_t bits
    cdef Group* group
    cdef int64_t found = 0
    cdef int64_t index = first
    while index != NONE:
        group = &s.groups[index]
        row = group.bits + free * group.words
        for word in range(group.words if group.largest >= free and accepts(job_class, index, domain.group_low) else 0):
            bits = s.bits[row + word]
            while bits != 0:
                bits &= bits - ONE
                found += 1
                if found == most:
                    return found
        index = group.next
    return found


cdef inline int64_t whole_nodes(
    State s, Job* job, JobClass* job_class, Domain* domain, int64_t first, int64_t largest
):
    """Place a gang larger than the largest node of siblings; return its number of nodes, or 0 if it does not fit."""
    cdef int64_t _, free
    cdef int64_t wanted = job_class.gpus // largest
    cdef int64_t rest = job_class.gpus % largest
    cdef int64_t node = NONE
    cdef int64_t found = count_with(s, job_class, domain, first, largest, wanted + (rest > 0))
    if found < wanted:
        return 0
    free = largest - (found == wanted)
    while rest > 0 and node == NONE and free >= rest:
        node = sibling_with(s, job_class, domain, first, free)
        free -= node == NONE
    if rest > 0 and node == NONE:
        return 0
    for _ in range(wanted):
        hold(s, job, sibling_with(s, job_class, domain, first, largest), largest)
    if rest == 0:
        return wanted
    hold(s, job, sibling_with(s, job_class, domain, first, free), rest)
    return wanted + 1


cdef inline int64_t free_of(State s, Group* group, int64_t enough):
    """Count the free GPUs on a group's nodes. Counting may stop once it reaches `enough`."""
    cdef int64_t free, row, word
    cdef uint64_t bits
    cdef int64_t total = 0
    for free in range(group.largest, 0, -1):
        row = group.bits + free * group.words
        for word in range(group.words):
            bits = s.bits[row + word]
            while bits != 0:
                bits &= bits - ONE
                total += free
                if total >= enough:
                    return total
    return total


cdef inline int64_t emptiest(State s, Domain* domain, int64_t only, int64_t model, JobClass* job_class):
    """Return the node with the most free GPUs in siblings (by their first group), or in all groups of a model."""
    cdef int64_t index, free, node
    cdef Group* group
    cdef int64_t best = NONE
    cdef int64_t best_free = 0
    for index in range(domain.group_low, domain.group_high):
        group = &s.groups[index]
        if (only != NONE and group.first != only) or group.model != model:
            continue
        if not accepts(job_class, index, domain.group_low):
            continue
        for free in range(group.largest, best_free, -1):
            node = first_with(s, group, free)
            if node != NONE:
                best, best_free = node, free
                break
    return best


cdef inline int64_t placement_gather(
    State s, Job* job, JobClass* job_class, Domain* domain, int64_t only, int64_t model
):
    """Take the nodes with the most free GPUs until the gang, which must fit, is complete; return how many there are."""
    cdef int64_t node, gpus
    cdef int64_t missing = job_class.gpus
    cdef int64_t count = 0
    while missing > 0:
        node = emptiest(s, domain, only, model, job_class)
        gpus = <int64_t>(min(missing, s.nodes[node].free))
        hold(s, job, node, gpus)
        missing -= gpus
        count += 1
    return count


cdef inline int64_t anywhere(State s, Job* job, JobClass* job_class, Domain* domain, int64_t scope):
    cdef int64_t index, first, model, free
    cdef Group* group
    if scope == 1:
        for first in range(domain.group_low, domain.group_high):
            if s.groups[first].first != first:
                continue
            free = 0
            index = first
            while index != NONE:
                if accepts(job_class, index, domain.group_low):
                    free += free_of(s, &s.groups[index], job_class.gpus)
                index = s.groups[index].next
            if free >= job_class.gpus:
                return placement_gather(s, job, job_class, domain, first, s.groups[first].model)
        return 0
    for first in range(domain.group_low, domain.group_high):
        model = s.groups[first].model
        if first > domain.group_low and s.groups[first - 1].model == model:
            continue
        free = 0
        for index in range(first, domain.group_high):
            group = &s.groups[index]
            if group.model == model and accepts(job_class, index, domain.group_low):
                free += free_of(s, group, job_class.gpus)
        if free >= job_class.gpus:
            return placement_gather(s, job, job_class, domain, NONE, model)
    return 0


cdef inline int64_t place_gang(State s, int64_t j, JobClass* job_class):
    """Allocate GPUs to a job without any; return its number of nodes, or 0 (nothing allocated) if it does not fit."""
    cdef Job* job = &s.jobs[j]
    cdef Domain* domain = &s.domains[job_class.domain]
    if domain.free < job_class.gpus:
        return 0
    if s.g[0].blocks:
        return place_blocks(s, job, job_class, domain)
    return place_numbers(s, job, job_class, domain)


cdef inline int64_t place_numbers(State s, Job* job, JobClass* job_class, Domain* domain):
    cdef int64_t first, nodes, largest
    cdef int64_t node = one_node(s, job_class, domain, s.g[0].rule)
    if node != NONE:
        hold(s, job, node, job_class.gpus)
        return 1
    for first in range(domain.group_low, domain.group_high):
        if s.groups[first].first != first:
            continue
        largest = largest_node(s, job_class, domain, first)
        if 0 < largest < job_class.gpus:
            nodes = whole_nodes(s, job, job_class, domain, first, largest)
            if nodes > 0:
                return nodes
    if job_class.scope > 0:
        return anywhere(s, job, job_class, domain, job_class.scope)
    return 0
