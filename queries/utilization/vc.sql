-- title: Use of each {tenant.one}
-- question: Which {tenant.many} use the GPUs that they own, and which ones wait?
-- paper: Helios Fig 4 (SC'21)
-- tables: jobs, attempts
-- needs: gpu_count
-- param step_s: 3600 | length of the intervals over which use is averaged before percentiles are computed [s]
-- param quota: auto {auto, capacity, peak, p95} | what {tenant.a} owns: its recorded quota or, as a proxy, its peak or 95th percentile
-- param until: end {end, last_submission} | intervals that count in shares: all (as published), or those that end by the last submission
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column cluster: text | the cluster
-- column vc: text | the tenant; NULL for jobs without one
-- column capacity_gpus: GPUs | mean number of GPUs that the {tenant.one} owns over time; NULL when unknown
-- column allocated_share_mean: share | GPU time allocated / GPU time owned
-- column p25: share | 25th percentile over intervals of GPUs allocated / GPUs owned
-- column p50: share | median over intervals
-- column p75: share | 75th percentile over intervals
-- column queue_p50_s: s | median wait of the {tenant.one}'s jobs with GPUs
-- rule:
-- Intervals in which the {tenant.one} owns nothing are excluded. Shares above 1 occur if {tenant.many} may borrow GPUs,
-- or if the quota is out of date; they are not clipped. The note next to the result names the source of the
-- {tenant.one}'s capacity. Averages run from the first to the last moment of the trace, as in the published notebook.
-- After the last submission, jobs only drain, which lowers the shares. until=last_submission excludes those intervals,
-- as the report's first screen does. Every known period that a job with GPUs spent in the queue counts as a wait,
-- including periods of 0 s.
WITH used AS (
    SELECT
        cluster,
        vc,
        avg(CAST(capacity_gpus AS DECIMAL(38, 6))) AS capacity_gpus,
        sum(CAST(running_gpus AS DECIMAL(38, 6))) FILTER (WHERE capacity_gpus > 0)
        / nullif(sum(CAST(capacity_gpus AS DECIMAL(38, 6))) FILTER (WHERE capacity_gpus > 0), 0)
            AS allocated_share_mean,
        quantile_cont(CASE WHEN capacity_gpus > 0 THEN running_gpus / capacity_gpus END, 0.25) AS p25,
        quantile_cont(CASE WHEN capacity_gpus > 0 THEN running_gpus / capacity_gpus END, 0.5) AS p50,
        quantile_cont(CASE WHEN capacity_gpus > 0 THEN running_gpus / capacity_gpus END, 0.75) AS p75
    FROM gpu_timeline
    WHERE submitting OR $until = 'end'
    GROUP BY cluster, vc
),

waited AS (
    SELECT cluster, vc, quantile_cont(wait_s, 0.5) AS queue_p50_s
    FROM waits
    WHERE wait_s IS NOT NULL AND gpu_count > 0
    GROUP BY cluster, vc
)

SELECT
    u.cluster,
    u.vc,
    CAST(u.capacity_gpus AS DOUBLE) AS capacity_gpus,
    CAST(u.allocated_share_mean AS DOUBLE) AS allocated_share_mean,
    u.p25,
    u.p50,
    u.p75,
    w.queue_p50_s
FROM used AS u
LEFT JOIN waited AS w ON u.cluster IS NOT DISTINCT FROM w.cluster AND u.vc IS NOT DISTINCT FROM w.vc
ORDER BY u.cluster NULLS LAST, u.vc NULLS LAST
