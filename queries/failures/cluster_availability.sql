-- title: Availability of the cluster
-- question: How much of the time could nodes take jobs, and how much did outages cost?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- column metric: text | name of the metric
-- column value: see unit | value of the metric; NULL if the trace does not show it
-- column unit: text | unit of the value
-- rule:
-- The nodes, the observed time of the trace and the outages are those of failures/node_availability. Outages are
-- periods in which a node was down, drained or in maintenance; overlapping and adjoining events count as one. nodes:
-- all nodes. nodes_hit: nodes with an outage. outages, events: totals over all nodes. going_on: events without an end.
-- observed_h: the observed time of the trace. down_node_h: hours out of service, summed over nodes. availability_share:
-- 1 - down_node_h / (nodes * observed_h), which is the mean over the nodes. known_gpu_nodes: nodes with a known number
-- of GPUs; down_gpu_h: hours out of service times GPUs, for these nodes only. outages_per_node_year: outages / (nodes *
-- observed_h) times 8760 h, the hours of 365 days. most_down_at_once: the maximum number of nodes out of service at one
-- moment. If one outage ends at the moment another begins, they do not overlap.
WITH known AS (SELECT node_id FROM nodes UNION SELECT node_id FROM node_events),

total AS (
    SELECT
        (SELECT count(*) FROM known) AS nodes,
        (SELECT count(*) FROM known JOIN nodes USING (node_id) WHERE gpu_count IS NOT NULL) AS known_gpu_nodes,
        (o.until - o.since) / 3.6e9 AS observed_h,
        count(DISTINCT d.node_id) AS nodes_hit,
        count(d.node_id) AS outages,
        coalesce(sum(d.events), 0) AS events,
        coalesce(sum(d.until - d.since), 0) / 3.6e9 AS down_node_h,
        sum((d.until - d.since) * n.gpu_count) / 3.6e9 AS gpu_h,
        (
            SELECT count(*) FROM node_events
            WHERE end_time IS NULL AND state IN ('down', 'drained', 'maintenance')
        ) AS going_on
    FROM observed_time AS o
    LEFT JOIN node_outages AS d ON TRUE
    LEFT JOIN nodes AS n ON d.node_id = n.node_id
    GROUP BY o.since, o.until
),

turn AS (
    SELECT t, sum(step) AS step
    FROM (
        SELECT since AS t, 1 AS step FROM node_outages WHERE until > since
        UNION ALL
        SELECT until, -1 FROM node_outages WHERE until > since
    ) AS turns
    GROUP BY t
),

crowd AS (SELECT sum(step) OVER (ORDER BY t ROWS UNBOUNDED PRECEDING) AS down_now FROM turn),

metrics AS (
    SELECT
        unnest([
            {'place': 1, 'metric': 'nodes', 'value': CAST(nodes AS DOUBLE), 'unit': 'nodes'},
            {'place': 2, 'metric': 'observed_h', 'value': observed_h, 'unit': 'hours'},
            {'place': 3, 'metric': 'nodes_hit', 'value': nodes_hit, 'unit': 'nodes'},
            {'place': 4, 'metric': 'outages', 'value': outages, 'unit': 'outages'},
            {'place': 5, 'metric': 'events', 'value': events, 'unit': 'events'},
            {'place': 6, 'metric': 'going_on', 'value': going_on, 'unit': 'events'},
            {'place': 7, 'metric': 'down_node_h', 'value': down_node_h, 'unit': 'hours'},
            {
                'place': 8,
                'metric': 'availability_share',
                'value': 1 - down_node_h / nullif(nodes * observed_h, 0),
                'unit': 'share'
            },
            {'place': 9, 'metric': 'known_gpu_nodes', 'value': known_gpu_nodes, 'unit': 'nodes'},
            {
                'place': 10,
                'metric': 'down_gpu_h',
                'value': CASE WHEN known_gpu_nodes > 0 THEN coalesce(gpu_h, 0) END,
                'unit': 'GPU-hours'
            },
            {
                'place': 11,
                'metric': 'outages_per_node_year',
                'value': 8760 * outages / nullif(nodes * observed_h, 0),
                'unit': 'outages/year'
            },
            {
                'place': 12,
                'metric': 'most_down_at_once',
                'value': (SELECT coalesce(max(down_now), 0) FROM crowd),
                'unit': 'nodes'
            }
        ]) AS m
    FROM total
)

SELECT m.metric, CAST(m.value AS DOUBLE) AS value, m.unit FROM metrics ORDER BY m.place
