-- title: The number of jobs that use GPUs of each node over time
-- tables: attempts, placements
-- column node_id: text | the machine
-- column since: UTC | start, inclusive
-- column until: UTC | end, exclusive; NULL in the last row of a node, which has 0 jobs
-- column jobs: jobs | jobs that use GPUs of the node
-- rule:
-- A job uses GPUs of a node from floor_to_minute(start) of its attempt up to the attempt's end, as in attempt_samples.
-- Attempts of one job never count twice. Attempts without a start or an end are excluded, because we do not know how
-- long they were there. So are placements without a GPU. The times of a node follow each other without gaps from its
-- first job on. The count rises at each arrival and falls at each departure, so pairs of jobs need no comparison.
WITH held AS (
    SELECT
        p.node_id,
        p.job_id,
        date_trunc('minute', a.start_time) AS since,
        a.end_time AS until
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    WHERE date_trunc('minute', a.start_time) < a.end_time AND (len(p.gpu_index) > 0 OR p.gpu_count > 0)
),

-- Number of attempts (and placements) of one job on the node; several count as one.
job_steps AS (
    SELECT node_id, job_id, time, sum(change) AS change
    FROM (
        SELECT node_id, job_id, since AS time, 1 AS change FROM held
        UNION ALL
        SELECT node_id, job_id, until, -1 FROM held
    ) AS steps
    GROUP BY node_id, job_id, time
),

job_present AS (
    SELECT
        node_id,
        job_id,
        time,
        CASE WHEN sum(change) OVER (PARTITION BY node_id, job_id ORDER BY time) > 0 THEN 1 ELSE 0 END AS present
    FROM job_steps
),

job_changes AS (
    SELECT
        node_id,
        time,
        present - lag(present, 1, 0) OVER (PARTITION BY node_id, job_id ORDER BY time) AS change
    FROM job_present
),

node_steps AS (
    SELECT node_id, time, sum(change) AS change
    FROM job_changes
    GROUP BY node_id, time
)

SELECT
    node_id,
    time AS since,
    lead(time) OVER (PARTITION BY node_id ORDER BY time) AS until,
    CAST(sum(change) OVER (PARTITION BY node_id ORDER BY time) AS BIGINT) AS jobs
FROM node_steps
