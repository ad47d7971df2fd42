-- title: GPU utilization of jobs that have their nodes to themselves
-- question: How busy are the GPUs of attempts on whole nodes?
-- paper: Philly Fig 6 (ATC'19)
-- tables: jobs, attempts, placements, gpu_utilization
-- also: nodes
-- needs: utilization, placement, gpu_index, gpu_count
-- merge: counted
-- param rule: all_gpus {all_gpus, notebook} | attempts that use every GPU of their nodes, or that run on at most GPUs / 8 nodes
-- param sizes: all {all, paper} | every job size, or the paper's: 8 and 16 GPUs
-- column gpu_count: GPUs | GPUs of the job
-- column samples: samples | one sample is one GPU for one sampling interval
-- column mean_pct: percent | mean utilization
-- column p50_pct: percent | median
-- column p90_pct: percent | 90th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- All samples of a row are pooled, matched to attempts as in utilization/gpu_by_size_status. Percentiles interpolate
-- linearly. They are computed from the count of each value, so memory does not grow with the number of samples. All
-- statuses are pooled as well. With rule=all_gpus, the attempt uses, on each of its nodes, as many GPUs as the node is
-- observed to have (view node_gpus). With rule=notebook, it runs on at most jobs.gpu_count / 8 nodes, as in the
-- notebook of the Philly traces. If all nodes have 8 GPUs, the two rules agree for jobs of 8 and 16 GPUs. Jobs of
-- unknown size are excluded.
WITH indexed AS (
    SELECT job_id, attempt, node_id, CAST(count(DISTINCT gpu_index) AS DOUBLE) AS gpus
    FROM (SELECT job_id, attempt, node_id, unnest(gpu_index) AS gpu_index FROM placements) AS named
    GROUP BY job_id, attempt, node_id
),

held AS (
    SELECT job_id, attempt, node_id, sum(gpus) AS gpus
    FROM (
        SELECT job_id, attempt, node_id, gpus FROM indexed
        UNION ALL
        SELECT job_id, attempt, node_id, gpu_count FROM placements WHERE gpu_index IS NULL
    ) AS parts
    GROUP BY job_id, attempt, node_id
),

dedicated AS (
    SELECT h.job_id, h.attempt, j.gpu_count
    FROM held AS h
    INNER JOIN jobs AS j ON h.job_id = j.job_id
    LEFT JOIN node_gpus AS g ON h.node_id = g.node_id
    WHERE j.gpu_count IS NOT NULL AND ($sizes = 'all' OR j.gpu_count IN (8, 16))
    GROUP BY h.job_id, h.attempt, j.gpu_count
    HAVING CASE
        WHEN $rule = 'notebook' THEN count(*) FILTER (WHERE h.gpus > 0) <= j.gpu_count / 8
        ELSE bool_and(coalesce(h.gpus = 0 OR h.gpus >= g.observed, FALSE))
    END
),

counted AS (
    SELECT
        a.gpu_count,
        s.utilization_pct AS value,
        count(*) AS n
    FROM attempt_samples AS s
    INNER JOIN dedicated AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
    GROUP BY a.gpu_count, s.utilization_pct
),

ranked AS (
    SELECT
        gpu_count,
        value,
        n,
        CAST(sum(n) OVER (PARTITION BY gpu_count ORDER BY value) AS DOUBLE) AS upto,
        CAST(sum(n) OVER (PARTITION BY gpu_count) AS DOUBLE) AS samples
    FROM counted
),

-- The value of rank r (from 0) is the smallest value with more than r samples at or below it.
quantiles AS (
    SELECT
        r.gpu_count,
        q.share,
        max(r.samples) AS samples,
        CAST(sum(CAST(r.value * r.n AS DECIMAL(38, 6))) AS DOUBLE) / max(r.samples) AS mean_pct,
        min(r.value) FILTER (WHERE r.upto > floor(q.share * (r.samples - 1))) AS below,
        min(r.value) FILTER (WHERE r.upto > ceil(q.share * (r.samples - 1))) AS above,
        max(q.share * (r.samples - 1) - floor(q.share * (r.samples - 1))) AS weight
    FROM ranked AS r
    CROSS JOIN (VALUES (0.5), (0.9), (0.95)) AS q (share)
    GROUP BY r.gpu_count, q.share
)

SELECT
    gpu_count,
    CAST(max(samples) AS BIGINT) AS samples,
    max(mean_pct) AS mean_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.5) AS p50_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.9) AS p90_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.95) AS p95_pct
FROM quantiles
GROUP BY gpu_count
ORDER BY gpu_count
