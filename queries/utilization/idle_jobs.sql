-- title: Jobs with idle GPUs
-- question: Which jobs kept GPUs for long with almost no use, and at what cost?
-- paper: low utilization as in Gao et al. (ICSE'24), who study jobs at 50 percent or less; PAI sensor table (NSDI'22)
-- tables: jobs, attempts
-- one_of: gpu_utilization, job_usage
-- also: placements
-- needs: gpu_count
-- param threshold_pct: 10 | highest mean utilization of a listed job, in percent of each GPU
-- param min_run_s: 3600 | minimum time for which a listed job had its GPUs, in seconds
-- column job_id: text | the job
-- column user: text | user who submitted the job; NULL when unknown
-- column vc: text | the job's tenant; NULL when unknown
-- column gpu_count: GPUs | GPUs of the job
-- column run_s: s | time for which the job had GPUs, summed over its attempts
-- column mean_pct: percent | mean utilization of a GPU while the job had it
-- column wasted_gpu_h: GPU-hours | GPU-hours of the job's attempts * (1 - mean_pct / 100)
-- rule:
-- mean_pct is the mean of the job's samples, matched to all its attempts as in utilization/gpu_by_size_status. For a
-- job without samples it comes from job_usage: the sum of gpu_util_pct divided by the GPUs of the measured unit. The
-- unit is the instance in placements, or else the task, or else the whole job, whose sequential steps have equal
-- weight. A job without either is not listed, because its use is unknown. The mean applies to the job's whole GPU time,
-- even if telemetry covers only part of it. Only jobs with GPUs are listed, and attempts of unknown run time or size
-- are excluded. We chose the defaults of 10 percent and one hour. Sorted by GPU-hours wasted in descending order.
WITH held AS (
    SELECT
        job_id,
        CAST(sum(CAST(run_s AS DECIMAL(38, 6))) AS DOUBLE) AS run_s,
        CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours
    FROM attempt_gpu_time
    WHERE gpu_s IS NOT NULL
    GROUP BY job_id
),

judged AS (
    SELECT
        j.job_id,
        j."user",
        j.vc,
        j.gpu_count,
        h.run_s,
        coalesce(s.mean_pct, u.mean_pct) AS mean_pct,
        h.gpu_hours
    FROM jobs AS j
    INNER JOIN held AS h ON j.job_id = h.job_id
    LEFT JOIN job_sampled_use AS s ON j.job_id = s.job_id
    LEFT JOIN job_reported_use AS u ON j.job_id = u.job_id
    WHERE j.gpu_count > 0
)

SELECT
    job_id,
    "user",
    vc,
    gpu_count,
    run_s,
    mean_pct,
    greatest(0, gpu_hours * (1 - mean_pct / 100)) AS wasted_gpu_h
FROM judged
WHERE mean_pct <= $threshold_pct AND run_s >= $min_run_s
ORDER BY wasted_gpu_h DESC, job_id
