-- title: Mean GPU utilization of each job as the source reports it
-- tables: jobs, job_usage, placements
-- column job_id: text | the job
-- column mean_pct: percent | mean utilization of a measured GPU
-- rule:
-- The mean is the sum of gpu_util_pct in job_usage divided by the GPUs of the measured unit. The unit is the instance
-- in placements, or else the task, or else the whole job, whose sequential steps have equal weight. One row for each
-- job with both values known. If a source counts more GPUs than the job asked for, the mean may be above 100.
WITH instances AS (
    SELECT job_id, task, instance, max(gpu_count) AS gpus
    FROM placements
    WHERE instance IS NOT NULL
    GROUP BY job_id, task, instance
),

-- Instances of one task are identical; if no instance is named, the rows are the nodes of the task.
tasks AS (
    SELECT job_id, task, max(gpus) AS gpus
    FROM (
        SELECT
            job_id,
            attempt,
            task,
            CASE WHEN count(instance) = 0 THEN sum(gpu_count) ELSE max(gpu_count) END AS gpus
        FROM placements
        GROUP BY job_id, attempt, task
    ) AS parts
    GROUP BY job_id, task
),

measured AS (
    SELECT
        u.job_id,
        u.gpu_util_pct,
        coalesce(i.gpus, t.gpus, j.gpu_count) AS gpus
    FROM job_usage AS u
    INNER JOIN jobs AS j ON u.job_id = j.job_id
    LEFT JOIN instances AS i
        ON u.job_id = i.job_id AND u.task IS NOT DISTINCT FROM i.task AND u.instance = i.instance
    LEFT JOIN tasks AS t ON u.job_id = t.job_id AND u.task IS NOT DISTINCT FROM t.task
    WHERE u.gpu_util_pct IS NOT NULL
)

SELECT
    job_id,
    CAST(sum(CAST(gpu_util_pct AS DECIMAL(38, 6))) AS DOUBLE)
    / CAST(sum(CAST(gpus AS DECIMAL(38, 6))) AS DOUBLE) AS mean_pct
FROM measured
WHERE gpus > 0
GROUP BY job_id
