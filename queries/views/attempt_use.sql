-- title: Attempts with their allocated and used GPU time
-- tables: jobs, attempts, placements, gpu_utilization, job_usage
-- views: attempt_outcomes, attempt_gpu_use, job_reported_use
-- column covered_gpu_s: GPU*s | the part of gpu_s with known use; 0 when no use is known
-- column used_gpu_s: GPU*s | covered_gpu_s * mean use / 100; NULL when nothing is covered
-- column idle_gpu_s: GPU*s | covered_gpu_s - used_gpu_s
-- rule:
-- One row for each row of attempt_outcomes, with all its columns and the three above; they are NULL if gpu_s is. Each
-- sample covers the time that it represents (view sample_intervals). These times are summed over the GPUs of the
-- attempt, up to gpu_s. Samples of a part of a GPU cover that part. A part of a divided GPU (MIG) counts as one GPU if
-- the log counts every part as one, otherwise as the share in its name; if no share is known, all parts have equal
-- weight. The mean use is that of attempt_gpu_use, weighted by time and part. For a job without any samples, the mean
-- comes from job_usage if the source measured it (view job_reported_use), and applies to all the job's GPU time. A mean
-- above 100 counts as
-- 100. If several jobs share a GPU, each is credited with all of its use.
WITH counted AS (
    SELECT
        u.*,
        a.gpu_count,
        count(u.gpu_instance) OVER (PARTITION BY u.job_id, u.attempt) AS parts
    FROM attempt_gpu_use AS u
    INNER JOIN attempts AS a ON u.job_id = a.job_id AND u.attempt = a.attempt
),

weighted AS (
    SELECT
        job_id,
        attempt,
        busy_pct,
        sampled_s * CASE
            WHEN gpu_instance IS NULL THEN gpu_count / nullif(ceil(gpu_count), 0)
            WHEN parts <= gpu_count THEN 1
            ELSE coalesce(gpu_share, gpu_count / parts)
        END AS sampled_gpu_s
    FROM counted
),

sampled AS (
    SELECT
        job_id,
        attempt,
        sum(sampled_gpu_s) AS sampled_gpu_s,
        sum(sampled_gpu_s * busy_pct) / nullif(sum(sampled_gpu_s), 0) AS busy_pct
    FROM weighted
    GROUP BY job_id, attempt
),

sampled_jobs AS (
    SELECT DISTINCT job_id FROM sampled
),

measured AS (
    SELECT
        a.*,
        CASE
            WHEN s.job_id IS NOT NULL
                THEN least(a.gpu_s, CAST(s.sampled_gpu_s AS DECIMAL(38, 6)))
            WHEN j.job_id IS NULL AND r.job_id IS NOT NULL THEN a.gpu_s
        END AS known_gpu_s,
        least(100, CASE WHEN s.job_id IS NOT NULL THEN s.busy_pct ELSE r.mean_pct END) AS busy_pct
    FROM attempt_outcomes AS a
    LEFT JOIN sampled AS s ON a.job_id = s.job_id AND a.attempt = s.attempt
    LEFT JOIN sampled_jobs AS j ON a.job_id = j.job_id
    LEFT JOIN job_reported_use AS r ON a.job_id = r.job_id
),

used AS (
    SELECT
        * EXCLUDE (known_gpu_s, busy_pct),
        CASE WHEN gpu_s IS NOT NULL THEN coalesce(known_gpu_s, 0) END AS covered_gpu_s,
        CASE
            WHEN gpu_s IS NOT NULL AND known_gpu_s > 0 THEN CAST(known_gpu_s * busy_pct / 100 AS DECIMAL(38, 6))
        END AS used_gpu_s
    FROM measured
)

SELECT *, covered_gpu_s - used_gpu_s AS idle_gpu_s
FROM used
