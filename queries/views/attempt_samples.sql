-- title: GPU utilization samples, matched to the attempts that had the GPU
-- tables: attempts, placements, gpu_utilization
-- merge: sampled
-- column job_id: text | the job
-- column attempt: number | the attempt
-- column node_id: text | the machine
-- column gpu_index: number | the GPU on the machine
-- column gpu_instance: text | the part of a divided GPU (MIG), or NULL for the whole GPU
-- column gpu_share: GPUs | the share of the GPU that was sampled: 1, or the share of the part; NULL when unknown
-- column time: UTC | start of the sampling interval
-- column utilization_pct: percent | share of the interval in which the GPU was busy, or its SM activity if only that was sampled
-- column sm_active_pct: percent | share of the GPU's multiprocessors in use in the interval; NULL when not sampled
-- rule:
-- A sample at time t belongs to an attempt if floor_to_minute(start) <= t < end of the attempt, and if the attempt had
-- that GPU of that node. If any sample in the log is not at a whole minute, the start itself is used, because rounding
-- would give a job samples of the previous job. Attempts without a start or an end have no samples, and samples without
-- a utilization are excluded. If two attempts claim the same GPU at the same time, the sample counts once for each. If
-- an attempt names a GPU twice, its samples count once. The job of a sample is known if the monitor names it or the job
-- had the whole machine. The sample then belongs to the attempt of that job that was running: start <= t < end. Source:
-- the notebook of the Philly traces. A divided GPU (MIG) may have no utilization; its SM activity, if sampled, is used
-- instead. A part whose name begins with its profile has the share of that profile (table gpu_parts): 3g.40gb is 3 of 7
-- slices, and 2g.12gb of an A30 is 2 of 4. The share of other parts is unknown. Allocations are split into hours, so
-- the join is an equality on (node, GPU, hour) and memory stays small.
WITH sampled AS (
    SELECT min(time) AS first_time, max(time) AS last_time, bool_or(epoch_us(time) % 60000000 <> 0) AS by_second
    FROM gpu_utilization
),

held AS (
    SELECT DISTINCT
        p.job_id,
        p.attempt,
        p.node_id,
        unnest(p.gpu_index) AS gpu_index,
        CASE WHEN s.by_second THEN a.start_time ELSE date_trunc('minute', a.start_time) END AS since,
        a.end_time AS until
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    CROSS JOIN sampled AS s
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
),

matched AS (
    SELECT
        h.job_id,
        h.attempt,
        u.node_id,
        u.gpu_index,
        u.gpu_instance,
        u.time,
        u.utilization_pct,
        u.sm_active_pct
    FROM gpu_utilization AS u
    INNER JOIN held_hours AS h
        ON u.node_id = h.node_id
        AND u.gpu_index = h.gpu_index
        AND date_trunc('hour', u.time) = h.hour
    WHERE
        u.job_id IS NULL
        AND u.time >= h.since
        AND u.time < h.until
    UNION ALL
    SELECT
        a.job_id,
        a.attempt,
        u.node_id,
        u.gpu_index,
        u.gpu_instance,
        u.time,
        u.utilization_pct,
        u.sm_active_pct
    FROM gpu_utilization AS u
    INNER JOIN attempts AS a ON u.job_id = a.job_id
    WHERE u.time >= a.start_time AND u.time < a.end_time
)

SELECT
    m.job_id,
    m.attempt,
    m.node_id,
    m.gpu_index,
    m.gpu_instance,
    CASE WHEN m.gpu_instance IS NULL THEN 1e0 ELSE p.share END AS gpu_share,
    m.time,
    coalesce(m.utilization_pct, m.sm_active_pct) AS utilization_pct,
    m.sm_active_pct
FROM matched AS m
LEFT JOIN gpu_parts AS p ON split_part(split_part(m.gpu_instance, '/', 1), '+', 1) = p.profile
WHERE coalesce(m.utilization_pct, m.sm_active_pct) IS NOT NULL
