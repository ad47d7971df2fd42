# Idle nodes are switched off, and on again when jobs wait for them or the reserve is too small.
#
# A switch is a node change like the cluster's own. It joins the pending changes, so it happens at its proper place
# within an instant. Past changes make room for new ones, and a node has at most one pending switch, so the list has at
# most as many entries as the cluster has changes and nodes.

cdef enum:
    _HOUR_MS = 3_600_000
# Status of a node. A node that the cluster took away is ON, because the policy may not switch it.
cdef enum:
    _ON = 0
    _LEAVING = 1
    _OFF = 2
    _WAKING = 3


cdef inline double paid_until(Switches w, int64_t time):
    """Return the integral of the price from the first hour in the list [price * ms], like PowerPrices.paid."""
    cdef int64_t hour
    cdef double total = 0
    cdef double found = 0
    cdef int64_t hours = len(w.price)
    cdef int64_t left = time + w.m[0].lead
    for hour in range(hours):
        total += w.price[hour] * _HOUR_MS
    found = <double>(left // (hours * _HOUR_MS)) * total
    left = left % (hours * _HOUR_MS)
    hour = 0
    while left >= _HOUR_MS:
        found += w.price[hour] * _HOUR_MS
        left -= _HOUR_MS
        hour += 1
    return found + w.price[hour] * left


cdef inline int meter_pools(State s, Switches w) except -1:
    """Add the time since the last call to the integrals of the GPUs that were off."""
    cdef int64_t i
    cdef SwitchPool* pool
    cdef Globals* g = &s.g[0]
    cdef int64_t elapsed = g.now - w.m[0].since
    cdef double dear = 0
    w.m[0].since = g.now
    if len(w.price) > 0 and elapsed > 0:
        dear = -w.m[0].paid
        w.m[0].paid = paid_until(w, g.now)
        dear += w.m[0].paid
    for i in range(len(w.pools)):
        pool = &w.pools[i]
        pool.off_ms += elapsed * pool.off
        pool.down_ms += elapsed * pool.down
        pool.unpaid += dear * pool.off
        if g.last_end == g.now:
            pool.off_ms_at_end, pool.down_ms_at_end, pool.wakes_at_end = pool.off_ms, pool.down_ms, pool.wakes
            pool.unpaid_at_end = pool.unpaid


cdef inline int plan_switch(State s, Switches w, int64_t node, int64_t time, int64_t up) except -1:
    """Add a switch to the pending changes."""
    cdef int64_t i
    cdef Globals* g = &s.g[0]
    if g.change > 0:
        for i in range(g.change, g.changes):
            s.changes[i - g.change] = s.changes[i]
        g.changes -= g.change
        g.change = 0
    i = g.changes
    while i > 0 and s.changes[i - 1].time > time:
        s.changes[i] = s.changes[i - 1]
        i -= 1
    s.changes[i].time, s.changes[i].node, s.changes[i].up, s.changes[i].kills = time, node, up, 0
    g.changes += 1
    w.due[node] = time


cdef inline int forget_switch(State s, Switches w, int64_t node) except -1:
    """Remove the pending switch of a node from the changes."""
    cdef int64_t i
    cdef bint found = False
    cdef Globals* g = &s.g[0]
    for i in range(g.change, g.changes):
        if found:
            s.changes[i - 1] = s.changes[i]
        elif s.changes[i].node == node and s.changes[i].time == w.due[node]:
            found = True
    g.changes -= found


cdef inline int settle_switches(State s, Switches w, int64_t before) except -1:
    """Process the changes in this instant: completed switches, and nodes that joined or left independently."""
    cdef int64_t i, node
    cdef SwitchPool* pool
    cdef bint ours
    cdef Globals* g = &s.g[0]
    for i in range(before, g.change):
        node = s.changes[i].node
        pool = pool_of(s, w, node)
        ours = w.due[node] == g.now and s.changes[i].up == (w.status[node] == _WAKING)
        if w.status[node] == _LEAVING and ours:
            w.status[node] = _OFF
            pool.off += s.nodes[node].gpus
            pool.down += s.nodes[node].gpus
            continue
        if w.status[node] == _OFF or w.status[node] == _WAKING:
            # The node is on, or the cluster took it away.
            pool.down -= s.nodes[node].gpus
            if w.status[node] == _OFF:
                pool.off -= s.nodes[node].gpus
        if w.status[node] != _ON and not ours:
            forget_switch(s, w, node)
        w.status[node] = _ON
        w.idle_since[node] = g.now


cdef inline SwitchPool* pool_of(State s, Switches w, int64_t node):
    """Return the pool that a node belongs to."""
    cdef int64_t i
    for i in range(len(w.pools)):
        if node < w.pools[i].node_high:
            return &w.pools[i]
    return &w.pools[0]


cdef inline int look_at_nodes(State s, Switches w, SwitchPool* pool) except -1:
    """Sum up the resources of a pool, and note the time at which each of its nodes became idle."""
    cdef int64_t i
    cdef Node* node
    cdef int64_t now = s.g[0].now
    pool.idle_nodes = pool.idle_gpus = pool.free_gpus = pool.waking_nodes = pool.waking_gpus = pool.leaving = 0
    for i in range(pool.node_low, pool.node_high):
        node = &s.nodes[i]
        if w.status[i] == _WAKING:
            pool.waking_nodes += 1
            pool.waking_gpus += node.gpus
        elif w.status[i] == _LEAVING:
            pool.leaving += 1
        elif node.up:
            pool.free_gpus += node.free
            if node.free == node.gpus:
                pool.idle_nodes += 1
                pool.idle_gpus += node.gpus
                if w.idle_since[i] == NONE:
                    w.idle_since[i] = now
            else:
                w.idle_since[i] = NONE


cdef inline int look_at_queue(State s, Switches w, int64_t low, int64_t high, int64_t d) except -1:
    """Sum up the requests of a domain's waiting jobs by pool. Each job counts in every pool that it may use."""
    cdef int64_t q, i, k, group
    cdef Queue* queue
    cdef JobClass* job_class
    cdef SwitchPool* pool
    cdef Domain* domain = &s.domains[d]
    cdef int64_t unsated = high - low
    for k in range(low, high):
        w.pools[k].wanted = w.pools[k].waits = 0
    for q in range(domain.queue_low, domain.queue_high):
        queue = &s.queues[q]
        for i in range(queue.size):
            job_class = &s.job_classes[s.jobs[s.waiting[queue.base + queue.head + i].job].job_class]
            for k in range(low, high):
                pool = &w.pools[k]
                if pool.wanted >= pool.gpus:
                    continue
                for group in range(pool.group_low, pool.group_high):
                    if accepts(job_class, group, domain.group_low):
                        pool.waits = 1
                        pool.wanted += job_class.gpus
                        unsated -= pool.wanted >= pool.gpus
                        break
            if unsated == 0:
                return 0


cdef inline int wake_node(State s, Switches w, SwitchPool* pool) except -1:
    """Switch on the first node that is off in a pool."""
    cdef int64_t i
    for i in range(pool.node_low, pool.node_high):
        if w.status[i] == _OFF:
            w.status[i] = _WAKING
            pool.off -= s.nodes[i].gpus
            pool.waking_nodes += 1
            pool.waking_gpus += s.nodes[i].gpus
            pool.wakes += 1
            plan_switch(s, w, i, s.g[0].now + w.m[0].wake_ms, 1)
            return 0


cdef inline int switch_on(State s, Switches w, SwitchPool* pool) except -1:
    """Wake as many nodes as waiting jobs or the reserve need.

    Jobs may wait while enough GPUs are free, because gangs need whole nodes. Then wake one node at a time.
    """
    cdef SwitchRow* m = &w.m[0]
    while pool.off > 0 and pool.waits and pool.wanted > pool.idle_gpus + pool.waking_gpus:
        wake_node(s, w, pool)
    if pool.off > 0 and pool.waits and pool.waking_nodes == 0:
        wake_node(s, w, pool)
    while pool.off > 0 and (
        pool.idle_nodes + pool.waking_nodes < m.reserve_nodes or pool.free_gpus + pool.waking_gpus < m.reserve_gpus
    ):
        wake_node(s, w, pool)


cdef inline int64_t switch_off(State s, Switches w, SwitchPool* pool) except -1:
    """Switch off long-idle nodes beyond the reserve, starting with the last; return when to check again, or NEVER."""
    cdef int64_t i, gpus, due
    cdef SwitchRow* m = &w.m[0]
    cdef int64_t now = s.g[0].now
    cdef int64_t again = NEVER
    for i in range(pool.node_high - 1, pool.node_low - 1, -1):
        if w.status[i] != _ON or s.nodes[i].up == 0 or s.nodes[i].free != s.nodes[i].gpus:
            continue
        gpus = s.nodes[i].gpus
        if pool.idle_nodes <= m.reserve_nodes or pool.free_gpus - gpus < m.reserve_gpus:
            continue
        due = max(w.idle_since[i] + m.off_after, now + 1)
        if due > now + 1:
            again = min(again, due - 1)
            continue
        w.status[i] = _LEAVING
        pool.idle_nodes -= 1
        pool.free_gpus -= gpus
        plan_switch(s, w, i, due, 0)
    return again


cdef inline int switch_nodes(State s, Switches w) except -1:
    """Decide which nodes to switch once the jobs of an instant have started."""
    cdef int64_t low, high, k
    cdef int64_t again = NEVER
    cdef int64_t pools = len(w.pools)
    low = 0
    while low < pools:
        high = low
        while high < pools and w.pools[high].domain == w.pools[low].domain:
            look_at_nodes(s, w, &w.pools[high])
            high += 1
        look_at_queue(s, w, low, high, w.pools[low].domain)
        for k in range(low, high):
            switch_on(s, w, &w.pools[k])
            if not w.pools[k].waits and w.m[0].off_after < NEVER:
                again = min(again, switch_off(s, w, &w.pools[k]))
        low = high
    s.g[0].wake = NONE if again == NEVER else again


def run_switched(State s, Switches w, Key key, int64_t instants):
    """Run at most `instants` instants of an ordering policy on switched nodes; return False if no event is left."""
    cdef int64_t _, i, d, before
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        before = g.change
        if not next_instant(s, key):
            return False
        meter_pools(s, w)
        settle_switches(s, w, before)
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            list_pass(s, key, d, False)
        g.touched = 0
        g.loosened = 0
        switch_nodes(s, w)
    return True
