-- title: Queueing delay per attempt, by tenant and job size
-- question: How long do attempts queue in each {tenant.one}, and do attempts of larger jobs queue longer?
-- paper: Philly Fig 3 (ATC'19)
-- tables: jobs, attempts
-- needs: queueing, gpu_count
-- param rule: clean {clean, notebook} | known waits, including zeros, or waits as counted in the notebook of the Philly traces
-- column vc: text | tenant of the job; NULL when unknown
-- column gpu_class: class | size class of the job
-- column waits: waits | waits whose length is known
-- column mean_s: s | mean queueing delay per attempt
-- column p50_s: s | median
-- column p75_s: s | 75th percentile
-- column p90_s: s | 90th percentile
-- column p95_s: s | 95th percentile
-- column p99_s: s | 99th percentile
-- column max_s: s | longest
-- interval p50_s: median of waits
-- rule:
-- The queueing delay of every attempt counts: from the submission to the first start, and from the end of each attempt
-- to the next start. The wait of a job, on the first screen and in queuing/distributions, ends at its first start. Jobs
-- of unknown size are excluded. {tenant.Many} with the same name in several clusters count as one. With rule=clean,
-- delays whose beginning or end is unknown are excluded, and delays of 0 are included. With rule=notebook, the job's
-- previous delay is counted again if a time is missing, and delays of 0 are then excluded (notebook_wait_s of the view
-- waits). This gives Philly Fig 3 as published. Percentiles interpolate linearly.
WITH counted AS (
    SELECT
        vc,
        gpu_class,
        class_order,
        CASE WHEN $rule = 'notebook' THEN nullif(notebook_wait_s, 0) ELSE wait_s END AS wait_s
    FROM waits
    WHERE gpu_class IS NOT NULL
)

SELECT
    vc,
    gpu_class,
    count(*) AS waits,
    CAST(avg(CAST(wait_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_s,
    quantile_cont(wait_s, 0.5) AS p50_s,
    quantile_cont(wait_s, 0.75) AS p75_s,
    quantile_cont(wait_s, 0.9) AS p90_s,
    quantile_cont(wait_s, 0.95) AS p95_s,
    quantile_cont(wait_s, 0.99) AS p99_s,
    max(wait_s) AS max_s,
    percentiles(wait_s) AS _p50_s
FROM counted
WHERE wait_s IS NOT NULL
GROUP BY vc, gpu_class, class_order
ORDER BY vc NULLS LAST, class_order
