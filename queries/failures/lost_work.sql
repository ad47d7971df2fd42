-- title: Work lost by attempts that were cut short
-- question: How many GPU-hours were lost since the last checkpoint, and to what?
-- paper: none
-- tables: jobs, attempts
-- also: placements, node_events, failures
-- needs: statuses, gpu_count
-- tenant: none
-- param checkpoint_h: 0 | hours from one checkpoint of an attempt to the next; 0: nothing is saved, all of it is lost
-- param rule: stated {stated, retried} | attempts with a status that says so, or also those of unknown end tried again
-- column status: text | how the attempts ended; NULL when unknown
-- column cause: text | why a node of theirs went out of service as they ended, else the family of the reason in their log
-- column attempts: attempts | attempts that were cut short so
-- column gpu_hours: GPU-hours | held by them; NULL where it is known of none
-- column lost_gpu_hours: GPU-hours | the part since the last checkpoint
-- column lost_share: share | lost_gpu_hours / GPU-hours of all attempts
-- column failed_jobs_gpu_hours: GPU-hours | held by those of them whose job ended badly after all its attempts
-- column unknown_size: attempts | those of attempts whose run time or GPUs are unknown, which are in no GPU-hours
-- rule:
-- Attempts that were cut short are the interrupted ones of the view attempt_interruptions: failed, timeout, node_fail,
-- out_of_memory, preempted, or any but completed that ended as a node of theirs failed. rule=retried adds attempts of
-- unknown end that another attempt followed. What completed, what its user cancelled, and what still runs loses nothing.
-- Checkpoints are a rule, since logs do not have them: one every checkpoint_h hours from the start of the attempt, at no
-- cost, and each next attempt goes on from the last. Lost is the run time modulo checkpoint_h, times GPUs: nothing where
-- the attempt ends with a checkpoint. A job that failed for good loses the same, since what it saved is there to be taken
-- up again; failed_jobs_gpu_hours says what is lost if nobody does. Start-up counts as lost with the rest:
-- failures/goodput takes it out.
-- cause is that of the node's failure (the word of the table node_events, unknown where none was given), else the
-- category in the table failures of what the attempt's log says: infrastructure, engine or user. It is NULL where
-- neither is known. Listed by GPU-hours lost, most first.
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
