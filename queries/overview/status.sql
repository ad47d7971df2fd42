-- title: Jobs and GPU time by final status
-- question: How do jobs end, and how much GPU time goes to jobs that do not complete?
-- paper: Philly Table 6 (ATC'19)
-- tables: jobs
-- also: attempts
-- needs: statuses
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- column status: text | final status of the job; NULL when unknown
-- column jobs: jobs | jobs with this status, of any size
-- column jobs_share: share | jobs / all jobs
-- column gpu_hours: GPU-hours | GPU time of these jobs; NULL when none is known
-- column gpu_hours_share: share | gpu_hours / all known GPU-hours
-- column gpu_jobs: jobs | of these, jobs with GPUs
-- column gpu_jobs_share: share | gpu_jobs / all jobs with GPUs; NULL if there is none
-- column cpu_jobs_share: share | jobs without GPUs of this status / all jobs without GPUs; NULL if there is none
-- interval jobs_share: proportion of all jobs
-- rule:
-- With gpu_time=attempts, GPU time is the sum of run_s * gpu_count over the attempts. With gpu_time=with_gaps, it is
-- run_s * gpu_count of the job, which includes gaps between attempts. Jobs with GPUs have a gpu_count above 0, and jobs
-- without GPUs have 0. Running and waiting jobs are included, but add no time until it is known.
WITH by_status AS (
    SELECT
        status,
        count(*) AS jobs,
        count(*) FILTER (WHERE gpu_count > 0) AS gpu_jobs,
        count(*) FILTER (WHERE gpu_count = 0) AS cpu_jobs,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s
    FROM job_gpu_hours
    GROUP BY status
)

SELECT
    status,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER () AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / 3600 AS gpu_hours,
    CAST(gpu_s AS DOUBLE) / nullif(CAST(sum(gpu_s) OVER () AS DOUBLE), 0) AS gpu_hours_share,
    gpu_jobs,
    CAST(gpu_jobs AS DOUBLE) / nullif(CAST(sum(gpu_jobs) OVER () AS DOUBLE), 0) AS gpu_jobs_share,
    CAST(cpu_jobs AS DOUBLE) / nullif(CAST(sum(cpu_jobs) OVER () AS DOUBLE), 0) AS cpu_jobs_share
FROM by_status
ORDER BY status NULLS LAST
