-- title: Jobs and GPU time by number of instances
-- question: How many jobs start several instances at once, and how much GPU time do they use?
-- paper: gang scheduling of PAI (NSDI'22)
-- tables: jobs
-- also: attempts
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- column instance_count: instances | planned number of processes that the job starts at once; NULL when unknown
-- column jobs: jobs | jobs of this size
-- column jobs_share: share | jobs / all jobs
-- column gpu_hours_share: share | their GPU time / all known GPU time
-- interval jobs_share: proportion of all jobs
-- rule:
-- Jobs of every status and size are included, and so are CPU jobs. Jobs with an unknown number of instances have their
-- own row; if a source does not record instances, it is the only row. GPU time is defined as in overview/status.
WITH by_gang AS (
    SELECT
        instance_count,
        count(*) AS jobs,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s
    FROM job_gpu_hours
    GROUP BY instance_count
)

SELECT
    instance_count,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER () AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / nullif(CAST(sum(gpu_s) OVER () AS DOUBLE), 0) AS gpu_hours_share
FROM by_gang
ORDER BY instance_count NULLS LAST
