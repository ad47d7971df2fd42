# The arrays of a site's rules, in addition to the engine's.


# What jobs of one kind need on each of their nodes. `failed` is the shortest believed run time with which a job of the
# kind did not fit in pass number `tried`. `line` is the line of its partition (see SiteFacts).
cdef struct Need:
    int64_t cpu, memory, failed, tried
    int32_t gpus, nodes, line


# For each line: the pass in which it was closed, the pass in which its first waiting job got a promise, and the time at
# which that job can start.
cdef struct SiteLine:
    int64_t closed, promised, start


# A running job and when it should end.
cdef struct Ending:
    int64_t time, job


# A limit of one owner: the most that may run at once, and what runs now.
cdef struct Counter:
    int64_t most, used


# Free amounts on a node, and its place in the site's list. `pass_of` is the pass to which amounts next to a promised
# job belong.
cdef struct Room:
    int64_t cpu, memory, pass_of
    int32_t gpus, chosen, place, spare


# Number of passes so far, of waiting and of running jobs, what happens behind a job that cannot start, whether the
# order depends on the GPUs that owners use, and the number of jobs that others stopped in this pass.
cdef struct SiteFacts:
    int64_t passes, waiting, running, backfill, shared, stopped


cdef class SiteRules(Arrays):
    """The arrays of one run. There are n jobs, K needs, L lines, N nodes, B limits and C counters."""

    cdef public SiteFacts[::1] facts
    cdef public Need[::1] needs
    # Index in `needs` of each job (n,).
    cdef public int32_t[::1] need
    # Place of each job in the order of all jobs (n,).
    cdef public int32_t[::1] rank
    # Tier of each job, the first to be served lowest (n,), and its owner under fair share or NONE (n,).
    cdef public int32_t[::1] tier
    cdef public int32_t[::1] owner
    # GPUs in use by owner (owners,).
    cdef public int64_t[::1] share
    # Believed run time of each job [ms] (n,).
    cdef public int64_t[::1] length
    # Counter of each limit for each job, or NONE if the limit does not concern it (n, B).
    cdef public int32_t[:, ::1] counter
    # Whether each limit counts GPUs (1) or jobs (0) (B,).
    cdef public int8_t[::1] of_gpus
    cdef public Counter[::1] counters
    cdef public SiteLine[::1] lines
    # Free amounts on each node (N,), and what they will be once running jobs have ended (N,).
    cdef public Room[::1] room
    cdef public Room[::1] later
    # Free amounts next to each line's promised job (L, N).
    cdef public Room[:, ::1] left
    # Waiting jobs in order, and the order's first key at the last sorting (n,).
    cdef public int32_t[::1] waiting
    cdef public int64_t[::1] turn
    # Running jobs by their expected end (n,), and the expected end of each job (n,) [ms].
    cdef public Ending[::1] running
    cdef public int64_t[::1] ends
    # The rules by which each job may stop others, and by which others may stop it, as bits (n,).
    cdef public int64_t[::1] may_stop
    cdef public int64_t[::1] yields
    # Jobs that a job may stop, the youngest first (n,), and jobs that were stopped in this pass (n,).
    cdef public int32_t[::1] victims
    cdef public int32_t[::1] stopped


EXAMPLES |= {
    "Need": <Need[:1]><Need*>_row,
    "SiteLine": <SiteLine[:1]><SiteLine*>_row,
    "Ending": <Ending[:1]><Ending*>_row,
    "Counter": <Counter[:1]><Counter*>_row,
    "Room": <Room[:1]><Room*>_row,
    "SiteFacts": <SiteFacts[:1]><SiteFacts*>_row,
}
