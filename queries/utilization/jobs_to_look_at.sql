-- title: Jobs to look at
-- question: Which jobs wasted the most GPU-hours, and how?
-- paper: none
-- tables: jobs, attempts
-- also: placements, nodes, gpu_utilization, job_usage
-- needs: gpu_count
-- param n: 20 | maximum number of jobs listed
-- param min_gpu_h: 1 | minimum GPU-hours of a listed job
-- param idle_pct: 10 | highest mean use of a mostly idle job, and of a GPU that is idle while others work, in percent
-- param times: 10 | report a job that requested this many times the time, memory or processors that it used
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- column job_id: text | the job
-- column user: text | user who submitted the job; NULL when unknown
-- column account: text | the account that pays for the job; NULL when unknown
-- column partition: text | the job's partition; NULL when unknown
-- column gpu_count: GPUs | GPUs of the job
-- column held_gpu_h: GPU-hours | allocated to the job's attempts
-- column wasted_gpu_h: GPU-hours | allocated to attempts that failed or were preempted, plus the idle GPU-hours of all other attempts
-- column coverage_share: share | GPU-hours with known use / held_gpu_h
-- column reason: sentence | why the job is listed, with the numbers; the largest waste comes first
-- rule:
-- Held, covered, idle, failed, preempted and wasted GPU-hours are defined as in utilization/efficiency. The reasons are
-- these. never used: at least half of the GPU-hours are covered, and the use was always 0. mostly idle: at least half
-- are covered, and the mean use is at most idle_pct. GPUs idle beside others: of two or more sampled GPUs, some had a
-- use of at most idle_pct and others more. failed, preempted: the GPU-hours of such attempts, if they are at least
-- min_gpu_h. asked for much more than it used (time limit, memory, processors): completed jobs that used at most 1 /
-- times of the request. This wastes no GPU-hours, but makes other jobs wait, so jobs with only this reason come last.
-- Sorted by GPU-hours wasted and then held, both in descending order.
WITH ended AS (
    SELECT
        *,
        coalesce(CASE WHEN $rule = 'retried' THEN failed_or_retried ELSE failed END, FALSE)
        AND status IS DISTINCT FROM 'timeout' AS lost
    FROM attempt_use
    WHERE gpu_s IS NOT NULL
),

job_hours AS (
    SELECT
        job_id,
        CAST(sum(gpu_s) AS DOUBLE) / 3600 AS held,
        CAST(sum(covered_gpu_s) AS DOUBLE) / 3600 AS covered,
        CAST(sum(used_gpu_s) AS DOUBLE) / 3600 AS used,
        CAST(sum(idle_gpu_s) AS DOUBLE) / 3600 AS idle,
        CAST(sum(CASE WHEN lost THEN gpu_s END) AS DOUBLE) / 3600 AS failed,
        count(*) FILTER (WHERE lost) AS failures,
        CAST(sum(CASE WHEN status = 'preempted' THEN gpu_s END) AS DOUBLE) / 3600 AS preempted,
        count(*) FILTER (WHERE status = 'preempted') AS preemptions,
        coalesce(
            CAST(sum(CASE WHEN lost OR status = 'preempted' THEN gpu_s ELSE idle_gpu_s END) AS DOUBLE) / 3600, 0
        ) AS wasted
    FROM ended
    GROUP BY job_id
),

gpu_means AS (
    SELECT job_id, node_id, gpu_index, sum(sampled_s * coalesce(gpu_share, 1)) AS sampled_s,
        sum(sampled_s * coalesce(gpu_share, 1) * busy_pct) / sum(sampled_s * coalesce(gpu_share, 1)) AS busy_pct
    FROM attempt_gpu_use
    WHERE sampled_s > 0
    GROUP BY job_id, node_id, gpu_index
),

