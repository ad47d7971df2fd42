-- title: Nodes out of service, by cause
-- question: What takes nodes out of service, and for how long?
-- paper: none
-- tables: node_events
-- also: nodes
-- column cause: text | cause, with the same name for every source; NULL if no reason was given
-- column state: text | down, drained, maintenance or degraded
-- column nodes: nodes | nodes with such an event
-- column events: events | number of times that a node was in this state for this cause
-- column going_on: events | of these, events without an end
-- column node_hours: hours | total time of the events that ended
-- column gpu_hours: GPU-hours | node-hours times the GPUs of the node; nodes of unknown size are excluded
-- column p50_hours: hours | median time from start to end
-- column longest_hours: hours | longest time from start to end
-- rule:
-- Each row of node_events counts once, even if two events of one node overlap, so the same hours may count for several
-- causes. An event without an end has no length and counts only in events and going_on. A degraded node still takes
-- jobs, so its GPUs are not out of service. Sorted by GPU-hours in descending order.
WITH lasting AS (
    SELECT
        e.node_id,
        e.cause,
        e.state,
        (epoch_us(e.end_time) - epoch_us(e.start_time)) / 3.6e9 AS hours,
        n.gpu_count
    FROM node_events AS e
    LEFT JOIN nodes AS n ON e.node_id = n.node_id
)

SELECT
    cause,
    state,
    count(DISTINCT node_id) AS nodes,
    count(*) AS events,
    count(*) - count(hours) AS going_on,
    CAST(sum(CAST(hours AS DECIMAL(38, 9))) AS DOUBLE) AS node_hours,
    CAST(sum(CAST(hours * gpu_count AS DECIMAL(38, 9))) AS DOUBLE) AS gpu_hours,
    quantile_cont(hours, 0.5) AS p50_hours,
    max(hours) AS longest_hours
FROM lasting
GROUP BY cause, state
ORDER BY gpu_hours DESC NULLS LAST, events DESC, cause NULLS LAST, state
