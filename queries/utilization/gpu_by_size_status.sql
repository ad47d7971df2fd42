-- title: GPU utilization by job size and status
-- question: How busy are allocated GPUs, by job size and by how the job ended?
-- paper: Philly Fig 5 and Table 3 (ATC'19)
-- tables: jobs, attempts, placements, gpu_utilization
-- needs: utilization, placement, gpu_index, gpu_count
-- merge: counted
-- param sizes: all {all, paper} | every job size, or the paper's: 1, 4, 8 and 16 GPUs
-- column gpu_count: GPUs | GPUs of the job
-- column status: text | final status of the job; NULL when unknown
-- column samples: samples | one sample is one GPU for one sampling interval
-- column mean_pct: percent | mean utilization
-- column p5_pct: percent | 5th percentile
-- column p25_pct: percent | 25th percentile
-- column p50_pct: percent | median
-- column p75_pct: percent | 75th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- All samples of one size and status are pooled. Long and many-GPU jobs therefore weigh more than in a mean of job
-- means. Samples belong to attempts as in the view attempt_samples: floor_to_minute(start) <= time < end, on a GPU of
-- the attempt. Every attempt with both a start and an end is included, not only the last. Offline GPUs (utilization
-- NULL) are excluded. A sample that two attempts claim counts once for each. Jobs of unknown size are excluded.
-- Percentiles interpolate linearly. They are computed from the count of each value, so memory does not grow with the
-- number of samples. Source: the notebook of the Philly traces.
WITH counted AS (
    SELECT
        j.gpu_count,
        j.status,
        s.utilization_pct AS value,
        count(*) AS n
    FROM attempt_samples AS s
    INNER JOIN jobs AS j ON s.job_id = j.job_id
    WHERE j.gpu_count IS NOT NULL AND ($sizes = 'all' OR j.gpu_count IN (1, 4, 8, 16))
    GROUP BY j.gpu_count, j.status, s.utilization_pct
),

ranked AS (
    SELECT
        gpu_count,
        status,
        value,
        n,
        CAST(sum(n) OVER (PARTITION BY gpu_count, status ORDER BY value) AS DOUBLE) AS upto,
        CAST(sum(n) OVER (PARTITION BY gpu_count, status) AS DOUBLE) AS samples
    FROM counted
),

-- The value of rank r (from 0) is the smallest value with more than r samples at or below it.
quantiles AS (
    SELECT
        r.gpu_count,
        r.status,
        q.share,
        max(r.samples) AS samples,
        CAST(sum(CAST(r.value * r.n AS DECIMAL(38, 6))) AS DOUBLE) / max(r.samples) AS mean_pct,
        min(r.value) FILTER (WHERE r.upto > floor(q.share * (r.samples - 1))) AS below,
        min(r.value) FILTER (WHERE r.upto > ceil(q.share * (r.samples - 1))) AS above,
        max(q.share * (r.samples - 1) - floor(q.share * (r.samples - 1))) AS weight
    FROM ranked AS r
    CROSS JOIN (VALUES (0.05), (0.25), (0.5), (0.75), (0.95)) AS q (share)
    GROUP BY r.gpu_count, r.status, q.share
)

SELECT
    gpu_count,
    status,
    CAST(max(samples) AS BIGINT) AS samples,
    max(mean_pct) AS mean_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.05) AS p5_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.25) AS p25_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.5) AS p50_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.75) AS p75_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.95) AS p95_pct
FROM quantiles
GROUP BY gpu_count, status
ORDER BY gpu_count, status NULLS LAST
