-- title: GPU utilization by the number of nodes
-- question: Are the GPUs of one attempt less busy on more nodes?
-- paper: Philly Table 5 (ATC'19)
-- tables: attempts, placements, gpu_utilization
-- needs: utilization, placement, gpu_index
-- merge: counted
-- column gpu_count: GPUs | GPUs of the attempt
-- column node_count: nodes | nodes on which the attempt had GPUs
-- column samples: samples | one sample is one GPU for one sampling interval
-- column mean_pct: percent | mean utilization
-- column p50_pct: percent | median
-- column p90_pct: percent | 90th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- All samples of a row are pooled, matched to attempts as in utilization/gpu_by_size_status. Percentiles interpolate
-- linearly. They are computed from the count of each value, so memory does not grow with the number of samples. The
-- paper's table consists of the rows for 16 GPUs. Size and number of nodes are those of the attempt, which may differ
-- from those of the job's first attempt; the nodes are counted in the attempt's placements. Attempts of unknown size
-- are excluded.
WITH spread AS (
    SELECT job_id, attempt, count(DISTINCT node_id) AS node_count
    FROM placements
    WHERE len(gpu_index) > 0 OR gpu_count > 0
    GROUP BY job_id, attempt
),

counted AS (
    SELECT
        a.gpu_count,
        p.node_count,
        s.utilization_pct AS value,
        count(*) AS n
    FROM attempt_samples AS s
    INNER JOIN attempts AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
    INNER JOIN spread AS p ON s.job_id = p.job_id AND s.attempt = p.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY a.gpu_count, p.node_count, s.utilization_pct
),

ranked AS (
    SELECT
        gpu_count,
        node_count,
        value,
        n,
        CAST(sum(n) OVER (PARTITION BY gpu_count, node_count ORDER BY value) AS DOUBLE) AS upto,
        CAST(sum(n) OVER (PARTITION BY gpu_count, node_count) AS DOUBLE) AS samples
    FROM counted
),

-- The value of rank r (from 0) is the smallest value with more than r samples at or below it.
quantiles AS (
    SELECT
        r.gpu_count,
        r.node_count,
        q.share,
        max(r.samples) AS samples,
        CAST(sum(CAST(r.value * r.n AS DECIMAL(38, 6))) AS DOUBLE) / max(r.samples) AS mean_pct,
        min(r.value) FILTER (WHERE r.upto > floor(q.share * (r.samples - 1))) AS below,
        min(r.value) FILTER (WHERE r.upto > ceil(q.share * (r.samples - 1))) AS above,
        max(q.share * (r.samples - 1) - floor(q.share * (r.samples - 1))) AS weight
    FROM ranked AS r
    CROSS JOIN (VALUES (0.5), (0.9), (0.95)) AS q (share)
    GROUP BY r.gpu_count, r.node_count, q.share
)

SELECT
    gpu_count,
    node_count,
    CAST(max(samples) AS BIGINT) AS samples,
    max(mean_pct) AS mean_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.5) AS p50_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.9) AS p90_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.95) AS p95_pct
FROM quantiles
GROUP BY gpu_count, node_count
ORDER BY gpu_count, node_count
