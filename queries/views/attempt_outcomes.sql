-- title: Attempts and how they ended
-- tables: jobs, attempts
-- views: job_classes, attempt_gpu_time
-- column user: text | user who submitted the job
-- column gpu_class: class | the job's size class
-- column class_order: number | order of the class
-- column failed: true or false | whether the attempt ended badly; NULL if its own status does not show it
-- column failed_or_retried: true or false | the same, but TRUE if that is NULL and another attempt followed
-- rule:
-- One row for each row of attempt_gpu_time whose job is known, with all its columns and the five above. A bad end is
-- failed, timeout, node_fail or out_of_memory, as in job_classes. If the status is missing or 'unknown', so is the end.
-- Philly has one status per job, so the end of an attempt is unknown if another followed. Philly's scheduler retries
-- failed jobs, so failed_or_retried counts such attempts as failed, and may count a preemption as a failure.
SELECT
    a.*,
    j."user",
    j.gpu_class,
    j.class_order,
    is_unsuccessful(a.status) AS failed,
    coalesce(is_unsuccessful(a.status), CASE WHEN a.attempt < l.last_attempt THEN TRUE END) AS failed_or_retried
FROM attempt_gpu_time AS a
INNER JOIN job_classes AS j ON a.job_id = j.job_id
INNER JOIN (
    SELECT job_id, max(attempt) AS last_attempt FROM attempts GROUP BY job_id
) AS l ON a.job_id = l.job_id
