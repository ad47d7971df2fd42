-- title: Jobs and GPU time by final status
-- question: How do jobs end, and how much GPU time goes into jobs that do not complete?
-- paper: Philly Table 6 (ATC'19)
-- tables: jobs
-- also: attempts
-- needs: statuses
-- param gpu_time: attempts {attempts, with_gaps} | GPU-hours over attempts, or whole run time times GPUs
-- column status: text | final status of the job; NULL when unknown
-- column jobs: jobs | jobs with this status, of any size
-- column jobs_share: share | jobs / all jobs
-- column gpu_hours: GPU-hours | GPU time of these jobs; NULL when none is known
-- column gpu_hours_share: share | gpu_hours / all known GPU-hours
-- interval jobs_share: proportion of all jobs
-- rule:
-- gpu_time=attempts: sum over the attempts of run_s * gpu_count. gpu_time=with_gaps: run_s * gpu_count of the job,
-- with the gaps between attempts. Running and waiting jobs are in; time not yet known adds nothing.
WITH by_status AS (
    SELECT
        status,
        count(*) AS jobs,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s
    FROM job_gpu_hours
    GROUP BY status
)

SELECT
    status,
    jobs,
    CAST(jobs AS DOUBLE) / CAST(sum(jobs) OVER () AS DOUBLE) AS jobs_share,
    CAST(gpu_s AS DOUBLE) / 3600 AS gpu_hours,
    CAST(gpu_s AS DOUBLE) / nullif(CAST(sum(gpu_s) OVER () AS DOUBLE), 0) AS gpu_hours_share
FROM by_status
ORDER BY status NULLS LAST
