-- title: How long each GPU of an attempt was sampled, and how busy it was
-- tables: attempts, placements, gpu_utilization
-- views: attempt_samples, sample_intervals
-- column job_id: text | the job
-- column attempt: number | the attempt
-- column node_id: text | the machine
-- column gpu_index: number | the GPU on the machine
-- column samples: samples | those of the GPU while the attempt held it
-- column busy_pct: percent | their mean: SM activity where a sample has it, else utilization
-- column sampled_s: s | samples times the interval that a sample of this GPU stands for; NULL when that is unknown
-- rule:
-- One row for each GPU of each attempt that has samples, matched as in attempt_samples. SM activity, the share of the
-- multiprocessors on which something ran, goes before utilization, the share of the time in which anything ran at all.
SELECT
    s.job_id,
    s.attempt,
    s.node_id,
    s.gpu_index,
    count(*) AS samples,
    CAST(sum(CAST(coalesce(s.sm_active_pct, s.utilization_pct) AS DECIMAL(38, 6))) AS DOUBLE) / count(*) AS busy_pct,
    count(*) * max(i.interval_s) AS sampled_s
FROM attempt_samples AS s
LEFT JOIN sample_intervals AS i
    ON s.node_id IS NOT DISTINCT FROM i.node_id AND s.gpu_index IS NOT DISTINCT FROM i.gpu_index
GROUP BY s.job_id, s.attempt, s.node_id, s.gpu_index
