-- title: How long each GPU of an attempt was sampled, and how busy it was
-- tables: attempts, placements, gpu_utilization
-- views: attempt_samples, sample_intervals
-- merge: counted
-- column job_id: text | the job
-- column attempt: number | the attempt
-- column node_id: text | the machine
-- column gpu_index: number | the GPU on the machine
-- column gpu_instance: text | the part of a divided GPU (MIG), or NULL for the whole GPU
-- column gpu_share: GPUs | the share of the GPU that was sampled, as in attempt_samples; NULL when unknown
-- column samples: samples | samples of the GPU while the attempt had it
-- column busy_pct: percent | mean of these samples: SM activity if it was sampled, otherwise utilization
-- column sampled_s: s | samples times the interval that a sample of this GPU represents; NULL when the interval is unknown
-- rule:
-- One row for each GPU, or part of a GPU, of each attempt that has samples, matched as in attempt_samples. SM activity
-- is the share of the multiprocessors that were busy. It takes precedence over utilization, which is the share of time
-- in which anything ran on the GPU.
WITH counted AS (
    SELECT
        job_id,
        attempt,
        node_id,
        gpu_index,
        gpu_instance,
        gpu_share,
        count(*) AS samples,
        sum(CAST(coalesce(sm_active_pct, utilization_pct) AS DECIMAL(38, 6))) AS percents
    FROM attempt_samples
    GROUP BY job_id, attempt, node_id, gpu_index, gpu_instance, gpu_share
)

SELECT
    c.job_id,
    c.attempt,
    c.node_id,
    c.gpu_index,
    c.gpu_instance,
    c.gpu_share,
    c.samples,
    CAST(c.percents AS DOUBLE) / c.samples AS busy_pct,
    c.samples * i.interval_s AS sampled_s
FROM counted AS c
LEFT JOIN sample_intervals AS i
    ON c.node_id IS NOT DISTINCT FROM i.node_id AND c.gpu_index IS NOT DISTINCT FROM i.gpu_index
