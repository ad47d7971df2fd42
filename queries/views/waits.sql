-- title: Each wait of each job
-- tables: jobs, attempts
-- views: job_classes
-- column job_id: text | the job
-- column attempt: number | the attempt that ended the wait
-- column cluster: text | the job's cluster
-- column vc: text | the job's tenant
-- column gpu_count: GPUs | the job's size
-- column gpu_class: class | the job's size class
-- column class_order: number | order of the class
-- column node_count: nodes | nodes of the job's first attempt
-- column wait_s: s | from the submission, or the end of the previous attempt, to the start; NULL when unknown
-- column notebook_wait_s: s | the wait that the published notebook counts for this attempt; NULL when it counts none
-- rule:
-- One row for each attempt. The wait is unknown (NULL) if the start of the attempt or the end of the attempt before it
-- is unknown; these rows are kept to count unknown waits. Waits of 0 s count. No wait is negative, because a start
-- before the submission counts as unknown. As in Philly (ATC'19), each period in the queue is one wait. notebook_wait_s
-- follows the notebook of the Philly traces. An attempt with a known start waited from the end of the last attempt
-- before it with a known start, or else from the submission. If the start, that end or the submission is unknown, the
-- job's previous wait is counted again, or nothing if there was none. After a started attempt with an unknown end,
-- every attempt repeats the previous wait. Waits of 0 s, which the notebook finally drops, are rows here.
WITH timed AS (
    SELECT
        a.job_id,
        a.attempt,
        a.wait_s,
        a.start_time,
        j.submit_time,
        j.cluster,
        j.vc,
        j.gpu_count,
        j.gpu_class,
        j.class_order,
        j.node_count,
        last_value(CASE WHEN a.start_time IS NOT NULL THEN a.end_time END IGNORE NULLS) OVER earlier AS freed,
        coalesce(bool_or(a.start_time IS NOT NULL AND a.end_time IS NULL) OVER earlier, FALSE) AS lost
    FROM attempts AS a
    INNER JOIN job_classes AS j ON a.job_id = j.job_id
    WINDOW earlier AS (PARTITION BY a.job_id ORDER BY a.attempt ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),

queued AS (
    SELECT
        *,
        CASE WHEN submit_time IS NOT NULL AND NOT lost
            THEN CAST(epoch_us(start_time) - epoch_us(coalesce(freed, submit_time)) AS DOUBLE) / 1000000
        END AS own_wait_s
    FROM timed
)

SELECT
    job_id,
    attempt,
    cluster,
    vc,
    gpu_count,
    gpu_class,
    class_order,
    node_count,
    wait_s,
    last_value(own_wait_s IGNORE NULLS) OVER (
        PARTITION BY job_id ORDER BY attempt ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS notebook_wait_s
FROM queued
