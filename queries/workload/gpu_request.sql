-- title: Jobs and GPU time by the number of GPUs
-- question: How many GPUs do people ask for?
-- paper: Helios Fig 6 (SC'21), Alibaba PAI Fig 5 (NSDI'22)
-- tables: jobs
-- also: attempts
-- needs: gpu_count
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- param rule: gang {gang, instance} | GPUs of the whole job, or of one of the instances that the job starts at once
-- column gpu_count: GPUs | GPUs of the job or of one instance, including fractions; 0 for a CPU job
-- column jobs: jobs | jobs of this size
-- column jobs_share: share | jobs / all jobs of known size
-- column gpu_hours_share: share | their GPU time / all known GPU time of jobs of known size
-- interval jobs_share: proportion of all jobs
-- rule:
-- Jobs of every status are included; jobs of unknown size are excluded. If no GPU time is known for a size, its share
-- is NULL. With rule=gang, the size is the sum over the job's instances. With rule=instance, it is jobs.gpu_count /
-- jobs.instance_count, to a millionth of a GPU, which is the request of one instance (or the mean request if they
-- differ). Jobs with an unknown number of instances are then also excluded. Rows still count jobs, and the GPU time of
-- all instances. Studies of PAI count its tasks in this way (unit=task). GPU time is defined as in overview/status.
WITH requests AS (
    SELECT
        CASE WHEN $rule = 'instance' THEN round(gpu_count / nullif(instance_count, 0), 6) ELSE gpu_count END AS gpu_count,
        CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END AS gpu_s
    FROM job_gpu_hours
),

by_count AS (
    SELECT gpu_count, count(*) AS jobs, sum(gpu_s) AS gpu_s
    FROM requests
    WHERE gpu_count IS NOT NULL
    GROUP BY gpu_count
)

SELECT
    gpu_count,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER () AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / nullif(CAST(sum(gpu_s) OVER () AS DOUBLE), 0) AS gpu_hours_share
FROM by_count
ORDER BY gpu_count
