# The rows that policies pass to compiled code.


cdef struct FitnessRow:
    int64_t gpus, held, low, high, next, pool, first
    double fair, factor


# A job that may get more GPUs or a higher clock. `clock` is an index (0 for the highest), `left` is its work [ms on one
# GPU], and `to_gpus` and `to_clock` are its next step.
cdef struct FlowRow:
    int64_t gpus, high, pool, clock, kind, to_gpus, to_clock
    double left


EXAMPLES |= {
    "FlowRow": <FlowRow[:1]><FlowRow*>_row,
    "FitnessRow": <FitnessRow[:1]><FitnessRow*>_row,
}
