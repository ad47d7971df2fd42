-- title: Jobs and GPU time by job size
-- question: How large are the jobs, and which sizes use the GPU time?
-- paper: Helios Fig 6 (SC'21)
-- tables: jobs
-- also: attempts
-- needs: gpu_count
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- column gpu_class: class | size class of the job; NULL when its GPU count is unknown
-- column jobs: jobs | jobs of this size, with any status
-- column jobs_share: share | jobs / all jobs
-- column gpu_hours: GPU-hours | GPU time of these jobs; NULL when none is known
-- column gpu_hours_share: share | gpu_hours / all known GPU-hours
-- interval jobs_share: proportion of all jobs
-- rule:
-- With gpu_time=attempts, GPU time is the sum of run_s * gpu_count over the attempts. With gpu_time=with_gaps, it is
-- run_s * gpu_count of the job, which includes gaps between attempts. The class is that of jobs.gpu_count. Jobs of
-- unknown size have their own row.
WITH by_class AS (
    SELECT
        gpu_class,
        class_order,
        count(*) AS jobs,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s
    FROM job_gpu_hours
    GROUP BY gpu_class, class_order
)

SELECT
    gpu_class,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER () AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / 3600 AS gpu_hours,
    CAST(gpu_s AS DOUBLE) / nullif(CAST(sum(gpu_s) OVER () AS DOUBLE), 0) AS gpu_hours_share
FROM by_class
ORDER BY class_order NULLS LAST
