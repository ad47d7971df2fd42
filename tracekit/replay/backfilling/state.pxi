# The arrays for backfilling, in addition to the engine's.


cdef struct Strip:
    int64_t low, high, there, step_low, steps, short, plan_low, planned, last, due, stale, open, begin, end


cdef struct End:
    int64_t time, free, gpus, job


cdef struct Step:
    int64_t time, reserved, free, edge


cdef struct Reservation:
    int64_t time, length, gpus, queue, place, rank


cdef struct Line:
    int64_t place, rank, high, gpus, due, fit, first


cdef struct ReservationFacts:
    int64_t late, exact, depth, started


cdef struct Aspect:
    int64_t low, high, released, later, until, head, state, reserved


cdef struct ForecastFacts:
    int64_t base, late, exact


cdef class Waitlist(Arrays):
    """The arrays of one run. Queue q has the places from its `base` to the next queue's `base`."""

    # Place of each job in a queue, counted from the queue's first (n,).
    cdef public int32_t[::1] slot
    # Job of each place (P,).
    cdef public int64_t[::1] job
    # Number of jobs of the run with smaller keys, by place (P,).
    cdef public int32_t[::1] rank
    # Estimates by place [ms], then the minimum of every 16, and so on. Each level is padded to a multiple of 16.
    cdef public int64_t[::1] least
    # Where each level begins in `least`, and the end of the last level (L + 1,).
    cdef public int64_t[::1] level


cdef class Reservations(Arrays):
    """The arrays of one run."""

    # For each domain (D,): the position of its running jobs in `ends`, the GPUs of its available nodes, the position of
    # its steps, the number of steps that reserve more GPUs than are free, the position of its plan, the rank of the
    # last planned job, the first planned time, whether to plan again, a queue whose jobs are known to have a place (or
    # NONE), and the steps around the gap that was found last.
    cdef public Strip[::1] strips
    # Expected ends of running jobs, ascending. `free`: GPUs that are free from then on if nothing else starts.
    cdef public End[::1] ends
    # Expected end of each running job [ms] (n,).
    cdef public int64_t[::1] end
    # HEAP of running jobs that will run past their expected end, by expected end.
    cdef public Entry[::1] late
    # Position of each job in `late`, or NONE if it is not there (n,).
    cdef public int32_t[::1] late_at
    # Times at which reservations begin or end, the GPUs reserved from then on, and the GPUs that are free then. `edge`:
    # the GPUs that are free just before, if only the running jobs' expected ends count.
    cdef public Step[::1] steps
    # Planned waiting jobs of each domain, in order: when their reservations begin (NONE for never), for how long and
    # how many GPUs, and their places in the waitlist.
    cdef public Reservation[::1] plan
    # Jobs started in this pass.
    cdef public int64_t[::1] started
    # For each queue (Q,): the place and rank of its first waiting job that is not planned (NONE and ANY if there is
    # none), the end of its places, the GPUs that its jobs request, the last time at which one of these jobs was among
    # the first whose reservations begin, a place before which none of them may start in this pass, and the place of the
    # first waiting job, planned or not (`high` if there is none).
    cdef public Line[::1] lines
    # Sizes and settings (1,).
    cdef public ReservationFacts[::1] facts


cdef class Forecast(Arrays):
    """The arrays of one run."""

    # The forecast for each domain (D,).
    cdef public Aspect[::1] aspects
    # Expected end of each running job [ms] (n,).
    cdef public int64_t[::1] end
    # Two HEAPs of each domain: jobs that end by `until`, sorted by -end, from `low` on, and the others, sorted by end,
    # from `high` on.
    cdef public Entry[::1] heaps
    # Position of each job in its heap (n,).
    cdef public int32_t[::1] at
    # Position of each job in the heap of jobs that run past their expected end, or NONE if it is not there (n,).
    cdef public int32_t[::1] late_at
    # Start and size of that heap in `heaps`, and whether the estimates are exact (1,).
    cdef public ForecastFacts[::1] facts


EXAMPLES |= {
    "Strip": <Strip[:1]><Strip*>_row,
    "End": <End[:1]><End*>_row,
    "Step": <Step[:1]><Step*>_row,
    "Reservation": <Reservation[:1]><Reservation*>_row,
    "Line": <Line[:1]><Line*>_row,
    "ReservationFacts": <ReservationFacts[:1]><ReservationFacts*>_row,
    "Aspect": <Aspect[:1]><Aspect*>_row,
    "ForecastFacts": <ForecastFacts[:1]><ForecastFacts*>_row,
}
