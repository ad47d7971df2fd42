# Two jobs on one GPU: how fast each runs, and whether sharing is better than waiting. Integers only.
#
# The theorem behind the test: job B runs with b of work left when job A arrives with a of work. Side by side, A takes
# a / ra and B takes b / rb, where ra and rb are their speeds next to each other. The mean of the two end times is
# piecewise linear in the delay after which A joins, so the best delay is 0 or b. Let P = 1,000,000 be the speed of a
# job alone, and count the mean end from A's arrival:
#
# - share now, A outlasts B (a * rb >= b * ra): a / 2 + (2P - ra) * b / (2 rb)
# - share now, B outlasts A: b / 2 + (2P - rb) * a / (2 ra)
# - wait: b + a / 2
#
# For given speeds the answer depends only on b / a: if sharing is better for some b, it is better for any larger b.

# Largest amount of work in the test, 139 years; larger amounts count as this much, so that products fit into 64 bits.
cdef int64_t MOST_MS = 1 << 42
cdef int64_t _HALF = PPM * PPM // 2


cpdef int64_t pair_speed(int64_t strength, int64_t victim, int64_t partner):
    """Return the speed of a job next to another, given their GPU utilizations (M1) [ppm].

    `strength` is c in ppm, or -1 for the rule that both slow down if they request more than the GPU has (D5).
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
        Work of A if it waits [ms].
    a : int
        Work of A if it joins; larger if it runs in sub-batches [ms].
    b : int
        Remaining work of B [ms].
    ra, rb : int
        Their speeds next to each other, 1 to 1,000,000 [ppm].
    """
    if a * rb >= b * ra:
        return rb * (a - alone) < (2 * rb + ra - 2 * PPM) * b
    return (2 * PPM - rb) * a - ra * alone < ra * b


cpdef int64_t mean_end(int64_t a, int64_t b, int64_t ra, int64_t rb):
    """Return the sum of both end times if A joins B now, rounded down, counted from now [ms]."""
    if a * rb >= b * ra:
        return a + (2 * PPM - ra) * b // rb
    return b + (2 * PPM - rb) * a // ra
