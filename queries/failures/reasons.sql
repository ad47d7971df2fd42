-- title: Reasons for failures
-- question: Why do attempts fail, how many users and jobs are affected, how late in the run, and at what cost in GPU-hours?
-- paper: Philly Table 7 (ATC'19)
-- tables: failures
-- also: jobs, attempts
-- needs: failures
-- column reason: text | name of the reason
-- column category: text | category of the reason: infrastructure, AI engine, user
-- column trials: attempts | failed attempts with this reason
-- column jobs: jobs | distinct jobs with this reason
-- column users: users | distinct users with this reason; NULL when none is known
-- column rtf_p50_s: s | median run time to failure
-- column rtf_p90_s: s | 90th percentile
-- column rtf_p95_s: s | 95th percentile
-- column gpu_hours: GPU-hours | run time to failure times GPUs, summed over the trials; NULL when none is known
-- column rtf_demand_share: share | gpu_hours / gpu_hours of all reasons
-- rule:
-- A trial is a failed attempt. trials / jobs and trials / users are the paper's repetition factors. The run time to
-- failure (RTF) is the attempt's run time, from start to end, in seconds (the paper uses minutes). Trials of unknown
-- run time are counted but not used for the percentiles. rtf_demand_share is the paper's share of RTF x Demand. An
-- attempt listed twice with the same reason counts once; an attempt with two reasons counts for each. Reasons come from
-- the rules of the log classifier. Sorted by trials in descending order. Percentiles interpolate linearly.
WITH trials AS (
    SELECT DISTINCT job_id, attempt, reason, category
    FROM failures
),

told AS (
    SELECT
        t.job_id,
        t.reason,
        t.category,
        j."user",
        a.run_s,
        a.gpu_s
    FROM trials AS t
    LEFT JOIN jobs AS j ON t.job_id = j.job_id
    LEFT JOIN attempt_gpu_time AS a ON t.job_id = a.job_id AND t.attempt = a.attempt
)

SELECT
    reason,
    category,
    count(*) AS trials,
    count(DISTINCT job_id) AS jobs,
    nullif(count(DISTINCT "user"), 0) AS users,
    quantile_cont(run_s, 0.5) AS rtf_p50_s,
    quantile_cont(run_s, 0.9) AS rtf_p90_s,
    quantile_cont(run_s, 0.95) AS rtf_p95_s,
    CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours,
    CAST(sum(gpu_s) AS DOUBLE) / nullif(CAST(sum(sum(gpu_s)) OVER () AS DOUBLE), 0) AS rtf_demand_share
FROM told
GROUP BY reason, category
ORDER BY trials DESC, reason, category NULLS LAST
