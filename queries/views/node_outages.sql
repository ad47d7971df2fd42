-- title: Outages of nodes
-- tables: jobs, attempts, node_events
-- views: observed_time
-- column node_id: text | the node
-- column since: us since 1970 | start of the outage
-- column until: us since 1970 | end of the outage
-- column events: events | rows of node_events in the outage
-- rule:
-- One row for each period in which a node was down, drained or in maintenance, after overlapping and adjoining events
-- are combined. An event without an end lasts to the end of the observed time of the trace. A degraded node still takes
-- jobs.
WITH event AS (
    SELECT e.node_id, epoch_us(e.start_time) AS since, coalesce(epoch_us(e.end_time), o.until) AS until
    FROM node_events AS e CROSS JOIN observed_time AS o
    WHERE e.state IN ('down', 'drained', 'maintenance')
),

marked AS (
    SELECT
        *,
        max(until) OVER (
            PARTITION BY node_id ORDER BY since, until ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS latest_before
    FROM event
),

numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE latest_before IS NULL OR since > latest_before) OVER (
            PARTITION BY node_id ORDER BY since, until ROWS UNBOUNDED PRECEDING
        ) AS outage
    FROM marked
)

SELECT node_id, min(since) AS since, max(until) AS until, count(*) AS events FROM numbered GROUP BY node_id, outage
