-- title: Mean GPU utilization of each job by its samples
-- tables: attempts, placements, gpu_utilization
-- views: attempt_samples
-- column job_id: text | the job
-- column mean_pct: percent | mean utilization of a GPU while the job held it
-- rule:
-- The mean of the job's samples, matched to all its attempts as in attempt_samples. One row for each job with samples.
SELECT job_id, CAST(sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS DOUBLE) / count(*) AS mean_pct
FROM attempt_samples
GROUP BY job_id
