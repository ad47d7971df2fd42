-- title: Attempts with whether and why they were interrupted
-- tables: jobs, attempts, placements, node_events
-- views: attempt_outcomes
-- column node_cause: text | why a node of the attempt went out of service as it ended; NULL if none did
-- column interrupted: true or false | whether the attempt was cut short; NULL if its end is unknown
-- column interrupted_or_retried: true or false | the same, but TRUE if that is NULL and another attempt followed
-- rule:
-- One row for each row of attempt_outcomes, with all its columns and the three above. A node goes out of service as an
-- attempt ends if it fails (as in failures/time_between) while the attempt runs or just after. The failure must begin
-- between ten minutes before and five minutes after the attempt's end, because monitors notice failures late and
-- schedulers wait before they give up on a node. We chose these times. If there are several failures, the first counts;
-- among simultaneous failures of a node, one with a known cause counts. An attempt that completed was not interrupted,
-- whatever happened to its nodes. An attempt was interrupted if it ended badly, was preempted, or ended in another way
-- as one of its nodes failed. An attempt cancelled by its user without a node failure was not interrupted.
WITH fault AS (
    SELECT
        node_id,
        start_time,
        coalesce(min(cause) FILTER (WHERE cause <> 'unknown'), 'unknown') AS cause
    FROM node_events
    WHERE
        coalesce(cause, 'unknown') <> 'maintenance'
        AND (state = 'down' OR (state = 'drained' AND coalesce(cause, 'unknown') <> 'unknown'))
        AND (end_time IS NULL OR end_time >= start_time)
    GROUP BY node_id, start_time
),

-- Attempts near a failure end in one of two quarter-hours, so the join is an equality and sorts nothing.
near AS (
    SELECT
        *,
        unnest(list_distinct([
            epoch_us(start_time - INTERVAL 5 MINUTE) // 900000000, epoch_us(start_time + INTERVAL 10 MINUTE) // 900000000
        ])) AS quarter
    FROM fault
),

hit AS (
    SELECT p.job_id, p.attempt, arg_min(f.cause, (f.start_time, f.node_id)) AS node_cause
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    INNER JOIN near AS f ON p.node_id = f.node_id AND epoch_us(a.end_time) // 900000000 = f.quarter
    WHERE
        f.start_time >= a.start_time
        AND f.start_time BETWEEN a.end_time - INTERVAL 10 MINUTE AND a.end_time + INTERVAL 5 MINUTE
    GROUP BY p.job_id, p.attempt
),

judged AS (
    SELECT
        o.*,
        h.node_cause,
        CASE
            WHEN o.failed OR o.status = 'preempted' THEN TRUE
            WHEN h.node_cause IS NOT NULL AND coalesce(o.status, '') NOT IN ('completed', 'running', 'pending') THEN TRUE
            WHEN o.status <> 'unknown' THEN FALSE
        END AS interrupted
    FROM attempt_outcomes AS o
    LEFT JOIN hit AS h ON o.job_id = h.job_id AND o.attempt = h.attempt
)

SELECT *, coalesce(interrupted, CASE WHEN failed_or_retried THEN TRUE END) AS interrupted_or_retried
FROM judged
