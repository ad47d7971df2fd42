-- title: Jobs and GPU time by gang size
-- question: How many jobs start several instances at once, and how much GPU time do they take?
-- paper: gang scheduling of PAI (NSDI'22)
-- tables: jobs
-- also: attempts
-- param gpu_time: attempts {attempts, with_gaps} | GPU-hours over attempts, or whole run time times GPUs
-- column instance_count: instances | processes of the job's gang, as planned; NULL when unknown
-- column jobs: jobs | jobs of this gang size
-- column jobs_share: share | jobs / all jobs
-- column gpu_hours_share: share | their GPU time / all known GPU time
-- interval jobs_share: proportion of all jobs
-- rule:
-- Jobs of every status and size are in, CPU jobs too. Jobs of unknown gang size keep a row: a source that does not tell
-- of instances has this row alone. GPU time as in overview/status.
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
