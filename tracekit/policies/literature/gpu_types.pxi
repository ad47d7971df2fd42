# Bundles of GPUs of one type, bought at prices that rise with use.


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
    """Give jobs without GPUs a bundle each, in an order: the pool that is worth most to them after what it costs.

    Parameters
    ----------
    order : array
        Rows of the jobs.
    gpus : array (k,)
        GPUs of each.
    worth : array (k, P)
        Utility of each per GPU*ms in each pool; 0 where it may not run.
    need : array (k, P)
        What it needs there [GPU*ms].
    low, span : array (P,)
        Price of an idle pool per GPU*ms, and the logarithm of the factor by which that of a full one is higher.
    size, free : array (P,)
        GPUs of each pool, and those that nobody has; lowered by those taken.
    home : array (k,)
        Pool in which a job runs, which it takes between equals; -1 none.
    margin : float
        Part of its utility that a job has to gain by leaving that pool.
    priced : bool
        Whether a job takes only what is worth its price; if not, it takes the free GPUs that are worth most to it.
    chosen : array (k,)
        -1, or the pool of a job that has GPUs; overwritten.
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
