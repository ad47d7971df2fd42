# Two jobs on one GPU: how fast each runs, and whether sharing is better than waiting. Integers only.
#
# The theorem behind the test: job B runs with b of work left, A arrives with a. Side by side A takes a / ra and B takes
# b / rb (ra and rb are their speeds beside each other). The mean of the two ends is piecewise linear in the delay after
# which A joins, so that the best delay is none or b. With P = 1,000,000 the speed of a job alone, and the mean end
# counted from A's arrival:
#
# - share now, A outlasting B (a * rb >= b * ra): a / 2 + (2P - ra) * b / (2 rb)
# - share now, B outlasting A: b / 2 + (2P - rb) * a / (2 ra)
# - wait: b + a / 2
#
# For given speeds the answer depends on b / a alone: if sharing with some b is better, so is sharing with any larger
# one.

# Longest work that the test distinguishes, 139 years; longer counts as so much, so that products fit 64 bits.
cdef int64_t MOST_MS = 1 << 42
cdef int64_t _HALF = PPM * PPM // 2


cpdef int64_t pair_speed(int64_t strength, int64_t victim, int64_t partner):
    """Return the speed of a job beside another by their GPU utilizations (M1) [ppm].

    `strength` is c in ppm, or -1 for the rule that both slow down when they ask for more than the GPU has (D5).
    """
    cdef int64_t together
    if strength < 0:
        together = max(victim + partner, PPM)
        return (PPM * PPM + together // 2) // together
    return max(PPM - (strength * victim * partner + _HALF) // (PPM * PPM), 1)


cpdef bint shares(int64_t alone, int64_t a, int64_t b, int64_t ra, int64_t rb):
    """Return whether A should join B now rather than wait until B has ended.

    Parameters
    ----------
    alone : int
        Work of A when it waits [ms].
    a : int
        Work of A when it joins, larger where it runs in sub-batches [ms].
    b : int
        Work that B has left [ms].
    ra, rb : int
        Their speeds beside each other, 1 to 1,000,000 [ppm].
    """
    if a * rb >= b * ra:
        return rb * (a - alone) < (2 * rb + ra - 2 * PPM) * b
    return (2 * PPM - rb) * a - ra * alone < ra * b


cpdef int64_t mean_end(int64_t a, int64_t b, int64_t ra, int64_t rb):
    """Return the sum of both ends when A joins B now, rounded down, counted from now [ms]."""
    if a * rb >= b * ra:
        return a + (2 * PPM - ra) * b // rb
    return b + (2 * PPM - rb) * a // ra
