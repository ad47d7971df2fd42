-- title: GPU time allocated
-- question: How much of the GPU time is allocated?
-- paper: Helios Fig 3 (SC'21)
-- tables: jobs, attempts
-- also: capacity, nodes, placements
-- needs: queueing, gpu_count
-- param step_s: 0 | length of the averaging intervals [s], or 0 for the shortest that a page can show
-- param quota: auto {auto, capacity, peak, p95} | if no total is known, peak and p95 sum these proxies over the {tenant.many}
-- param gpus: 0.0 | GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column metric: text | name of the metric
-- column value: see unit | value over all clusters; NULL if the trace does not show it
-- column unit: text | unit of the value
-- rule:
-- Sums over the intervals of queuing/cluster_timeline (see there). held_share: GPU time allocated / GPU time owned.
-- held_gpus: the mean number of GPUs allocated. Both use only intervals that end by the last submission, because later
-- intervals show the logged jobs draining, not how full the cluster was. If none ends by then, all are used. held_share
-- excludes clusters of unknown capacity. owned_gpus: the mean capacity of the clusters over the whole trace.
-- held_gpu_hours: GPU time allocated over the whole trace; NULL for a trace of one interval. running_gpu_hours: the
-- part of it allocated to attempts that still run. They count from their start to the last moment in the trace, or only
-- to the time limit that they exceeded or to a later run on their GPUs (see the view open_attempts). gpu_hours of
-- overview/summary excludes this part.
WITH load AS (
    SELECT
        time,
        epoch_us(time) AS time_us,
        sum(CAST(running_gpus AS DECIMAL(38, 9))) AS held,
        CAST(max(cluster_gpus) AS DECIMAL(38, 9)) AS owned
    FROM gpu_timeline
    GROUP BY cluster, time
),

-- Intervals have the same length and follow each other without gaps.
grid AS (
    SELECT CASE WHEN min(time_us) < max(time_us)
        THEN CAST(max(time_us) - min(time_us) AS DOUBLE) / (count(DISTINCT time_us) - 1) END AS step_us
    FROM load
),

marked AS (
    SELECT
        l.time,
        l.held,
        l.owned,
        coalesce(l.time_us + g.step_us <= (SELECT epoch_us(max(submit_time)) FROM jobs), FALSE) AS early
    FROM load AS l
    CROSS JOIN grid AS g
),

counted AS (
    SELECT *, early OR NOT bool_or(early) OVER () AS counts FROM marked
),

still_running AS (
    SELECT
        coalesce(
            sum(CAST((o.until_us - epoch_us(a.start_time)) * a.gpu_count / 1000000 AS DECIMAL(38, 6))), 0
        ) AS gpu_s
    FROM attempts AS a
    INNER JOIN open_attempts AS o ON a.job_id = o.job_id AND a.attempt = o.attempt
),

totals AS (
    SELECT
        CAST(sum(held) FILTER (WHERE counts AND owned IS NOT NULL) AS DOUBLE)
        / nullif(CAST(sum(owned) FILTER (WHERE counts) AS DOUBLE), 0) AS held_share,
        CAST(sum(held) FILTER (WHERE counts) AS DOUBLE) / count(DISTINCT time) FILTER (WHERE counts) AS held_gpus,
        CAST(sum(owned) AS DOUBLE) / nullif(count(DISTINCT time) FILTER (WHERE owned IS NOT NULL), 0) AS owned_gpus,
        CAST(sum(held) AS DOUBLE) * (SELECT step_us FROM grid) / 3600000000 AS held_gpu_hours,
        (SELECT CAST(gpu_s AS DOUBLE) / 3600 FROM still_running) AS running_gpu_hours
    FROM counted
    HAVING count(*) > 0
),

metrics AS (
    SELECT 1 AS place, 'held_share' AS metric, held_share AS value, 'share' AS unit FROM totals
    UNION ALL
    SELECT 2, 'held_gpus', held_gpus, 'GPUs' FROM totals
    UNION ALL
    SELECT 3, 'owned_gpus', owned_gpus, 'GPUs' FROM totals
    UNION ALL
    SELECT 4, 'held_gpu_hours', held_gpu_hours, 'GPU-hours' FROM totals
    UNION ALL
    SELECT 5, 'running_gpu_hours', running_gpu_hours, 'GPU-hours' FROM totals
)

SELECT metric, value, unit FROM metrics ORDER BY place
