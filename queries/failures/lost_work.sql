-- title: Work lost by attempts that were cut short
-- question: How many GPU-hours were lost since the last checkpoint, and to what?
-- paper: none
-- tables: jobs, attempts
-- also: placements, node_events, failures
-- needs: statuses, gpu_count
-- tenant: none
-- param checkpoint_h: 0 | hours between checkpoints of an attempt, or 0 if nothing is saved and all its work is lost
-- param rule: stated {stated, retried} | attempts whose status marks them as cut short; retried adds attempts with an unknown end that were tried again
-- column status: text | how the attempts ended; NULL when unknown
-- column cause: text | why one of their nodes went out of service as they ended, or else the category of the reason in their log
-- column attempts: attempts | attempts that were cut short in this way
-- column gpu_hours: GPU-hours | allocated to these attempts; NULL if none is known
-- column lost_gpu_hours: GPU-hours | allocated since the last checkpoint
-- column lost_share: share | lost_gpu_hours / GPU-hours of all attempts
-- column failed_jobs_gpu_hours: GPU-hours | allocated to the attempts whose job ended badly after all its attempts
-- column unknown_size: attempts | of these, attempts with unknown run time or GPUs; the GPU-hours exclude them
-- rule:
-- Attempts that were cut short are the interrupted attempts of the view attempt_interruptions: their status is failed,
-- timeout, node_fail, out_of_memory or preempted, or they ended as one of their nodes failed and did not complete.
-- rule=retried adds attempts of unknown end that another attempt followed. Attempts that completed, were cancelled by
-- the user, or still run lose nothing. Logs do not record checkpoints, so the query assumes one every checkpoint_h
-- hours from the start of the attempt, at no cost. The next attempt continues from the last checkpoint. The lost GPU
-- time is the run time modulo checkpoint_h, times GPUs, which is 0 if the attempt ends with a checkpoint. This also
-- applies to jobs that failed for good, whose saved work can be reused; failed_jobs_gpu_hours is the loss if nobody
-- does. Start-up time since the last checkpoint counts as lost; failures/goodput excludes it. cause is the cause of the
-- node's failure (the word in the node_events table, or unknown if none was given). Without a node failure, it is the
-- category that the failures table gives for the attempt's log: infrastructure, engine or user. It is NULL if neither
-- is known. Sorted by GPU-hours lost in descending order.
WITH every AS (
    SELECT CASE WHEN $checkpoint_h >= 0 THEN CAST(round($checkpoint_h * 3.6e9) AS BIGINT)
        ELSE error('checkpoint_h must be 0 or more') END AS us
),

reason AS (
    SELECT f.job_id, coalesce(f.attempt, l.attempt) AS attempt, arg_min(f.category, (f."time", f.reason)) AS category
    FROM failures AS f
    LEFT JOIN (SELECT job_id, max(attempt) AS attempt FROM attempts GROUP BY job_id) AS l ON f.job_id = l.job_id
    WHERE f.category IS NOT NULL
    GROUP BY ALL
),

cut AS (
    SELECT
        i.status,
        coalesce(i.node_cause, r.category) AS cause,
        i.gpu_s,
        CAST(
            CASE WHEN e.us = 0 THEN i.run_s ELSE CAST(round(i.run_s * 1e6) AS BIGINT) % e.us / 1e6 END * i.gpu_count
            AS DECIMAL(38, 6)
        ) AS lost_gpu_s,
        c.unsuccessful
    FROM attempt_interruptions AS i
    INNER JOIN job_classes AS c ON i.job_id = c.job_id
    CROSS JOIN every AS e
    LEFT JOIN reason AS r ON i.job_id = r.job_id AND i.attempt = r.attempt
    WHERE (CASE WHEN $rule = 'retried' THEN i.interrupted_or_retried ELSE i.interrupted END)
        AND c.gpu_count IS DISTINCT FROM 0
)

SELECT
    status,
    cause,
    count(*) AS attempts,
    CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours,
    CAST(sum(lost_gpu_s) AS DOUBLE) / 3600 AS lost_gpu_hours,
    CAST(sum(lost_gpu_s) AS DOUBLE) / nullif((SELECT CAST(sum(gpu_s) AS DOUBLE) FROM attempt_gpu_time), 0) AS lost_share,
    CASE
        WHEN count(gpu_s) > 0 THEN coalesce(CAST(sum(gpu_s) FILTER (WHERE unsuccessful) AS DOUBLE), 0) / 3600
    END AS failed_jobs_gpu_hours,
    count(*) - count(gpu_s) AS unknown_size
FROM cut
GROUP BY status, cause
ORDER BY lost_gpu_hours DESC NULLS LAST, attempts DESC, status NULLS LAST, cause NULLS LAST
