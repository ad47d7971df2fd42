# The arrays of backfilling, beside those of the engine (see `waitlist`, `reservations` and `forecast`).


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


cdef class Waitlist:
    """Who waits where (see `waitlist.Waitlist`)."""

    cdef int32_t[::1] slot
    cdef int64_t[::1] job
    cdef int32_t[::1] rank
    cdef int64_t[::1] least
    cdef int64_t[::1] level

    def __init__(self, arrays):
        self.slot = arrays.slot
        self.job = arrays.job
        self.rank = arrays.rank
        self.least = arrays.least
        self.level = arrays.level


cdef class Reservations:
    """Who has a reservation (see `reservations.Reservations`)."""

    cdef Strip[::1] strips
    cdef End[::1] ends
    cdef int64_t[::1] end
    cdef Entry[::1] late
    cdef int32_t[::1] late_at
    cdef Step[::1] steps
    cdef Reservation[::1] plan
    cdef int64_t[::1] started
    cdef Line[::1] lines
    cdef ReservationFacts[::1] facts

    def __init__(self, arrays):
        self.strips = arrays.strips
        self.ends = arrays.ends
        self.end = arrays.end
        self.late = arrays.late
        self.late_at = arrays.late_at
        self.steps = arrays.steps
        self.plan = arrays.plan
        self.started = arrays.started
        self.lines = arrays.lines
        self.facts = arrays.facts


cdef class Forecast:
    """What is believed (see `forecast.Forecast`)."""

    cdef Aspect[::1] aspects
    cdef int64_t[::1] end
    cdef Entry[::1] heaps
    cdef int32_t[::1] at
    cdef int32_t[::1] late_at
    cdef ForecastFacts[::1] facts

    def __init__(self, arrays):
        self.aspects = arrays.aspects
        self.end = arrays.end
        self.heaps = arrays.heaps
        self.at = arrays.at
        self.late_at = arrays.late_at
        self.facts = arrays.facts


cdef Strip _strip
cdef End _end
cdef Step _step
cdef Reservation _reservation
cdef Line _line
cdef ReservationFacts _reservationfacts
cdef Aspect _aspect
cdef ForecastFacts _forecastfacts
EXAMPLES |= {
    "Strip": <Strip[:1]>&_strip,
    "End": <End[:1]>&_end,
    "Step": <Step[:1]>&_step,
    "Reservation": <Reservation[:1]>&_reservation,
    "Line": <Line[:1]>&_line,
    "ReservationFacts": <ReservationFacts[:1]>&_reservationfacts,
    "Aspect": <Aspect[:1]>&_aspect,
    "ForecastFacts": <ForecastFacts[:1]>&_forecastfacts,
}
