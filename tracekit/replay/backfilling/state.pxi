# The arrays for backfilling, in addition to the engine's (see `waitlist`, `conservative_reservations` and
# `easy_forecast`).


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
    """Waiting jobs by queue (see `waitlist.Waitlist`)."""

    cdef public int32_t[::1] slot
    cdef public int64_t[::1] job
    cdef public int32_t[::1] rank
    cdef public int64_t[::1] least
    cdef public int64_t[::1] level


cdef class Reservations(Arrays):
    """Reservations of waiting jobs (see `conservative_reservations.Reservations`)."""

    cdef public Strip[::1] strips
    cdef public End[::1] ends
    cdef public int64_t[::1] end
    cdef public Entry[::1] late
    cdef public int32_t[::1] late_at
    cdef public Step[::1] steps
    cdef public Reservation[::1] plan
    cdef public int64_t[::1] started
    cdef public Line[::1] lines
    cdef public ReservationFacts[::1] facts


cdef class Forecast(Arrays):
    """Expected ends and the next start (see `easy_forecast.Forecast`)."""

    cdef public Aspect[::1] aspects
    cdef public int64_t[::1] end
    cdef public Entry[::1] heaps
    cdef public int32_t[::1] at
    cdef public int32_t[::1] late_at
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
