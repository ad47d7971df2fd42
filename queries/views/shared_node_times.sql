-- title: Periods in which several jobs use GPUs of one node
-- tables: attempts, placements
-- views: node_job_counts
-- column node_id: text | the machine
-- column since: UTC | start, inclusive
-- column until: UTC | end, exclusive
-- rule:
-- Periods of node_job_counts in which two or more jobs use GPUs of the node. Attempts of one job do not count as
-- sharing. The rows of one node neither overlap nor touch.
WITH node_shared AS (
    SELECT node_id, since AS time, jobs >= 2 AS shared
    FROM node_job_counts
),

turns AS (
    SELECT node_id, time, shared, lag(shared, 1, FALSE) OVER (PARTITION BY node_id ORDER BY time) AS before
    FROM node_shared
),

node_times AS (
    SELECT node_id, shared, time AS since, lead(time) OVER (PARTITION BY node_id ORDER BY time) AS until
    FROM turns
    WHERE shared <> before
)

SELECT node_id, since, until
FROM node_times
WHERE shared
