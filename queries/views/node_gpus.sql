-- title: GPUs of each node, as listed and as observed
-- tables: nodes, placements, gpu_utilization
-- merge: shown
-- column node_id: text | the machine
-- column listed: GPUs | GPUs in the node list; NULL if the node or its GPUs are not in the list, or if there is no list
-- column observed: GPUs | the largest number in any source; NULL when no source has one
-- rule:
-- observed is the largest of these numbers: the highest GPU index in placements plus one; the GPUs of one placement,
-- rounded up, if it has no indices; the highest GPU index in gpu_utilization plus one; and the number in the nodes
-- table. If the log comes without a list of machines, the nodes table contains the machines that jobs ran on, and their
-- numbers count as observed. Lists can be out of date: Philly's list has 2,490 GPUs, but jobs and telemetry show more.
WITH shown AS (
    SELECT node_id, max(gpu_index) AS last_index FROM gpu_utilization GROUP BY node_id
),

evidence AS (
    SELECT n.node_id, CASE WHEN t.listed THEN n.gpu_count END AS listed, n.gpu_count AS observed
    FROM nodes AS n
    CROSS JOIN trace_nodes AS t
    UNION ALL
    SELECT node_id, NULL, gpu_index + 1
    FROM (SELECT node_id, unnest(gpu_index) AS gpu_index FROM placements) AS held
    UNION ALL
    SELECT node_id, NULL, CAST(ceil(gpu_count) AS BIGINT) FROM placements WHERE gpu_index IS NULL
    UNION ALL
    SELECT node_id, NULL, last_index + 1 FROM shown
)

SELECT node_id, max(listed) AS listed, max(observed) AS observed
FROM evidence
GROUP BY node_id
