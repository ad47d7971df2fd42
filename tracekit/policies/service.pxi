# Quasi-shortest service first: run times are predicted from jobs that had already ended.


cdef int remember(double[:, ::1] table, int64_t row, int64_t work, double log_work) except -1:
    table[row, 0] += 1
    table[row, 1] += work
    table[row, 2] += log_work


def foretell(
    const int64_t[::1] submit,
    const int64_t[::1] work,
    int64_t[::1] ends,
    int64_t[::1] by_end,
    int64_t[::1] user,
    int64_t[::1] sized,
    int64_t[::1] named,
    double[::1] logs,
    double[:, ::1] of_user,
    double[:, ::1] of_size,
    double[:, ::1] of_name,
    double blend,
    int64_t[::1] foretold,
):
    """Predict run times in time order. Each table row has the count, the sum and the sum of the logarithms."""
    cdef int64_t j, k
    cdef double mean, middle
    cdef int64_t ended = 0
    cdef double count = 0.0
    cdef double total = 0.0
    for j in range(len(submit)):
        while ended < len(by_end) and ends[by_end[ended]] < submit[j]:
            k = by_end[ended]
            ended += 1
            count += 1
            total += work[k]
            remember(of_user, user[k], work[k], logs[k])
            remember(of_size, sized[k], work[k], logs[k])
            remember(of_name, named[k], work[k], logs[k])
        mean = total / count if count > 0 else 1000.0
        middle = mean
        if of_user[user[j], 0] > 0:
            mean = of_user[user[j], 1] / of_user[user[j], 0]
            middle = exp(of_user[user[j], 2] / of_user[user[j], 0])
        if of_size[sized[j], 0] > 0:
            mean = of_size[sized[j], 1] / of_size[sized[j], 0]
            middle = exp(of_size[sized[j], 2] / of_size[sized[j], 0])
        if of_name[named[j], 0] > 0:
            mean = of_name[named[j], 1] / of_name[named[j], 0]
        foretold[j] = max(<int64_t>(blend * mean + (1.0 - blend) * middle), 1)
