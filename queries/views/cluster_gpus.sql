-- title: The largest number of GPUs of each cluster in the capacity table
-- tables: capacity
-- column cluster: text | the cluster
-- column gpus: GPUs | largest total over time
-- column source: text | 'stated' for the cluster's total, 'quotas' for the sum over its {tenant.many}
-- column since: UTC | when the total first reached this value
-- column changes: true or false | whether the total changed over time
-- rule:
-- If the source gives the cluster's total (vc is NULL), this is the largest total. Otherwise it is the largest sum over
-- the {tenant.many}, where a {tenant.one}'s number applies until its next row. A sum of quotas may be larger or smaller
-- than the number of GPUs in the machines.
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
        CASE WHEN vc IS NULL THEN 'stated' ELSE 'quotas' END AS source,
        time,
        sum(change) OVER (PARTITION BY cluster, vc IS NULL ORDER BY time) AS gpus
    FROM steps
),

largest AS (
    SELECT cluster, source, max(gpus) AS gpus, min(gpus) < max(gpus) AS changes
    FROM totals
    GROUP BY cluster, source
),

ranked AS (
    SELECT *, row_number() OVER (PARTITION BY cluster ORDER BY gpus IS NULL, source DESC) AS place FROM largest
)

SELECT r.cluster, r.gpus, r.source, min(t.time) AS since, r.changes
FROM ranked AS r
LEFT JOIN totals AS t ON r.cluster IS NOT DISTINCT FROM t.cluster AND r.source = t.source AND r.gpus = t.gpus
WHERE r.place = 1
GROUP BY r.cluster, r.gpus, r.source, r.changes
