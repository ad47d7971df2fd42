-- title: GPU-hours allocated, used, idle and lost
-- question: Who gets the GPU-hours, and how many of them are used, idle or lost?
-- paper: none
-- tables: jobs, attempts
-- also: placements, nodes, gpu_utilization, job_usage
-- param by: user {user, account, partition, qos, gpu_model, vc, cluster} | dimension of the rows
-- param jobs: auto {auto, gpu, cpu, all} | jobs to count: auto (those with GPUs, if the trace has any), with GPUs, without GPUs, or all
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- column key: text | the user, account or other dimension of the jobs; NULL when unknown
-- column jobs: jobs | counted jobs, with any status
-- column held_gpu_h: GPU-hours | allocated to these jobs' attempts, including those that still run; NULL when none is known
-- column used_gpu_h: GPU-hours | GPU-hours with known use times the mean use of the GPUs; NULL when no use is known
-- column idle_gpu_h: GPU-hours | GPU-hours with known use that were not used; NULL when no use is known
-- column failed_gpu_h: GPU-hours | allocated to attempts that failed, except at their time limit; NULL when no end is known
-- column preempted_gpu_h: GPU-hours | allocated to attempts that were preempted; NULL when no end is known
-- column coverage_share: share | GPU-hours with known use / held_gpu_h
-- column cpu_efficiency_share: share | CPU time used / (cores * run time), over the jobs with both known
-- column cpu_known_jobs: jobs | jobs with known CPU use
-- column memory_efficiency_share: share | memory used / requested, weighted by run time, over the jobs with both known
-- column memory_known_jobs: jobs | jobs with known memory use and request
-- column time_limit_used_share: share | run time of the longest attempt / time limit, summed over the jobs with both known
-- column time_limit_known_jobs: jobs | jobs with known time limit and run time
-- column timeout_gpu_h: GPU-hours | allocated to attempts that reached their time limit; NULL when no end is known
-- column wasted_gpu_h: GPU-hours | allocated to attempts that failed or were preempted, plus the idle GPU-hours of all other attempts
-- column unknown_jobs: jobs | counted jobs with unknown GPU-hours, such as waiting jobs
-- column running_gpu_h: GPU-hours | part of held_gpu_h allocated so far to attempts that still run; their use is not known yet
-- rule:
-- Held GPU-hours are the sum of run time times GPUs over the attempts. An attempt that still runs counts from its start
-- to the last moment of the trace, or to the earlier time given by the view open_attempts. A time that contradicts its
-- neighbours counts as unknown and adds nothing. Covered (known use), used and idle GPU-hours come from the view
-- attempt_use. Used GPU-hours are the covered ones times the mean SM activity, or times the mean utilization if SM
-- activity was not sampled. The other covered GPU-hours are idle, so held = used + idle + unknown. Idle is the usual
-- 'GPU-hours times (1 - utilization)', not the time at 0 percent. Failed and preempted attempts may have used their
-- GPU-hours, so these columns overlap with used and idle. wasted_gpu_h counts each hour once, and is a lower bound if
-- little is covered. An attempt failed if its status is failed, node_fail or out_of_memory. Reaching the time limit is
-- not a failure here, because saved work remains. With rule=retried, an attempt with an unknown end that was tried
-- again counts as failed. An attempt counts by its own end, not by the job's. CPU and memory use come from the view
-- job_host_use and are defined as in Slurm's seff (TotalCPU / (AllocCPUS * Elapsed), MaxRSS / ReqMem), over jobs for
-- which both values are known and not 0. Values above 1 are possible with hyperthreads or unenforced limits. gpu_model
-- comes from the view job_gpu_models. Users with the same name in several clusters count as one. Sorted by GPU-hours
-- wasted in descending order.
WITH population AS (
    SELECT
        CASE $jobs
            WHEN 'auto' THEN CASE WHEN count(*) FILTER (WHERE gpu_count > 0) > 0 THEN 'gpu' ELSE 'all' END
            ELSE $jobs
        END AS kind
    FROM jobs
),

chosen AS (
    SELECT
        j.job_id,
        CASE $by
            WHEN 'user' THEN j."user"
            WHEN 'account' THEN j.account
            WHEN 'partition' THEN j."partition"
            WHEN 'qos' THEN j.qos
            WHEN 'gpu_model' THEN m.gpu_model
            WHEN 'vc' THEN j.vc
            ELSE j.cluster
        END AS key
    FROM jobs AS j
    LEFT JOIN job_gpu_models AS m ON j.job_id = m.job_id
    CROSS JOIN population AS p
    WHERE
        p.kind = 'all'
        OR (p.kind = 'gpu' AND j.gpu_count > 0)
        OR (p.kind = 'cpu' AND j.gpu_count = 0)
),

ended AS (
    SELECT
        *,
        CASE WHEN $rule = 'retried' THEN failed_or_retried ELSE failed END AS bad
    FROM attempt_use
    WHERE gpu_s IS NOT NULL
),

