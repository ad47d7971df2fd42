-- title: Run time to failure by job size
-- question: How long do attempts run before they fail, and at what cost?
-- paper: Philly Table 7 and Fig 10 (ATC'19), by size instead of reason
-- tables: jobs, attempts
-- needs: statuses, gpu_count
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- column gpu_class: class | size class of the job
-- column failures: attempts | failed attempts whose run time is known
-- column p50_s: s | median run time to failure
-- column p90_s: s | 90th percentile
-- column p95_s: s | 95th percentile
-- column gpu_hours_lost: GPU-hours | run time times GPUs of these attempts; NULL when none is known
-- column timeouts: attempts | of the failures, those with status timeout
-- interval p50_s: median of failures
-- rule:
-- The run time to failure is that of the failed attempt, from its start to its end. An attempt failed if its status is
-- failed, timeout, node_fail or out_of_memory. rule=retried adds attempts of unknown end that another attempt followed
-- (see the view attempt_outcomes). This rule suits Philly, which has one status per job. Jobs of unknown size are
-- excluded. The run time is an upper bound on the loss, because checkpoints are not known. Percentiles interpolate
-- linearly.
SELECT
    gpu_class,
    count(*) AS failures,
    quantile_cont(run_s, 0.5) AS p50_s,
    quantile_cont(run_s, 0.9) AS p90_s,
    quantile_cont(run_s, 0.95) AS p95_s,
    CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours_lost,
    count(*) FILTER (WHERE status = 'timeout') AS timeouts,
    percentiles(run_s) AS _p50_s
FROM attempt_outcomes
WHERE
    CASE WHEN $rule = 'retried' THEN failed_or_retried ELSE failed END
    AND run_s IS NOT NULL
    AND gpu_class IS NOT NULL
GROUP BY gpu_class, class_order
ORDER BY class_order
