# A cap on GPU power: the clock of all running jobs is lowered in steps until the power is below the cap.
#
# Besides the engine's state, we keep two sums: the power of all running jobs at full clock, and their idle power. The
# power at any clock is then one multiplication (M7). We also keep the list of running jobs, but read it only when the
# step changes.

cdef enum:
    _HOUR = 3_600_000
# Largest power of a cluster: 1.1 GW. One hour of it [mW * ms] stays far below the 64-bit limit.
cdef int64_t _MOST_MW = 1 << 40


cdef inline int book(Meter p, Globals* g) except -1:
    """Add the energy since the last call, at the power that applied.

    The energy beyond the idle power is a whole number of mWh plus a fraction [mW * ms]. Whole hours go directly into
    the whole number. The rest is less than an hour, so its product with less than 2^40 mW stays below 2^62. The whole
    number has room for 9 * 10^12 kWh.
    """
    cdef int64_t hours, carried
    cdef MeterRow* m = &p.m[0]
    cdef int64_t elapsed = g.now - m.since
    if elapsed > 0:
        m.since = g.now
        hours = elapsed // _HOUR
        m.part += m.level * (elapsed - hours * _HOUR)
        carried = m.part // _HOUR
        m.part -= carried * _HOUR
        m.mwh += m.level * hours + carried
        m.peak = max(m.peak, m.total)
        if m.total > m.cap:
            m.over += elapsed
        if m.step > 0:
            m.slowed += elapsed
    if g.last_end == g.now:
        m.over_at_end = m.over
        m.slowed_at_end = m.slowed


cdef inline int count_jobs(State s, Meter p) except -1:
    """Subtract jobs that ended in this instant from the sums, and add jobs that started."""
    cdef int64_t j, last
    cdef Globals* g = &s.g[0]
    cdef MeterRow* m = &p.m[0]
    while g.ended != NONE:
        j = g.ended
        g.ended = s.jobs[j].stopped
        m.full -= s.jobs[j].gpus * p.busy[j]
        m.rest -= s.jobs[j].gpus * p.rest[j]
        m.size -= 1
        last = p.running[m.size]
        p.running[p.at[j]] = last
        p.at[last] = p.at[j]
    while g.begun != NONE:
        j = g.begun
        g.begun = s.jobs[j].stopped
        m.full += s.jobs[j].gpus * p.busy[j]
        m.rest += s.jobs[j].gpus * p.rest[j]
        p.running[m.size] = j
        p.at[j] = m.size
        m.size += 1


cdef inline int64_t idle_power(State s, Meter p):
    """Return the idle power of all GPUs [mW]. GPUs in use on nodes that left count with the cluster's mean power."""
    cdef int64_t index, sign
    cdef Globals* g = &s.g[0]
    cdef MeterRow* m = &p.m[0]
    while m.change < g.change:
        index = s.changes[m.change].node
        m.change += 1
        sign = s.nodes[index].up - p.up[index]
        p.up[index] = s.nodes[index].up
        m.present += sign * p.idle[index]
        m.there += sign * s.nodes[index].gpus
    return m.present + max(g.busy + g.free - m.there, 0) * m.mean


cdef inline int keep_cap(State s, Meter p) except -1:
    """Choose the highest clock that keeps the cap, or the lowest if none does, and set it for all running jobs."""
    cdef int64_t i, j
    cdef Globals* g = &s.g[0]
    cdef MeterRow* m = &p.m[0]
    book(p, g)
    count_jobs(s, p)
    cdef int64_t idle = idle_power(s, p)
    cdef int64_t step = 0
    cdef int64_t level = p.drawn[0] * m.full // PPM - m.rest
    while idle + level > m.cap and step < m.lowest and m.size > 0:
        step += 1
        level = p.drawn[step] * m.full // PPM - m.rest
    m.level = level
    m.total = idle + level
    if step == m.step:
        return 0
    m.step = step
    m.changes += 1
    g.speed = p.speed[step]
    for i in range(m.size):
        j = p.running[i]
        change_rate(s, j, max(g.speed * s.jobs[j].pace // PPM, 1))


def run_capped(State s, Meter p, Key key, int64_t instants):
    """Run at most `instants` instants of an ordering policy under a cap; return False if no event is left."""
    cdef int64_t _, i, d
    cdef Globals* g = &s.g[0]
    for _ in range(instants):
        if not next_instant(s, key):
            return False
        for i in range(g.touched):
            d = s.touched[i]
            s.domains[d].touched = 0
            list_pass(s, key, d, g.preemptive)
        g.touched = 0
        g.loosened = 0
        keep_cap(s, p)
    return True