job_hours AS (
    SELECT
        job_id,
        sum(gpu_s) AS held,
        sum(covered_gpu_s) AS covered,
        sum(used_gpu_s) AS used,
        sum(idle_gpu_s) AS idle,
        sum(CASE WHEN bad IS NOT NULL THEN CASE WHEN bad AND status IS DISTINCT FROM 'timeout' THEN gpu_s ELSE 0 END END)
            AS failed,
        sum(CASE WHEN bad IS NOT NULL THEN CASE WHEN status = 'preempted' THEN gpu_s ELSE 0 END END) AS preempted,
        sum(CASE WHEN bad IS NOT NULL THEN CASE WHEN status = 'timeout' THEN gpu_s ELSE 0 END END) AS timeout,
        sum(
            CASE
                WHEN (bad AND status IS DISTINCT FROM 'timeout') OR status = 'preempted' THEN gpu_s
                WHEN idle_gpu_s IS NOT NULL THEN idle_gpu_s
                WHEN bad IS NOT NULL AND covered_gpu_s > 0 THEN 0
            END
        ) AS wasted
    FROM ended
    GROUP BY job_id
),

running AS (
    SELECT
        a.job_id,
        sum(CAST((o.until_us - epoch_us(a.start_time)) * a.gpu_count / 1000000 AS DECIMAL(38, 6))) AS gpu_s
    FROM attempts AS a
    INNER JOIN open_attempts AS o ON a.job_id = o.job_id AND a.attempt = o.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY a.job_id
),

told AS (
    SELECT
        job_id,
        CASE WHEN cpu_s IS NOT NULL AND core_s > 0 THEN cpu_s END AS cpu_s,
        CASE WHEN cpu_s IS NOT NULL AND core_s > 0 THEN core_s END AS core_s,
        CASE WHEN memory_used_gib IS NOT NULL AND memory_gib > 0 THEN memory_used_gib * run_s END AS memory_used,
        CASE WHEN memory_used_gib IS NOT NULL AND memory_gib > 0 THEN memory_gib * run_s END AS memory_asked,
        CASE WHEN time_limit_s > 0 AND longest_s IS NOT NULL THEN longest_s END AS ran_s,
        CASE WHEN time_limit_s > 0 AND longest_s IS NOT NULL THEN time_limit_s END AS limit_s
    FROM job_host_use
)

SELECT
    c.key,
    count(*) AS jobs,
    coalesce(CAST(sum(h.held) AS DOUBLE) + coalesce(CAST(sum(r.gpu_s) AS DOUBLE), 0), CAST(sum(r.gpu_s) AS DOUBLE)) / 3600
        AS held_gpu_h,
    CAST(sum(h.used) AS DOUBLE) / 3600 AS used_gpu_h,
    CAST(sum(h.idle) AS DOUBLE) / 3600 AS idle_gpu_h,
    CAST(sum(h.failed) AS DOUBLE) / 3600 AS failed_gpu_h,
    CAST(sum(h.preempted) AS DOUBLE) / 3600 AS preempted_gpu_h,
    CAST(sum(h.covered) AS DOUBLE)
    / nullif(CAST(sum(h.held) AS DOUBLE) + coalesce(CAST(sum(r.gpu_s) AS DOUBLE), 0), 0) AS coverage_share,
    CAST(sum(CAST(t.cpu_s AS DECIMAL(38, 6))) AS DOUBLE) / CAST(sum(CAST(t.core_s AS DECIMAL(38, 6))) AS DOUBLE)
        AS cpu_efficiency_share,
    count(t.core_s) AS cpu_known_jobs,
    CAST(sum(CAST(t.memory_used AS DECIMAL(38, 6))) AS DOUBLE)
    / nullif(CAST(sum(CAST(t.memory_asked AS DECIMAL(38, 6))) AS DOUBLE), 0) AS memory_efficiency_share,
    count(t.memory_asked) AS memory_known_jobs,
    CAST(sum(CAST(t.ran_s AS DECIMAL(38, 6))) AS DOUBLE) / CAST(sum(CAST(t.limit_s AS DECIMAL(38, 6))) AS DOUBLE)
        AS time_limit_used_share,
    count(t.limit_s) AS time_limit_known_jobs,
    CAST(sum(h.timeout) AS DOUBLE) / 3600 AS timeout_gpu_h,
    CAST(sum(h.wasted) AS DOUBLE) / 3600 AS wasted_gpu_h,
    count(*) FILTER (WHERE h.held IS NULL AND r.gpu_s IS NULL) AS unknown_jobs,
    coalesce(CAST(sum(r.gpu_s) AS DOUBLE), 0) / 3600 AS running_gpu_h
FROM chosen AS c
LEFT JOIN job_hours AS h ON c.job_id = h.job_id
LEFT JOIN running AS r ON c.job_id = r.job_id
LEFT JOIN told AS t ON c.job_id = t.job_id
GROUP BY c.key
ORDER BY wasted_gpu_h DESC NULLS LAST, held_gpu_h DESC NULLS LAST, c.key NULLS LAST
