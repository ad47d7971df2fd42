-- title: Mean GPU utilization of each job by its samples
-- tables: attempts, placements, gpu_utilization
-- views: attempt_samples
-- merge: counted
-- column job_id: text | the job
-- column mean_pct: percent | mean utilization of a GPU while the job held it
-- rule:
-- The mean of the job's samples, matched to all its attempts as in attempt_samples. One row for each job with samples.
WITH counted AS (
    SELECT job_id, count(*) AS samples, sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS percents
    FROM attempt_samples
    GROUP BY job_id
)

SELECT job_id, CAST(percents AS DOUBLE) / samples AS mean_pct
FROM counted
