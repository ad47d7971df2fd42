-- title: Failed jobs by user
-- question: Whose jobs fail most, and at what cost?
-- paper: user repetition of failures in Philly Table 7 (ATC'19)
-- tables: jobs
-- also: attempts
-- needs: users, statuses
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- param jobs: auto {auto, gpu, cpu, all} | jobs to count: auto (those with GPUs, if the trace has any), with GPUs, without GPUs, or all
-- column user: text | user who submitted the jobs; NULL when unknown
-- column jobs: jobs | jobs of this user, with any status
-- column failed_jobs: jobs | of these, jobs that ended unsuccessfully
-- column failed_share: share | failed_jobs / jobs with a known status; NULL when there is none
-- column timed_out_jobs: jobs | of the failed jobs, those with status timeout
-- column gpu_hours_lost: GPU-hours | GPU time of the user's failed attempts; NULL when none is known
-- rule:
-- A job is unsuccessful if its status is failed, timeout, node_fail or out_of_memory, as in failures/retries.
-- gpu_hours_lost is defined as in failures/run_time_to_failure. It covers all failed attempts, including attempts of
-- jobs that finally completed and of jobs of unknown size. Users with the same name in several clusters count as one.
-- Sorted by GPU-hours lost, then by failed jobs, both descending.
WITH population AS (
    SELECT
        CASE $jobs
            WHEN 'auto' THEN CASE WHEN count(*) FILTER (WHERE gpu_count > 0) > 0 THEN 'gpu' ELSE 'all' END
            ELSE $jobs
        END AS kind
    FROM jobs
),

by_user AS (
    SELECT
        "user",
        count(*) AS jobs,
        count(*) FILTER (WHERE unsuccessful) AS failed_jobs,
        count(unsuccessful) AS known,
        count(*) FILTER (WHERE status = 'timeout') AS timed_out_jobs
    FROM job_classes
    CROSS JOIN population AS p
    WHERE p.kind = 'all' OR (p.kind = 'gpu' AND gpu_count > 0) OR (p.kind = 'cpu' AND gpu_count = 0)
    GROUP BY "user"
),

lost AS (
    SELECT "user", sum(gpu_s) AS gpu_s
    FROM attempt_outcomes
    WHERE CASE WHEN $rule = 'retried' THEN failed_or_retried ELSE failed END
    GROUP BY "user"
)

SELECT
    u."user",
    u.jobs,
    u.failed_jobs,
    CAST(u.failed_jobs AS DOUBLE) / nullif(u.known, 0) AS failed_share,
    u.timed_out_jobs,
    CAST(l.gpu_s AS DOUBLE) / 3600 AS gpu_hours_lost
FROM by_user AS u
LEFT JOIN lost AS l ON u."user" IS NOT DISTINCT FROM l."user"
ORDER BY gpu_hours_lost DESC NULLS LAST, failed_jobs DESC, u."user" NULLS LAST
