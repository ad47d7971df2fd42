-- title: GPU utilization while allocated
-- question: How busy are the GPUs that are allocated to jobs?
-- paper: Philly Table 3 (ATC'19)
-- tables: jobs, attempts, placements, gpu_utilization
-- needs: utilization, placement, gpu_index, gpu_count
-- merge: counted
-- column metric: text | name of the metric
-- column value: see unit | value of the metric
-- column unit: text | unit of the value
-- rule:
-- All samples of utilization/gpu_by_size_status (see there) are pooled, so long and many-GPU jobs weigh more. samples:
-- the number of samples; one sample is one GPU, or one part of a divided GPU (MIG), for one sampling interval.
-- busy_share: their mean utilization / 100. A part is weighted by its share of the GPU, or by 1/7 if that share is
-- unknown.
WITH counted AS (
    SELECT s.gpu_share, count(*) AS samples, sum(CAST(s.utilization_pct AS DECIMAL(38, 6))) AS percents
    FROM attempt_samples AS s
    INNER JOIN jobs AS j ON s.job_id = j.job_id
    WHERE j.gpu_count IS NOT NULL
    GROUP BY s.gpu_share
),

pooled AS (
    SELECT
        sum(samples) AS samples,
        sum(CAST(percents AS DOUBLE) * coalesce(gpu_share, 1e0 / 7))
        / 100
        / sum(samples * coalesce(gpu_share, 1e0 / 7)) AS busy_share
    FROM counted
    HAVING sum(samples) > 0
)

SELECT 'busy_share' AS metric, busy_share AS value, 'share' AS unit FROM pooled
UNION ALL
SELECT 'samples', CAST(samples AS DOUBLE), 'samples' FROM pooled
ORDER BY metric
