-- title: Outages of nodes over time
-- question: When were nodes out of service, and how many at once?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param bins: 48 | number of time spans of equal length
-- param worst: 40 | number of nodes that get their own rows, starting with the longest time out of service
-- column node_id: text | the node, or NULL for all nodes of the trace together
-- column rank: number | rank of the node by its time out of service, from 1 for the longest, or 0 for all nodes
-- column start_time: time | start of the span [UTC]
-- column span_h: hours | length of the span
-- column down_h: hours | time out of service in the span; in the rows for all nodes, the sum over the nodes
-- column nodes_down: nodes | down_h / span_h, the mean number of nodes out of service in the span
-- column down_share: share | down_h / (span_h * nodes)
-- rule:
-- The observed time of the trace is divided into spans of equal length. Outages are those of
-- failures/node_availability. All nodes together have a row for every span. A single node has a row for each span in
-- which it was out of service. Nodes that were out of service equally long are ranked by name. An outage of zero length
-- has no row.
WITH bin AS (
    SELECT
        i AS number,
        o.since + CAST((o.until - o.since) AS HUGEINT) * i // $bins AS since,
        o.since + CAST((o.until - o.since) AS HUGEINT) * (i + 1) // $bins AS until
    FROM observed_time AS o
    CROSS JOIN (SELECT unnest(generate_series(0, CAST($bins AS BIGINT) - 1)) AS i) AS r
    WHERE o.until > o.since
),

worst AS (
    SELECT node_id, row_number() OVER (ORDER BY sum(until - since) DESC, node_id) AS rank
    FROM node_outages
    WHERE until > since
    GROUP BY node_id
),

part AS (
    SELECT d.node_id, b.number, sum(least(d.until, b.until) - greatest(d.since, b.since)) AS us
    FROM node_outages AS d
    JOIN bin AS b ON d.since < b.until AND d.until > b.since
    GROUP BY d.node_id, b.number
),

whole AS (SELECT count(*) AS nodes FROM (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events) AS known),

every AS (
    SELECT NULL AS node_id, 0 AS rank, b.number, coalesce(sum(p.us), 0) AS us, any_value(w.nodes) AS nodes
    FROM bin AS b
    CROSS JOIN whole AS w
    LEFT JOIN part AS p ON b.number = p.number
    GROUP BY b.number
    UNION ALL
    SELECT p.node_id, w.rank, p.number, p.us, 1 AS nodes
    FROM part AS p
    JOIN worst AS w ON p.node_id = w.node_id
    WHERE w.rank <= $worst
)

SELECT
    e.node_id,
    e.rank,
    make_timestamp(CAST(b.since AS BIGINT)) AS start_time,
    CAST(b.until - b.since AS DOUBLE) / 3.6e9 AS span_h,
    CAST(e.us AS DOUBLE) / 3.6e9 AS down_h,
    CAST(e.us AS DOUBLE) / CAST(nullif(b.until - b.since, 0) AS DOUBLE) AS nodes_down,
    CAST(e.us AS DOUBLE) / CAST(nullif(b.until - b.since, 0) AS DOUBLE) / e.nodes AS down_share
FROM every AS e
JOIN bin AS b ON e.number = b.number
ORDER BY e.rank, e.node_id, b.number
