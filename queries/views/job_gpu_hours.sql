-- title: Jobs with their GPU time according to both rules
-- tables: jobs, attempts
-- views: job_classes, attempt_gpu_time
-- column gpu_s: GPU*s | sum over the job's attempts; NULL when no attempt's GPU time is known
-- column gpu_s_with_gaps: GPU*s | run_s * gpu_count of the job, including gaps between attempts
-- column gpu_hours: GPU-hours | gpu_s in hours
-- column gpu_hours_with_gaps: GPU-hours | gpu_s_with_gaps in hours
-- rule:
-- One row for each row of job_classes, with all its columns and the four above. gpu_s is the GPU time of the job.
-- gpu_s_with_gaps also counts waits between attempts, for comparison with other tools. An attempt that still runs adds
-- nothing to gpu_s.
SELECT
    j.*,
    t.gpu_s,
    CAST(j.run_s * j.gpu_count AS DECIMAL(38, 6)) AS gpu_s_with_gaps,
    CAST(t.gpu_s AS DOUBLE) / 3600 AS gpu_hours,
    j.run_s * j.gpu_count / 3600 AS gpu_hours_with_gaps
FROM job_classes AS j
LEFT JOIN (
    SELECT job_id, sum(gpu_s) AS gpu_s
    FROM attempt_gpu_time
    GROUP BY job_id
) AS t ON j.job_id = t.job_id
