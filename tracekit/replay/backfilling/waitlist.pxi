# Search and update the waitlist (see `make_waitlist`).

# A limit above the estimate of every waiting job.
cdef int64_t ANY = (1 << 62) - 1
ANY_LIMIT = ANY
# State of a queue in a pass (its `blocked`): unknown, no place for its jobs now, or a place but they may not start.
cpdef enum:
    OPEN = 0
    NO_PLACE = 1
    NO_JOB = 2


def keys(State s, Key key, int64_t[::1] keys):
    cdef int64_t j
    for j in range(len(keys)):
        keys[j] = key_now(s, key, &s.jobs[j])


cdef inline int put(Waitlist w, int64_t place, int64_t value) except -1:
    cdef int64_t k, above, low, i
    cdef int64_t before = w.least[place]
    w.least[place] = value
    for k in range(1, len(w.level) - 1):
        place >>= 4
        above = w.level[k] + place
        if value >= w.least[above]:
            if before > w.least[above]:
                break
            # The old value was the smallest of its 16, or equal to the smallest.
            low = w.level[k - 1] + (place << 4)
            value = w.least[low]
            for i in range(low + 1, low + 16):
                value = min(value, w.least[i])
        before = w.least[above]
        if value == before:
            break
        w.least[above] = value


cdef inline int join_queue(State s, Waitlist w, int64_t j) except -1:
    """Record a job that joined its queue."""
    cdef Queue* queue = &s.queues[s.job_classes[s.jobs[j].job_class].queue]
    put(w, queue.base + w.slot[j], s.jobs[j].estimate)
    if queue.blocked == NO_JOB:
        queue.blocked = OPEN


cdef inline int leave_queue(State s, Waitlist w, int64_t j) except -1:
    """Remove a job from its queue."""
    dequeue(s, j)
    put(w, s.queues[s.job_classes[s.jobs[j].job_class].queue].base + w.slot[j], NEVER)


cdef inline int relax(State s, Waitlist w, int64_t j) except -1:
    """Let a job that has waited long enough accept GPUs that are farther apart."""
    leave_queue(s, w, j)
    s.jobs[j].job_class = s.job_classes[s.jobs[j].job_class].relaxed
    enqueue(s, j, s.jobs[j].key)
    join_queue(s, w, j)


cdef inline int64_t stretch(Queue[::1] queues, Entry[::1] waiting, int64_t q):
    """Return the end of a queue's places."""
    return queues[q + 1].base if q + 1 < len(queues) else len(waiting)


cdef inline int64_t first_place(Waitlist w, int64_t low, int64_t high, int64_t limit):
    """Return the first of the places [low, high) with a waiting job whose estimate is at most `limit`, or NONE."""
    cdef int64_t base, end
    cdef int64_t k = 0
    cdef int64_t place = low
    while True:
        base = w.level[k]
        if base + place >= w.level[k + 1] or place << (4 * k) >= high:
            return NONE
        end = (place | 15) + 1
        while place < end and w.least[base + place] > limit:
            place += 1
        if place < end:
            break
        place >>= 4
        k += 1
        if k == len(w.level) - 1:
            return NONE
    while k > 0:
        k -= 1
        place <<= 4
        while w.least[w.level[k] + place] > limit:
            place += 1
    return place if place < high else NONE


cdef inline int64_t place_after(Waitlist w, int64_t low, int64_t high, int64_t rank):
    """Return the first of the places [low, high) whose job comes after a rank, or `high` if no job does."""
    cdef int64_t middle
    while low < high:
        middle = (low + high) >> 1
        if w.rank[middle] > rank:
            high = middle
        else:
            low = middle + 1
    return low
