-- title: The time that a sample of each GPU represents
-- tables: gpu_utilization
-- merge: hours
-- column node_id: text | the machine
-- column gpu_index: number | the GPU on the machine
-- column interval_s: s | median gap between consecutive samples of the GPU; NULL when unknown
-- rule:
-- In each hour with two or more samples, the gap is (last - first) / (samples - 1). The interval is the median over the
-- hours, so an outage of the monitor does not lengthen it. Duplicate samples shorten it. The parts of a divided GPU
-- (MIG) are sampled separately, so their gaps are computed separately. If a GPU is sampled once an hour or less, the
-- gap over all its samples is used. If it has a single sample, the median over all GPUs is used.
WITH hours AS (
    SELECT
        node_id,
        gpu_index,
        gpu_instance,
        date_trunc('hour', time) AS hour,
        min(time) AS first_time,
        max(time) AS last_time,
        count(*) AS samples
    FROM gpu_utilization
    GROUP BY node_id, gpu_index, gpu_instance, date_trunc('hour', time)
),

parts AS (
    SELECT
        node_id,
        gpu_index,
        gpu_instance,
        coalesce(
            quantile_cont(
                CASE
                    WHEN samples > 1 AND last_time > first_time
                        THEN CAST(epoch_us(last_time) - epoch_us(first_time) AS DOUBLE) / 1000000 / (samples - 1)
                END,
                0.5
            ),
            CASE
                WHEN sum(samples) > 1 AND max(last_time) > min(first_time)
                    THEN
                        CAST(epoch_us(max(last_time)) - epoch_us(min(first_time)) AS DOUBLE)
                        / 1000000
                        / (CAST(sum(samples) AS DOUBLE) - 1)
            END
        ) AS interval_s
    FROM hours
    GROUP BY node_id, gpu_index, gpu_instance
),

gpus AS (
    SELECT node_id, gpu_index, quantile_cont(interval_s, 0.5) AS interval_s
    FROM parts
    GROUP BY node_id, gpu_index
)

SELECT
    node_id,
    gpu_index,
    coalesce(interval_s, (SELECT quantile_cont(interval_s, 0.5) FROM gpus)) AS interval_s
FROM gpus