uneven AS (
    SELECT
        job_id,
        count(*) AS gpus,
        count(*) FILTER (WHERE busy_pct <= $idle_pct) AS idle_gpus,
        coalesce(sum(sampled_s) FILTER (WHERE busy_pct <= $idle_pct), 0) / 3600 AS idle_h
    FROM gpu_means
    GROUP BY job_id
),

reasons AS (
    SELECT
        h.job_id,
        1 AS place,
        h.idle AS wasted,
        CASE
            WHEN h.used = 0
                THEN printf('never used its GPUs in the %,.1f GPU-hours that were watched', h.covered)
            ELSE printf('used its GPUs %.1f %% on average, which left %,.1f GPU-hours idle', 100 * h.used / h.covered, h.idle)
        END AS words
    FROM job_hours AS h
    WHERE h.covered >= h.held / 2 AND h.used <= h.covered * $idle_pct / 100
    UNION ALL
    SELECT
        u.job_id,
        2,
        u.idle_h,
        printf('left %d of its %d GPUs idle, for %,.1f GPU-hours', u.idle_gpus, u.gpus, u.idle_h)
    FROM uneven AS u
    WHERE u.idle_gpus BETWEEN 1 AND u.gpus - 1
    UNION ALL
    SELECT
        h.job_id,
        3,
        h.failed,
        CASE
            WHEN h.failures = 1 THEN printf('failed after %,.1f GPU-hours', h.failed)
            ELSE printf('failed %d times, after %,.1f GPU-hours in all', h.failures, h.failed)
        END
    FROM job_hours AS h
    WHERE h.failed >= $min_gpu_h
    UNION ALL
    SELECT
        h.job_id,
        4,
        h.preempted,
        CASE
            WHEN h.preemptions = 1 THEN printf('was preempted after %,.1f GPU-hours', h.preempted)
            ELSE printf('was preempted %d times, after %,.1f GPU-hours in all', h.preemptions, h.preempted)
        END
    FROM job_hours AS h
    WHERE h.preempted >= $min_gpu_h
    UNION ALL
    SELECT
        u.job_id,
        5,
        0,
        printf('asked for %.1f h and ran for %.1f h', u.time_limit_s / 3600, u.longest_s / 3600)
    FROM job_host_use AS u
    INNER JOIN jobs AS j ON u.job_id = j.job_id
    WHERE j.status = 'completed' AND u.longest_s > 0 AND u.time_limit_s >= u.longest_s * $times
    UNION ALL
    SELECT
        u.job_id,
        6,
        0,
        printf('asked for %.1f GiB of memory and used %.1f GiB', u.memory_gib, u.memory_used_gib)
    FROM job_host_use AS u
    INNER JOIN jobs AS j ON u.job_id = j.job_id
    WHERE j.status = 'completed' AND u.memory_used_gib > 0 AND u.memory_gib >= u.memory_used_gib * $times
    UNION ALL
    SELECT
        u.job_id,
        7,
        0,
        printf('used its processors %.1f %% on average', 100 * u.cpu_s / u.core_s)
    FROM job_host_use AS u
    INNER JOIN jobs AS j ON u.job_id = j.job_id
    WHERE j.status = 'completed' AND u.core_s > 0 AND u.core_s >= u.cpu_s * $times
),

listed AS (
    SELECT job_id, string_agg(words, '; ' ORDER BY wasted DESC, place) AS reason
    FROM reasons
    GROUP BY job_id
)

SELECT
    j.job_id,
    j."user",
    j.account,
    j."partition",
    j.gpu_count,
    h.held AS held_gpu_h,
    h.wasted AS wasted_gpu_h,
    h.covered / nullif(h.held, 0) AS coverage_share,
    l.reason
FROM listed AS l
INNER JOIN job_hours AS h ON l.job_id = h.job_id
INNER JOIN jobs AS j ON l.job_id = j.job_id
WHERE j.gpu_count > 0 AND h.held >= $min_gpu_h
ORDER BY wasted_gpu_h DESC, held_gpu_h DESC, j.job_id
LIMIT $n
