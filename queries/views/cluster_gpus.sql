-- title: The most GPUs that each cluster owned at one time
-- tables: capacity
-- column cluster: text | the cluster
-- column gpus: GPUs | largest total over time
-- rule:
-- Where the source states the cluster's total (vc is NULL), the largest of these. Elsewhere the largest sum over
-- the VCs, each holding its number until its next row.
WITH steps AS (
    SELECT
        cluster,
        vc,
        time,
        gpu_count,
        gpu_count - coalesce(lag(gpu_count) OVER (PARTITION BY cluster, vc ORDER BY time), 0) AS change
    FROM capacity
),

totals AS (
    SELECT
        cluster,
        vc IS NULL AS stated,
        sum(change) OVER (PARTITION BY cluster, vc IS NULL ORDER BY time) AS gpus
    FROM steps
),

largest AS (
    SELECT
        cluster,
        max(gpus) FILTER (WHERE stated) AS stated_gpus,
        max(gpus) FILTER (WHERE NOT stated) AS summed_gpus
    FROM totals
    GROUP BY cluster
)

SELECT cluster, coalesce(stated_gpus, summed_gpus) AS gpus
FROM largest
