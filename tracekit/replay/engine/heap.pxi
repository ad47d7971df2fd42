# A binary heap of (key, job) in a section of an array, smallest first, with the position of each job.
#
# With the position array, entries are removed and re-keyed in place. No stale entries pile up, so the number of jobs
# bounds the memory. Ties go to the smaller job number.


cdef inline int rise(Entry[::1] heap, int32_t[::1] at, int64_t base, int64_t place, int64_t key, int64_t job) except -1:
    cdef int64_t parent
    cdef Entry* above
    while place > 0:
        parent = (place - 1) >> 1
        above = &heap[base + parent]
        if above.key < key or (above.key == key and above.job < job):
            break
        heap[base + place].key = above.key
        heap[base + place].job = above.job
        at[above.job] = place
        place = parent
    heap[base + place].key = key
    heap[base + place].job = job
    at[job] = place


cdef inline int sink(
    Entry[::1] heap, int32_t[::1] at, int64_t base, int64_t size, int64_t place, int64_t key, int64_t job
) except -1:
    cdef int64_t child
    cdef Entry* below
    cdef Entry* other
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        below = &heap[base + child]
        if child + 1 < size:
            other = &heap[base + child + 1]
            # Which child is smaller is unpredictable, so we add the comparison instead of branching.
            child += (other.key < below.key) | ((other.key == below.key) & (other.job < below.job))
            below = &heap[base + child]
        if key < below.key or (key == below.key and job < below.job):
            break
        heap[base + place].key = below.key
        heap[base + place].job = below.job
        at[below.job] = place
        place = child
    heap[base + place].key = key
    heap[base + place].job = job
    at[job] = place


cdef inline int heap_push(
    Entry[::1] heap, int32_t[::1] at, int64_t base, int64_t size, int64_t key, int64_t job
) except -1:
    """Add a job to a heap of `size` entries. The caller updates the size."""
    rise(heap, at, base, size, key, job)


cdef inline int heap_pop(Entry[::1] heap, int32_t[::1] at, int64_t base, int64_t size) except -1:
    """Remove the first entry of a heap of `size` entries (at least one). The caller updates the size."""
    cdef Entry* last
    at[heap[base].job] = -1
    if size > 1:
        last = &heap[base + size - 1]
        sink(heap, at, base, size - 1, 0, last.key, last.job)


cdef inline int heap_remove(Entry[::1] heap, int32_t[::1] at, int64_t base, int64_t size, int64_t job) except -1:
    """Remove a job that is in a heap of `size` entries. The caller updates the size."""
    cdef int64_t key, other
    cdef Entry* above
    cdef int64_t place = at[job]
    at[job] = -1
    if place == size - 1:
        return 0
    cdef Entry* last = &heap[base + size - 1]
    key, other = last.key, last.job
    if place > 0:
        above = &heap[base + ((place - 1) >> 1)]
        if key < above.key or (key == above.key and other < above.job):
            rise(heap, at, base, place, key, other)
            return 0
    sink(heap, at, base, size - 1, place, key, other)
