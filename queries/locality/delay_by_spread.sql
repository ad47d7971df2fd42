-- title: Queueing delay by the number of nodes
-- question: Do jobs that wait longer end up on fewer nodes?
-- paper: Philly Fig 4 (ATC'19)
-- tables: jobs, attempts
-- needs: queueing, gpu_count, node_count
-- column gpu_class: class | size class of the job
-- column node_count: nodes | nodes of the job's first attempt
-- column jobs: jobs | jobs with a known first wait
-- column mean_s: s | mean of the first wait
-- column p50_s: s | median
-- column p90_s: s | 90th percentile
-- interval p50_s: median of jobs
-- rule:
-- The delay is the first wait of each job: the start of attempt 0 minus the submission. Only jobs with GPUs are
-- counted, in every class; the paper plots 5-8 and >8. Jobs of unknown size or on an unknown number of nodes are
-- excluded. Percentiles interpolate linearly.
SELECT
    gpu_class,
    node_count,
    count(*) AS jobs,
    CAST(avg(CAST(wait_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_s,
    quantile_cont(wait_s, 0.5) AS p50_s,
    quantile_cont(wait_s, 0.9) AS p90_s,
    percentiles(wait_s) AS _p50_s
FROM waits
WHERE attempt = 0 AND wait_s IS NOT NULL AND gpu_count > 0 AND node_count IS NOT NULL
GROUP BY gpu_class, class_order, node_count
ORDER BY class_order, node_count
