# The rows that policies hand to compiled code.


cdef struct FitnessRow:
    int64_t gpus, held, low, high, next, pool
    double fair, factor


EXAMPLES |= {
    "FitnessRow": <FitnessRow[:1]><FitnessRow*>_row,
}
