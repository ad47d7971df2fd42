-- title: Mean GPU utilization of each job according to its samples
-- tables: attempts, placements, gpu_utilization
-- views: attempt_samples
-- merge: counted
-- column job_id: text | the job
-- column mean_pct: percent | mean utilization of a GPU while the job had it
-- rule:
-- The mean of the job's samples, matched to all its attempts as in attempt_samples. A sample of a part of a divided GPU
-- (MIG) is weighted by the part's share of the GPU, or by 1/7 if that share is unknown. One row for each job with
-- samples.
WITH counted AS (
    SELECT job_id, gpu_share, count(*) AS samples, sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS percents
    FROM attempt_samples
    GROUP BY job_id, gpu_share
)

SELECT
    job_id,
    sum(CAST(percents AS DOUBLE) * coalesce(gpu_share, 1e0 / 7)) / sum(samples * coalesce(gpu_share, 1e0 / 7)) AS mean_pct
FROM counted
GROUP BY job_id
