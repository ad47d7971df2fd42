-- title: Waiting and completion of GPU jobs by user
-- question: Which users wait most, and whose jobs complete?
-- paper: Helios Fig 9 (SC'21)
-- tables: jobs, attempts
-- needs: users, gpu_count
-- column user: text | user who submitted the jobs; NULL when unknown
-- column gpu_jobs: jobs | jobs with GPUs
-- column gpu_hours: GPU-hours | GPU time of these jobs over their attempts; NULL when none is known
-- column queue_hours: hours | total wait of these jobs; NULL when none is known
-- column completed_share: share | completed jobs / jobs with a known status; NULL when there is none
-- rule:
-- Only jobs with GPUs are counted, with any status. Every period in the queue is a wait, as in queuing/queue_delay; for
-- a job that ran once, this is the paper's queue time. Running and waiting jobs count as jobs with a known status that
-- have not completed. Users with the same name in several clusters count as one. Sorted by queue_hours in descending
-- order.
WITH by_job AS (
    SELECT
        a.job_id,
        sum(CAST(a.wait_s AS DECIMAL(38, 6))) AS wait_s
    FROM attempts AS a
    GROUP BY a.job_id
)

SELECT
    j."user",
    count(*) AS gpu_jobs,
    CAST(sum(j.gpu_s) AS DOUBLE) / 3600 AS gpu_hours,
    CAST(sum(w.wait_s) AS DOUBLE) / 3600 AS queue_hours,
    CAST(count(*) FILTER (WHERE j.status = 'completed') AS DOUBLE)
    / nullif(count(*) FILTER (WHERE j.status <> 'unknown'), 0) AS completed_share
FROM job_gpu_hours AS j
LEFT JOIN by_job AS w ON j.job_id = w.job_id
WHERE j.gpu_count > 0
GROUP BY j."user"
ORDER BY queue_hours DESC NULLS LAST, j."user" NULLS LAST
