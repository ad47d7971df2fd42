# Jobs buy bundles of GPUs of one type at prices that rise with use.


def buy_bundles(
    int64_t[::1] order,
    int64_t[::1] gpus,
    double[:, ::1] worth,
    double[:, ::1] need,
    double[::1] low,
    double[::1] span,
    int64_t[::1] size,
    int64_t[::1] free,
    int64_t[::1] home,
    double margin,
    bint priced,
    int64_t[::1] chosen,
):
    """Give each job without GPUs, in order, a bundle from the pool where its worth exceeds the price most.

    Parameters
    ----------
    order : array
        Rows of the jobs.
    gpus : array (k,)
        GPUs of each job.
    worth : array (k, P)
        Utility of each job per GPU*ms in each pool, or 0 if the job may not run there.
    need : array (k, P)
        GPU time that each job needs in each pool [GPU*ms].
    low, span : array (P,)
        Price per GPU*ms of an idle pool, and the logarithm of the factor by which a full pool is more expensive.
    size, free : array (P,)
        GPUs and free GPUs of each pool; `free` is reduced by the GPUs taken.
    home : array (k,)
        Current pool of each job, preferred among equals, or -1 for none.
    margin : float
        Share of its utility that a job must gain to leave its pool.
    priced : bool
        Whether a job buys only GPUs that are worth their price. If not, it takes the free GPUs that are worth most to
        it.
    chosen : array (k,)
        Pool of each job that has GPUs, or -1 for the others; overwritten.
    """
    cdef int64_t at, i, pool, best
    cdef double price, gain, most
    for at in range(len(order)):
        i = order[at]
        if chosen[i] >= 0:
            continue
        best, most = -1, 0
        for pool in range(len(free)):
            if worth[i, pool] <= 0 or gpus[i] > free[pool]:
                continue
            gain = worth[i, pool]
            if home[i] >= 0 and pool != home[i]:
                gain *= 1 - margin
            if priced:
                price = low[pool] * exp(span[pool] * (size[pool] - free[pool]) / size[pool])
                if worth[i, pool] < price:
                    continue
                gain = (gain - price) * need[i, pool]
            if best < 0 or gain > most or (gain == most and pool == home[i]):
                best, most = pool, gain
        if best >= 0:
            chosen[i] = best
            free[best] -= gpus[i]
