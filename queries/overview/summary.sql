-- title: The trace at a glance
-- question: How many jobs, users, nodes and GPU-hours does the trace have, and over how long?
-- paper: Helios Table 2 (SC'21)
-- tables: jobs
-- also: attempts, placements, nodes, gpu_utilization, capacity, doubtful_times
-- tenant: compared
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' GPU-hours, or the job's whole run time times its GPUs
-- column metric: text | name of the metric
-- column value: see unit | value of the metric; NULL if the trace does not show it
-- column unit: text | unit of the value
-- rule:
-- Every metric has a row; an unknown metric is NULL, never 0. gpu_jobs, cpu_jobs: gpu_count above 0, equal to 0;
-- jobs_of_unknown_size: no gpu_count. users and vcs: distinct names; {tenant.many} of different clusters count
-- separately. pools: parts of clusters whose partitions share no nodes. attempts: rows of attempts, including derived
-- ones. gpus_listed: the node list, or else the largest total in the capacity table; a sum of quotas is not a number of
-- machines. gpus_observed: see the view node_gpus. gpu_hours: sum over attempts of run_s * gpu_count / 3600, or as the
-- parameter says. run_s and queue_s: over all jobs of any size whose value is known; queue_s is first start minus
-- submission. completed_share: jobs completed / all jobs; unknown_status_share: jobs with an unknown status / all jobs.
-- gpu_mean_queue_s to gpu_unknown_status_share cover jobs with GPUs (gpu_count above 0), and cpu_median_queue_s to
-- cpu_completed_share cover CPU jobs (gpu_count 0). Each uses the jobs of that kind whose value is known; shares are
-- relative to all jobs of that kind. gpu_failed_share: jobs with the status failed. gpu_timeout_share: jobs with the
-- status timeout, which failed does not include. days_covered: last submission minus first submission.
-- impossible_times: number of impossible times in the log; they count as unknown here. hour_in_doubt_times: times with
-- two possible instants because of a clock change. gpu_hours_in_doubt: the resulting uncertainty of gpu_hours, which is
-- the sum of (latest - earliest) * GPUs over the attempts whose run time counts.
WITH job_totals AS (
    SELECT
        count(*) AS jobs,
        count(*) FILTER (WHERE gpu_count > 0) AS gpu_jobs,
        count(*) FILTER (WHERE gpu_count = 0) AS cpu_jobs,
        count(*) FILTER (WHERE gpu_count IS NULL) AS jobs_of_unknown_size,
        nullif(count(DISTINCT "user"), 0) AS users,
        sum(CASE WHEN $gpu_time = 'attempts' THEN gpu_s ELSE gpu_s_with_gaps END) AS gpu_s,
        avg(CAST(run_s AS DECIMAL(38, 6))) AS mean_run_s,
        quantile_cont(run_s, 0.5) AS median_run_s,
        avg(CAST(queue_s AS DECIMAL(38, 6))) AS mean_queue_s,
        quantile_cont(queue_s, 0.5) AS median_queue_s,
        count(*) FILTER (WHERE status = 'completed') AS completed,
        count(*) FILTER (WHERE status IS NULL OR status = 'unknown') AS unknown_status,
        epoch_us(max(submit_time)) - epoch_us(min(submit_time)) AS covered_us,
        avg(CAST(queue_s AS DECIMAL(38, 6))) FILTER (WHERE gpu_count > 0) AS gpu_mean_queue_s,
        quantile_cont(queue_s, 0.5) FILTER (WHERE gpu_count > 0) AS gpu_median_queue_s,
        quantile_cont(run_s, 0.5) FILTER (WHERE gpu_count > 0) AS gpu_median_run_s,
        count(*) FILTER (WHERE gpu_count > 0 AND status = 'completed') AS gpu_completed,
        count(*) FILTER (WHERE gpu_count > 0 AND status = 'failed') AS gpu_failed,
        count(*) FILTER (WHERE gpu_count > 0 AND status = 'timeout') AS gpu_timeout,
        count(*) FILTER (WHERE gpu_count > 0 AND (status IS NULL OR status = 'unknown')) AS gpu_unknown_status,
        quantile_cont(queue_s, 0.5) FILTER (WHERE gpu_count = 0) AS cpu_median_queue_s,
        quantile_cont(run_s, 0.5) FILTER (WHERE gpu_count = 0) AS cpu_median_run_s,
        count(*) FILTER (WHERE gpu_count = 0 AND status = 'completed') AS cpu_completed
    FROM job_gpu_hours
),

named AS (
    SELECT CASE WHEN p.name IS NULL THEN j.cluster ELSE p.cluster END AS cluster, j.vc, p.name AS pool
    FROM jobs AS j
    LEFT JOIN trace_pools AS p ON j.cluster = p.name
),

names AS (
    SELECT nullif(count(DISTINCT cluster), 0) AS clusters, nullif(count(DISTINCT pool), 0) AS pools FROM named
),

tenants AS (
    SELECT nullif(count(*), 0) AS vcs
    FROM (SELECT DISTINCT cluster, vc FROM named WHERE vc IS NOT NULL) AS pairs
),

gpus AS (
    SELECT
        coalesce(
            (SELECT CAST(sum(listed) AS DOUBLE) FROM node_gpus), (
                SELECT CASE WHEN bool_and(source = 'stated') THEN sum(gpus) END FROM cluster_gpus
            )
        ) AS gpus_listed,
        (SELECT CAST(sum(observed) AS DOUBLE) FROM node_gpus) AS gpus_observed
),

doubts AS (
    SELECT
        count(*) FILTER (WHERE d.earliest IS NULL) AS impossible,
        count(*) FILTER (WHERE d.latest > d.earliest) AS two_instants,
        coalesce(sum(CAST(epoch_us(d.latest) - epoch_us(d.earliest) AS DOUBLE) / 1e6 * a.gpu_count), 0) AS gpu_s
    FROM doubtful_times AS d
    LEFT JOIN attempts AS a
        ON d.job_id = a.job_id AND coalesce(d.attempt, 0) = a.attempt AND a.run_s IS NOT NULL
        AND d."column" IN ('start_time', 'end_time')
),

metrics AS (
    SELECT 1 AS place, 'jobs' AS metric, CAST(jobs AS DOUBLE) AS value, 'jobs' AS unit, NULL AS needs FROM job_totals
    UNION ALL
    SELECT 2, 'gpu_jobs', gpu_jobs, 'jobs', 'gpu_count' FROM job_totals
    UNION ALL
    SELECT 3, 'cpu_jobs', cpu_jobs, 'jobs', 'gpu_count' FROM job_totals
    UNION ALL
    SELECT 4, 'jobs_of_unknown_size', jobs_of_unknown_size, 'jobs', NULL FROM job_totals
    UNION ALL
    SELECT 5, 'users', users, 'users', 'users' FROM job_totals
    UNION ALL
    SELECT 6, 'vcs', vcs, '{tenant.many}', 'tenants' FROM tenants
    UNION ALL
    SELECT 7, 'clusters', clusters, 'clusters', NULL FROM names
    UNION ALL
    SELECT 8, 'attempts', nullif(count(*), 0), 'attempts', NULL FROM attempts
    UNION ALL
    SELECT 9, 'nodes', nullif(count(*), 0), 'nodes', NULL FROM nodes
    UNION ALL
    SELECT 10, 'gpus_listed', gpus_listed, 'GPUs', NULL FROM gpus
    UNION ALL
    SELECT 11, 'gpus_observed', gpus_observed, 'GPUs', NULL FROM gpus
    UNION ALL
    SELECT 12, 'gpu_hours', CAST(gpu_s AS DOUBLE) / 3600, 'GPU-hours', 'gpu_count' FROM job_totals
    UNION ALL
    SELECT 13, 'mean_run_s', mean_run_s, 's', 'run_time' FROM job_totals
    UNION ALL
    SELECT 14, 'median_run_s', median_run_s, 's', 'run_time' FROM job_totals
    UNION ALL
    SELECT 15, 'mean_queue_s', mean_queue_s, 's', 'queueing' FROM job_totals
    UNION ALL
    SELECT 16, 'median_queue_s', median_queue_s, 's', 'queueing' FROM job_totals
    UNION ALL
    SELECT 17, 'completed_share', CAST(completed AS DOUBLE) / nullif(jobs, 0), 'share', 'statuses' FROM job_totals
    UNION ALL
    SELECT 18, 'unknown_status_share', CAST(unknown_status AS DOUBLE) / nullif(jobs, 0), 'share', 'statuses' FROM job_totals
    UNION ALL
    SELECT 19, 'days_covered', CAST(covered_us AS DOUBLE) / 86400000000, 'days', 'arrivals' FROM job_totals
    UNION ALL
    SELECT 20, 'impossible_times', impossible, 'times', NULL FROM doubts
    UNION ALL
    SELECT 21, 'hour_in_doubt_times', two_instants, 'times', NULL FROM doubts
    UNION ALL
    SELECT 22, 'gpu_hours_in_doubt', gpu_s / 3600, 'GPU-hours', NULL FROM doubts
    UNION ALL
    SELECT 23, 'gpu_mean_queue_s', gpu_mean_queue_s, 's', 'queueing' FROM job_totals
    UNION ALL
    SELECT 24, 'gpu_median_queue_s', gpu_median_queue_s, 's', 'queueing' FROM job_totals
    UNION ALL
    SELECT 25, 'gpu_median_run_s', gpu_median_run_s, 's', 'run_time' FROM job_totals
    UNION ALL
    SELECT 26, 'gpu_completed_share', CAST(gpu_completed AS DOUBLE) / nullif(gpu_jobs, 0), 'share', 'statuses'
    FROM job_totals
    UNION ALL
    SELECT 27, 'gpu_failed_share', CAST(gpu_failed AS DOUBLE) / nullif(gpu_jobs, 0), 'share', 'statuses'
    FROM job_totals
    UNION ALL
    SELECT 28, 'gpu_timeout_share', CAST(gpu_timeout AS DOUBLE) / nullif(gpu_jobs, 0), 'share', 'statuses'
    FROM job_totals
    UNION ALL
    SELECT 29, 'gpu_unknown_status_share', CAST(gpu_unknown_status AS DOUBLE) / nullif(gpu_jobs, 0), 'share', 'statuses'
    FROM job_totals
    UNION ALL
    SELECT 30, 'cpu_median_queue_s', cpu_median_queue_s, 's', 'queueing' FROM job_totals
    UNION ALL
    SELECT 31, 'cpu_median_run_s', cpu_median_run_s, 's', 'run_time' FROM job_totals
    UNION ALL
    SELECT 32, 'cpu_completed_share', CAST(cpu_completed AS DOUBLE) / nullif(cpu_jobs, 0), 'share', 'statuses'
    FROM job_totals
    UNION ALL
    SELECT 33, 'pools', pools, 'pools', NULL FROM names
)

SELECT
    m.metric,
    CASE WHEN m.needs IS NULL OR c.available THEN m.value END AS value,
    m.unit
FROM metrics AS m
LEFT JOIN trace_capabilities AS c ON m.needs = c.name
ORDER BY m.place
