-- title: Final status by job size
-- question: Do larger jobs fail more often?
-- paper: Philly Fig 9 (ATC'19), Helios Fig 7 (SC'21)
-- tables: jobs
-- also: attempts
-- needs: statuses, gpu_count
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- column gpu_class: class | size class of the job
-- column status: text | final status of the job; NULL when unknown
-- column jobs: jobs | jobs of this class with this status
-- column jobs_share: share | jobs / all jobs of the class
-- column gpu_hours: GPU-hours | GPU time of these jobs; NULL when none is known
-- interval jobs_share: proportion of _class_jobs
-- rule:
-- The shares of one class sum to 1. Jobs of unknown size are excluded. GPU time is defined as in overview/status.
WITH by_class AS (
    SELECT
        gpu_class,
        class_order,
        status,
        count(*) AS jobs,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s
    FROM job_gpu_hours
    WHERE gpu_class IS NOT NULL
    GROUP BY gpu_class, class_order, status
)

SELECT
    gpu_class,
    status,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER (PARTITION BY gpu_class) AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / 3600 AS gpu_hours,
    sum(jobs) OVER (PARTITION BY gpu_class) AS _class_jobs
FROM by_class
ORDER BY class_order, status NULLS LAST
