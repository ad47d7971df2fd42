-- title: Attempts and when they began to work
-- tables: jobs, attempts, placements, node_events, gpu_utilization
-- views: attempt_interruptions, attempt_samples, sample_intervals
-- merge: sample
-- column run_us: us | run_s in whole microseconds; NULL when unknown
-- column queued_us: us | from the start of the attempt to the start of its last part; NULL if the parts have no starts
-- column sampled: true or false | whether the attempt has samples
-- column begin_sampled: true or false | whether the samples go back to when the attempt could begin to work
-- column first_use_us: us | from that moment to the first sample of a GPU in use; NULL if the samples do not go back that far
-- rule:
-- One row for each row of attempt_interruptions, with all its columns and the four above. Parts are the rows of
-- placements that have a start; for one process on one node, the first row counts. queued_us and first_use_us are never
-- below 0, and their sum is at most the run time. A sample counts from the beginning of its interval. The attempt could
-- begin to work at its start plus queued_us. Samples go back to that moment if the first is at most two intervals
-- later; telemetry that begins later cannot show when use began. If no sample shows a GPU in use, first_use_us is 0.
WITH part AS (
    SELECT job_id, attempt, min(start_time) AS start_time
    FROM placements
    WHERE start_time IS NOT NULL
    GROUP BY job_id, attempt, task, instance, node_id
),

whole AS (SELECT job_id, attempt, max(start_time) AS start_time FROM part GROUP BY job_id, attempt),

sample AS (
    SELECT
        s.job_id,
        s.attempt,
        min(s.time) AS first_sample,
        min(s.time) FILTER (WHERE s.utilization_pct > 0) AS first_use,
        max(i.interval_s) AS interval_s
    FROM attempt_samples AS s
    LEFT JOIN sample_intervals AS i ON s.node_id = i.node_id AND s.gpu_index = i.gpu_index
    GROUP BY s.job_id, s.attempt
),

known AS (
    SELECT
        i.*,
        CAST(round(i.run_s * 1e6) AS BIGINT) AS run_us,
        epoch_us(w.start_time) - epoch_us(i.start_time) AS until_whole_us,
        epoch_us(s.first_use) - epoch_us(i.start_time) AS until_use_us,
        epoch_us(s.first_sample) - epoch_us(i.start_time) AS until_sample_us,
        s.interval_s * 1e6 AS interval_us,
        s.job_id IS NOT NULL AS sampled
    FROM attempt_interruptions AS i
    LEFT JOIN whole AS w ON i.job_id = w.job_id AND i.attempt = w.attempt
    LEFT JOIN sample AS s ON i.job_id = s.job_id AND i.attempt = s.attempt
),

waited AS (
    SELECT
        *,
        CASE WHEN until_whole_us IS NOT NULL THEN greatest(0, least(until_whole_us, run_us)) END AS queued_us
    FROM known
),

begun AS (
    SELECT
        *,
        sampled AND coalesce(until_sample_us - coalesce(queued_us, 0) <= 2 * interval_us, FALSE) AS begin_sampled
    FROM waited
)

SELECT
    * EXCLUDE (
        until_whole_us, until_use_us, until_sample_us, interval_us, queued_us, sampled, begin_sampled
    ),
    queued_us,
    sampled,
    begin_sampled,
    CASE
        WHEN begin_sampled AND until_use_us IS NULL THEN 0
        WHEN begin_sampled THEN greatest(0, least(until_use_us, run_us) - coalesce(queued_us, 0))
    END AS first_use_us
FROM begun
