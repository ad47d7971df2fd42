-- title: Availability of nodes
-- question: How much of the time could each node take jobs?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- column node_id: text | the node
-- column observed_h: hours | observed time of the trace
-- column down_h: hours | time in which the node was down, drained or in maintenance; overlapping times count once
-- column events: events | such events of the node, including events within another event
-- column outages: outages | periods out of service after overlapping and adjoining events are combined
-- column availability_share: share | 1 - down_h / observed_h; NULL if the trace covers no time
-- rule:
-- The observed time runs from the first to the last of the times in jobs, attempts and node_events. It is the same for
-- every node, because the trace does not show when nodes were bought. The nodes are those in the nodes and node_events
-- tables, so a node that never failed counts as available if the source lists it. An event without an end lasts to the
-- end of the observed time. A degraded node still takes jobs, so it is available. Sorted by availability, lowest first.
WITH by_node AS (
    SELECT node_id, sum(events) AS events, count(*) AS outages, sum(until - since) AS us
    FROM node_outages GROUP BY node_id
),

known AS (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events)

SELECT
    k.node_id,
    (o.until - o.since) / 3.6e9 AS observed_h,
    coalesce(b.us, 0) / 3.6e9 AS down_h,
    CAST(coalesce(b.events, 0) AS BIGINT) AS events,
    coalesce(b.outages, 0) AS outages,
    1 - coalesce(b.us, 0) / nullif(o.until - o.since, 0) AS availability_share
FROM known AS k
CROSS JOIN observed_time AS o
LEFT JOIN by_node AS b ON k.node_id = b.node_id
ORDER BY availability_share NULLS LAST, down_h DESC, k.node_id
