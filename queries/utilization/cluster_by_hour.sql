-- title: Use of the cluster by hour of the day
-- question: In which hours are GPUs allocated, busy and requested?
-- paper: Helios Fig 2 (SC'21)
-- tables: jobs, attempts
-- also: gpu_utilization, capacity, nodes
-- needs: arrivals, hour_of_day, gpu_count
-- merge: minutes
-- param step_s: 1800 | length of the averaging intervals [s]; half an hour works for every time zone
-- param quota: auto {auto, capacity, peak, p95} | if no total is known, peak and p95 sum these proxies over the {tenant.many}
-- param gpus: 0.0 | GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace
-- param rule: mean {mean, clipped} | as measured, or with every interval clipped at the cluster's capacity, as in Helios
-- param until: end {end, last_submission} | intervals that count in shares: all (as published), or those that end by the last submission
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column cluster: text | the cluster
-- column hour: hour | 0..23 in the trace's time zone
-- column allocated_share: share | GPU time allocated / GPU time owned in this hour, over all days; NULL when the capacity is unknown or no interval counts
-- column gpu_util_pct: percent | mean of all GPU samples in this hour; NULL without telemetry
-- column submitted_jobs: jobs/hour | mean number of jobs submitted in this hour of a day, including CPU jobs
-- column submitted_gpu_jobs: jobs/hour | of these, jobs with GPUs; NULL if no job of the cluster has a known size
-- rule:
-- The capacity of a cluster excludes GPUs that are out of service (see queuing/cluster_timeline). Intervals are split
-- at local hours. Use is averaged from the first to the last moment of the trace, as in the published notebook. After
-- the last submission, jobs only drain, which lowers the share. until=last_submission excludes those intervals, as the
-- report's first screen does. Submissions are divided by the same number of days as in overview/arrivals_by_hour: local
-- calendar days from the first to the last submission in any cluster, both included. Helios Fig 2b covers jobs with
-- GPUs. Telemetry counts for the machine's cluster in the node list, whether or not a job used the GPU. All samples of
-- whole GPUs have the same weight. A sample of a part of a GPU (MIG) is weighted by the size of that part (see
-- attempt_samples), and is excluded if that size is unknown.
WITH owned AS (
    SELECT
        cluster,
        time,
        sum(CAST(running_gpus AS DECIMAL(38, 6))) AS running,
        CAST(max(cluster_gpus) AS DECIMAL(38, 6)) AS gpus,
        any_value(submitting) OR $until = 'end' AS counts
    FROM gpu_timeline
    GROUP BY cluster, time
),

by_hour AS (
    SELECT
        cluster,
        CAST(extract(HOUR FROM time AT TIME ZONE 'UTC' AT TIME ZONE $timezone) AS BIGINT) AS hour,
        sum(CASE WHEN $rule = 'clipped' THEN least(running, gpus) ELSE running END) FILTER (WHERE counts AND gpus > 0)
        / nullif(sum(gpus) FILTER (WHERE counts AND gpus > 0), 0) AS allocated_share
    FROM owned
    GROUP BY 1, 2
),

span AS (
    SELECT max(days) AS days
    FROM submissions_by_hour
),

sizes AS (
    SELECT cluster, count(gpu_count) AS known
    FROM jobs
    GROUP BY cluster
),

owners AS (
    SELECT node_id, min(cluster) AS cluster
    FROM nodes
    GROUP BY node_id
),

clusters AS (
    SELECT count(DISTINCT cluster) AS number, min(cluster) AS name
    FROM jobs
),

minutes AS (
    SELECT node_id, date_trunc('hour', time) + INTERVAL 30 MINUTE * (extract(MINUTE FROM time) // 30) AS time,
        split_part(split_part(gpu_instance, '/', 1), '+', 1) AS profile,
        sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS busy, count(utilization_pct) AS samples
    FROM gpu_utilization
    GROUP BY 1, 2, 3
),

of_parts AS (
    -- If there is only one cluster, unlisted machines belong to it.
    SELECT
        coalesce(o.cluster, CASE WHEN c.number = 1 THEN c.name END) AS cluster,
        CAST(extract(HOUR FROM m.time AT TIME ZONE 'UTC' AT TIME ZONE $timezone) AS BIGINT) AS hour,
        CASE WHEN m.profile IS NULL THEN 1e0 ELSE p.share END AS weight,
        sum(m.busy) AS busy,
        sum(m.samples) AS samples
    FROM minutes AS m
    CROSS JOIN clusters AS c
    LEFT JOIN owners AS o ON m.node_id = o.node_id
    LEFT JOIN gpu_parts AS p ON m.profile = p.profile
    GROUP BY 1, 2, 3
),

used AS (
    SELECT
        cluster,
        hour,
        sum(CAST(busy AS DOUBLE) * weight) / nullif(sum(CAST(samples AS DOUBLE) * weight), 0) AS gpu_util_pct
    FROM of_parts
    GROUP BY 1, 2
)

SELECT
    h.cluster,
    h.hour,
    CAST(h.allocated_share AS DOUBLE) AS allocated_share,
    CAST(u.gpu_util_pct AS DOUBLE) AS gpu_util_pct,
    CAST(coalesce(s.jobs, 0) AS DOUBLE) / d.days AS submitted_jobs,
    CASE WHEN z.known > 0 THEN CAST(coalesce(s.gpu_jobs, 0) AS DOUBLE) / d.days END AS submitted_gpu_jobs
FROM by_hour AS h
CROSS JOIN span AS d
LEFT JOIN sizes AS z ON h.cluster IS NOT DISTINCT FROM z.cluster
LEFT JOIN submissions_by_hour AS s ON h.cluster IS NOT DISTINCT FROM s.cluster AND h.hour = s.hour
LEFT JOIN used AS u ON h.cluster IS NOT DISTINCT FROM u.cluster AND h.hour = u.hour
ORDER BY h.cluster NULLS LAST, h.hour
