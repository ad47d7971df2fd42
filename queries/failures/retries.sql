-- title: Retries and unsuccessful jobs by job size
-- question: How often are jobs retried, and do they finally succeed?
-- paper: Philly Fig 9 (ATC'19)
-- tables: jobs
-- needs: retries, gpu_count
-- column gpu_class: class | size class of the job
-- column jobs: jobs | jobs of this class
-- column mean_retries: retries | mean of (attempts - 1) over the jobs with an attempt
-- column unsuccessful_share: share | unsuccessful jobs / jobs with a known status
-- column timeout_share: share | jobs that hit their time limit (timeout) / jobs with a known status
-- interval unsuccessful_share: proportion of _known
-- rule:
-- A job's retries are its attempts minus one; jobs that never started are excluded from the mean. A job is unsuccessful
-- if its status is failed, timeout, node_fail or out_of_memory; a missing or 'unknown' status is not known. Running and
-- waiting jobs have a known status and do not count as unsuccessful. Jobs of unknown size are excluded. If a log has
-- one status per job, it does not show why earlier attempts ended, so a retry may follow a preemption.
SELECT
    gpu_class,
    count(*) AS jobs,
    avg(CASE WHEN attempt_count >= 1 THEN attempt_count - 1 END) AS mean_retries,
    CAST(count(*) FILTER (WHERE unsuccessful) AS DOUBLE) / nullif(count(unsuccessful), 0) AS unsuccessful_share,
    CAST(count(*) FILTER (WHERE status = 'timeout') AS DOUBLE) / nullif(count(unsuccessful), 0) AS timeout_share,
    count(unsuccessful) AS _known
FROM job_classes
WHERE gpu_class IS NOT NULL
GROUP BY gpu_class, class_order
ORDER BY class_order
