-- title: GPU utilization with and without other jobs on the same nodes
-- question: Are GPUs less busy while another job uses GPUs on the same node?
-- paper: Philly guideline 2, interference on shared servers (ATC'19); Table 4 measures it in a controlled run
-- tables: attempts, placements, gpu_utilization
-- needs: utilization, placement, gpu_index
-- merge: sampled, counted
-- param rule: any_node {any_node, same_node} | another job on any node of the attempt, or only on the node of the sample
-- column gpu_count: GPUs | GPUs of the attempt
-- column colocated: true or false | whether another job had GPUs on the attempt's nodes at the time of the sample
-- column samples: samples | one sample is one GPU for one sampling interval
-- column mean_pct: percent | mean utilization
-- column p50_pct: percent | median
-- column p90_pct: percent | 90th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- All samples of a row are pooled, matched to attempts as in utilization/gpu_by_size_status. Percentiles interpolate
-- linearly. They are computed from the count of each value, so memory does not grow with the number of samples. Each
-- sample is classified separately, so an attempt can have samples of both kinds. A job occupies a node from
-- floor_to_minute(start) up to the end of its attempt (half-open), as defined in the view shared_node_times: attempts
-- of the same job, and attempts without a start or end, are not neighbours. With rule=any_node, all samples of a
-- multi-node job count as colocated while any of its nodes is shared, because the job runs at the pace of its slowest
-- part. With rule=same_node, only the samples on the shared node do. The two rules differ only for attempts on several
-- nodes. Attempts of unknown size are excluded. Times are split into hours, so the joins are equalities and memory
-- stays small. Before samples are joined, the hours are also split where the attempt becomes colocated or alone. There
-- are few such pieces, and each sample is looked up once.
WITH sampled AS (
    SELECT min(time) AS first_time, max(time) AS last_time
    FROM gpu_utilization
),

held AS (
    SELECT
        a.attempt || '/' || a.job_id AS held_id,
        a.job_id,
        a.attempt,
        a.gpu_count,
        date_trunc('minute', a.start_time) AS since,
        a.end_time AS until,
        d.first_time,
        d.last_time
    FROM attempts AS a
    CROSS JOIN sampled AS d
    WHERE a.gpu_count IS NOT NULL AND date_trunc('minute', a.start_time) <= d.last_time AND a.end_time > d.first_time
),

-- Nodes with the same held_id and judged_node are colocated together. These are all nodes of the attempt, or each node
-- separately.
held_nodes AS (
    SELECT
        h.held_id,
        p.node_id,
        CASE WHEN $rule = 'same_node' THEN p.node_id ELSE '' END AS judged_node,
        list_distinct(flatten(list(p.gpu_index))) AS gpu_index
    FROM placements AS p
    INNER JOIN held AS h ON p.job_id = h.job_id AND p.attempt = h.attempt
    WHERE len(p.gpu_index) > 0 OR p.gpu_count > 0
    GROUP BY h.held_id, p.node_id
),

held_hours AS (
    SELECT
        held_id,
        gpu_count,
        since,
        until,
        unnest(generate_series(
            date_trunc('hour', greatest(since, first_time)), least(until, last_time), INTERVAL 1 HOUR
        )) AS hour
    FROM held
),

node_hours AS (
    SELECT
        n.held_id,
        n.judged_node,
        n.node_id,
        h.gpu_count,
        h.hour,
        greatest(h.since, h.hour) AS since,
        least(h.until, h.hour + INTERVAL 1 HOUR) AS until
    FROM held_hours AS h
    INNER JOIN held_nodes AS n ON h.held_id = n.held_id
),

shared_hours AS (
    SELECT
        n.node_id,
        n.since,
        n.until,
        unnest(generate_series(
            date_trunc('hour', greatest(n.since, d.first_time)), least(n.until, d.last_time), INTERVAL 1 HOUR
        )) AS hour
    FROM shared_node_times AS n
    CROSS JOIN sampled AS d
    WHERE n.since <= d.last_time AND n.until > d.first_time
),

shared AS (
    SELECT
        h.held_id,
        h.judged_node,
        h.gpu_count,
        h.hour,
        greatest(n.since, h.since) AS since,
        least(n.until, h.until) AS until,
        h.until AS held_until
    FROM node_hours AS h
    INNER JOIN shared_hours AS n ON h.node_id = n.node_id AND h.hour = n.hour
    WHERE n.since < h.until AND n.until > h.since
),

-- A node counts +1 when it becomes shared and -1 when it stops being shared.
changes AS (
    SELECT held_id, judged_node, gpu_count, hour, since AS time, 0 AS change, until AS held_until FROM node_hours
    UNION ALL
    SELECT held_id, judged_node, gpu_count, hour, since, 1, held_until FROM shared
    UNION ALL
    SELECT held_id, judged_node, gpu_count, hour, until, -1, held_until FROM shared WHERE until < held_until
),

pieces AS (
    SELECT
        held_id,
        judged_node,
        gpu_count,
        hour,
        time AS since,
        lead(time, 1, held_until) OVER (PARTITION BY held_id, judged_node, hour ORDER BY time) AS until,
        sum(change) OVER (PARTITION BY held_id, judged_node, hour ORDER BY time) > 0 AS colocated
    FROM changes
),

gpu_pieces AS (
    SELECT n.node_id, unnest(n.gpu_index) AS gpu_index, p.gpu_count, p.hour, p.since, p.until, p.colocated
    FROM pieces AS p
    INNER JOIN held_nodes AS n ON p.held_id = n.held_id AND p.judged_node = n.judged_node
    WHERE p.since < p.until
),

counted AS (
    SELECT
        p.gpu_count,
        p.colocated,
        u.utilization_pct AS value,
        count(*) AS n
    FROM gpu_utilization AS u
    INNER JOIN gpu_pieces AS p
        ON u.node_id = p.node_id
        AND u.gpu_index = p.gpu_index
        AND date_trunc('hour', u.time) = p.hour
    WHERE u.utilization_pct IS NOT NULL AND u.time >= p.since AND u.time < p.until
    GROUP BY p.gpu_count, p.colocated, u.utilization_pct
),

ranked AS (
    SELECT
        gpu_count,
        colocated,
        value,
        n,
        CAST(sum(n) OVER (PARTITION BY gpu_count, colocated ORDER BY value) AS DOUBLE) AS upto,
        CAST(sum(n) OVER (PARTITION BY gpu_count, colocated) AS DOUBLE) AS samples
    FROM counted
),

-- The value of rank r (from 0) is the smallest value with more than r samples at or below it.
quantiles AS (
    SELECT
        r.gpu_count,
        r.colocated,
        q.share,
        max(r.samples) AS samples,
        CAST(sum(CAST(r.value * r.n AS DECIMAL(38, 6))) AS DOUBLE) / max(r.samples) AS mean_pct,
        min(r.value) FILTER (WHERE r.upto > floor(q.share * (r.samples - 1))) AS below,
        min(r.value) FILTER (WHERE r.upto > ceil(q.share * (r.samples - 1))) AS above,
        max(q.share * (r.samples - 1) - floor(q.share * (r.samples - 1))) AS weight
    FROM ranked AS r
    CROSS JOIN (VALUES (0.5), (0.9), (0.95)) AS q (share)
    GROUP BY r.gpu_count, r.colocated, q.share
)

SELECT
    gpu_count,
    colocated,
    CAST(max(samples) AS BIGINT) AS samples,
    max(mean_pct) AS mean_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.5) AS p50_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.9) AS p90_pct,
    max(below + (above - below) * weight) FILTER (WHERE share = 0.95) AS p95_pct
FROM quantiles
GROUP BY gpu_count, colocated
ORDER BY gpu_count, colocated
