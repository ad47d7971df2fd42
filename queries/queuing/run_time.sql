-- title: Run time by job size
-- question: How long do jobs run, and do larger jobs run longer?
-- paper: Philly Fig 2 (ATC'19)
-- tables: jobs
-- needs: run_time, gpu_count
-- column gpu_class: class | size class of the job
-- column jobs: jobs | jobs whose run time is known
-- column mean_s: s | mean run time
-- column p10_s: s | 10th percentile
-- column p25_s: s | 25th percentile
-- column p50_s: s | median
-- column p75_s: s | 75th percentile
-- column p90_s: s | 90th percentile
-- column p95_s: s | 95th percentile
-- column p99_s: s | 99th percentile
-- column max_s: s | longest
-- interval p50_s: median of jobs
-- rule:
-- The run time is the end of the last attempt minus the start of the first, including gaps between attempts. Jobs of
-- every status are included. Jobs of unknown size, and jobs that never started or still run, are excluded. Percentiles
-- interpolate linearly between the two nearest jobs.
SELECT
    gpu_class,
    count(*) AS jobs,
    CAST(avg(CAST(run_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_s,
    quantile_cont(run_s, 0.1) AS p10_s,
    quantile_cont(run_s, 0.25) AS p25_s,
    quantile_cont(run_s, 0.5) AS p50_s,
    quantile_cont(run_s, 0.75) AS p75_s,
    quantile_cont(run_s, 0.9) AS p90_s,
    quantile_cont(run_s, 0.95) AS p95_s,
    quantile_cont(run_s, 0.99) AS p99_s,
    max(run_s) AS max_s,
    percentiles(run_s) AS _p50_s
FROM job_classes
WHERE run_s IS NOT NULL AND gpu_class IS NOT NULL
GROUP BY gpu_class, class_order
ORDER BY class_order
