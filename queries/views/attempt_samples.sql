-- title: GPU utilization samples matched to the attempts that held the GPU
-- tables: attempts, placements, gpu_utilization
-- column job_id: text | the job
-- column attempt: number | the attempt
-- column node_id: text | the machine
-- column gpu_index: number | the GPU on the machine
-- column time: UTC | start of the sampling interval
-- column utilization_pct: percent | busy share of the GPU in the interval
-- rule:
-- A sample at time t belongs to an attempt when floor_to_minute(start) <= t < end of the attempt, and the attempt
-- held that GPU of that node. Attempts without a start or an end have no samples; samples without a
-- utilization are left out. Two attempts that claim one GPU at one time contradict each other: the sample then
-- counts once for each. An attempt that names a GPU twice has its samples once.
-- Source: the notebook of the Philly traces.
-- Each held GPU is cut into hours, so that the join is an equality on (node, GPU, hour) and memory stays small.
WITH sampled AS (
    SELECT min(time) AS first_time, max(time) AS last_time
    FROM gpu_utilization
),

held AS (
    SELECT DISTINCT
        p.job_id,
        p.attempt,
        p.node_id,
        unnest(p.gpu_index) AS gpu_index,
        date_trunc('minute', a.start_time) AS since,
        a.end_time AS until
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    WHERE a.start_time IS NOT NULL AND a.end_time IS NOT NULL
),

held_hours AS (
    SELECT
        held.*,
        unnest(generate_series(
            date_trunc('hour', greatest(since, first_time)), least(until, last_time), INTERVAL 1 HOUR
        )) AS hour
    FROM held
    CROSS JOIN sampled
    WHERE since <= last_time AND until > first_time
)

SELECT
    h.job_id,
    h.attempt,
    u.node_id,
    u.gpu_index,
    u.time,
    u.utilization_pct
FROM gpu_utilization AS u
INNER JOIN held_hours AS h
    ON u.node_id = h.node_id
    AND u.gpu_index = h.gpu_index
    AND date_trunc('hour', u.time) = h.hour
WHERE u.utilization_pct IS NOT NULL AND u.time >= h.since AND u.time < h.until
