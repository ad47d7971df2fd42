-- title: GPU utilization alone on the nodes and beside other jobs
-- question: Are GPUs less busy while another job holds GPUs of the same node?
-- paper: Philly guideline 2, interference on shared servers (ATC'19); Table 4 measures it in a controlled run
-- tables: attempts, placements, gpu_utilization
-- needs: utilization, placement, gpu_index
-- param rule: any_node {any_node, same_node} | another job on any node of the attempt, or on the node of the sample
-- column gpu_count: GPUs | GPUs of the attempt
-- column colocated: true or false | whether another job held GPUs of the attempt's nodes at the time of the sample
-- column samples: samples | one sample is one GPU for one sampling interval
-- column mean_pct: percent | mean utilization
-- column p50_pct: percent | median
-- column p90_pct: percent | 90th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- All samples of a row are pooled, matched to attempts as in utilization/gpu_by_size_status. Percentiles interpolate
-- linearly; they are read off the counts of each value, so that memory does not grow with the number of samples.
-- Each sample is judged for itself, so an attempt can have samples of both kinds. A job holds a node from
-- floor_to_minute(start) up to the end of its attempt, half-open, as the view shared_node_times says: attempts of the
-- same job are no neighbours, nor are attempts without a start or an end. rule=any_node: a gang goes at the pace of its
-- slowest part, so all its samples count as colocated while any of its nodes is shared. rule=same_node: only those on
-- the shared node. The two differ for attempts on several nodes alone. Attempts of unknown size are out.
-- Times are cut into hours, so that the joins are equalities and memory stays small.
WITH sampled AS (
    SELECT min(time) AS first_time, max(time) AS last_time
    FROM gpu_utilization
),

held_hours AS (
    SELECT DISTINCT
        p.job_id,
        p.attempt,
        p.node_id,
        unnest(generate_series(
            date_trunc('hour', greatest(a.start_time, d.first_time)), least(a.end_time, d.last_time), INTERVAL 1 HOUR
        )) AS hour
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    CROSS JOIN sampled AS d
    WHERE a.start_time <= d.last_time AND a.end_time > d.first_time AND (len(p.gpu_index) > 0 OR p.gpu_count > 0)
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
        h.job_id,
        h.attempt,
        CASE WHEN $rule = 'same_node' THEN h.node_id ELSE '' END AS node_id,
        h.hour,
        n.since,
        n.until,
        max(n.until) OVER (
            PARTITION BY h.job_id, h.attempt, CASE WHEN $rule = 'same_node' THEN h.node_id ELSE '' END, h.hour
            ORDER BY n.since, n.until
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached
    FROM held_hours AS h
    INNER JOIN shared_hours AS n ON h.node_id = n.node_id AND h.hour = n.hour
),

-- Overlaps are cut off, so that a sample finds one row at most and is counted once.
shared_once AS (
    SELECT job_id, attempt, node_id, hour, greatest(since, coalesce(reached, since)) AS since, until
    FROM shared
    WHERE reached IS NULL OR until > reached
),

counted AS (
    SELECT
        a.gpu_count,
        x.hour IS NOT NULL AS colocated,
        s.utilization_pct AS value,
        count(*) AS n
    FROM attempt_samples AS s
    INNER JOIN attempts AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
    LEFT JOIN shared_once AS x
        ON s.job_id = x.job_id
        AND s.attempt = x.attempt
        AND CASE WHEN $rule = 'same_node' THEN s.node_id ELSE '' END = x.node_id
        AND date_trunc('hour', s.time) = x.hour
        AND s.time >= x.since
        AND s.time < x.until
    WHERE a.gpu_count IS NOT NULL
    GROUP BY a.gpu_count, x.hour IS NOT NULL, s.utilization_pct
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

-- The value of rank r, counted from 0, is the least one with more than r samples up to it.
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
