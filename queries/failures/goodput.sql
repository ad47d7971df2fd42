-- title: Goodput: how much allocated GPU time was useful
-- question: How much of the GPU time allocated to jobs was useful?
-- paper: none
-- tables: jobs, attempts
-- also: placements, node_events, gpu_utilization, job_usage
-- needs: statuses, gpu_count
-- tenant: none
-- merge: seen
-- param checkpoint_h: 0 | hours between checkpoints of an attempt, or 0 if nothing is saved and all its work is lost
-- param start_up_min: 0 | start-up time of an attempt in minutes, used if no samples show it; 0 means unknown, and no start-up is counted
-- param rule: stated {stated, retried} | attempts whose status marks them as cut short; retried adds attempts with an unknown end that were tried again
-- column gpu_class: class | size class of the job, or all for every class
-- column attempts: attempts | attempts whose GPU-hours are known
-- column held_gpu_hours: GPU-hours | allocated to these attempts; the next five columns add up to it
-- column queued_gpu_hours: GPU-hours | allocated while parts of the multi-node job had not started; NULL if no part has a start
-- column start_up_gpu_hours: GPU-hours | allocated from then until the first use; NULL if nothing shows the first use
-- column lost_gpu_hours: GPU-hours | worked since the last checkpoint by attempts that were cut short; NULL if no end is known
-- column idle_gpu_hours: GPU-hours | idle part of the work that was not lost; NULL if no use is known
-- column useful_gpu_hours: GPU-hours | the rest
-- column goodput_share: share | useful_gpu_hours / held_gpu_hours
-- column idle_known_share: share | GPU-hours with known use / GPU-hours that were not queued, start-up or lost
-- column end_unknown_share: share | GPU-hours of attempts with an unknown end (none of them count as lost here) / held_gpu_hours
-- rule:
-- Held GPU time is run time times GPUs of attempts that ended. Each attempt is divided into consecutive phases: queued,
-- start-up and work. If an attempt was cut short, its work since the last checkpoint is lost; the other work was idle
-- or useful. So nothing counts twice, and the five parts add up exactly to the held GPU time, to the GPU-microsecond,
-- before conversion to hours. A part that is NULL counts as 0, so useful GPU time is an upper bound. Queued: until the
-- last part of the multi-node job starts, according to placements (view attempt_phases); the other parts already had
-- their GPUs but could not begin. Start-up: from then to the first sample that shows a GPU of the attempt in use. If
-- all samples are 0, there is no start-up, and all of the time is idle. If samples begin later or never, start-up takes
-- start_up_min, or all the remaining time if that is less. Lost: attempts are cut short as in failures/lost_work.
-- Checkpoints follow every checkpoint_h hours of work after the start-up, so less is lost than in that query. Idle: in
-- the remaining time, samples times their interval, up to all of that time, times 1 - mean use, as in the view
-- attempt_use. For an attempt of a job without samples, the mean use in job_usage applies throughout. Only jobs with
-- GPUs are counted. Size classes come first, then all.
WITH setting AS (
    SELECT
        CASE WHEN $checkpoint_h >= 0 THEN CAST(round($checkpoint_h * 3.6e9) AS BIGINT)
            ELSE error('checkpoint_h must be 0 or more') END AS checkpoint_us,
        CASE WHEN $start_up_min >= 0 THEN CAST(round($start_up_min * 6e7) AS BIGINT)
            ELSE error('start_up_min must be 0 or more') END AS start_up_us
),

begun AS (
    SELECT
        p.*,
        CASE WHEN $rule = 'retried' THEN p.interrupted_or_retried ELSE p.interrupted END AS cut_short,
        s.checkpoint_us,
        CASE
            WHEN p.begin_sampled THEN p.first_use_us
            WHEN s.start_up_us > 0 THEN least(s.start_up_us, p.run_us - coalesce(p.queued_us, 0))
        END AS start_up_us
    FROM attempt_phases AS p
    CROSS JOIN setting AS s
    WHERE p.gpu_s IS NOT NULL AND p.gpu_count > 0 AND p.gpu_class IS NOT NULL
),

worked AS (
    SELECT
        *,
        coalesce(queued_us, 0) + coalesce(start_up_us, 0) AS work_from_us,
        CASE
            WHEN NOT coalesce(cut_short, FALSE) THEN 0
            WHEN checkpoint_us = 0 THEN run_us - coalesce(queued_us, 0) - coalesce(start_up_us, 0)
            ELSE (run_us - coalesce(queued_us, 0) - coalesce(start_up_us, 0)) % checkpoint_us
        END AS lost_us
    FROM begun
),

seen AS (
    SELECT
        s.job_id,
        s.attempt,
        s.node_id,
        s.gpu_index,
        s.gpu_instance,
        s.gpu_share,
        count(*) AS samples,
        sum(CAST(coalesce(s.sm_active_pct, s.utilization_pct) AS DECIMAL(38, 6))) AS percents
    FROM attempt_samples AS s
    INNER JOIN worked AS w ON s.job_id = w.job_id AND s.attempt = w.attempt
    WHERE
        epoch_us(s.time) - epoch_us(w.start_time) < w.run_us - w.lost_us
        AND (epoch_us(s.time) - epoch_us(w.start_time) >= w.work_from_us OR w.work_from_us = 0)
    GROUP BY s.job_id, s.attempt, s.node_id, s.gpu_index, s.gpu_instance, s.gpu_share
),

counted AS (
    SELECT
        s.*,
        i.interval_s,
        w.gpu_count,
        count(s.gpu_instance) OVER (PARTITION BY s.job_id, s.attempt) AS parts
    FROM seen AS s
    INNER JOIN worked AS w ON s.job_id = w.job_id AND s.attempt = w.attempt
    INNER JOIN sample_intervals AS i ON s.node_id = i.node_id AND s.gpu_index = i.gpu_index
),

weighted AS (
    SELECT
        job_id,
        attempt,
        samples,
        percents,
        interval_s * CASE
            WHEN gpu_instance IS NULL THEN gpu_count / nullif(ceil(gpu_count), 0)
            WHEN parts <= gpu_count THEN 1
            ELSE coalesce(gpu_share, gpu_count / parts)
        END AS sample_gpu_s
    FROM counted
),

used AS (
    SELECT
        job_id,
        attempt,
        CAST(sum(CAST(samples * sample_gpu_s AS DECIMAL(38, 6))) AS DOUBLE) AS sampled_gpu_s,
        CAST(sum(CAST(CAST(percents AS DOUBLE) * sample_gpu_s AS DECIMAL(38, 6))) AS DOUBLE)
        / nullif(CAST(sum(CAST(samples * sample_gpu_s AS DECIMAL(38, 6))) AS DOUBLE), 0) AS busy_pct
    FROM weighted
    GROUP BY job_id, attempt
),

sampled_jobs AS (SELECT DISTINCT job_id FROM worked WHERE sampled),

parts AS (
    SELECT
        w.gpu_class,
        w.class_order,
        w.gpu_s,
        w.queued_us IS NOT NULL AS queued_known,
        w.start_up_us IS NOT NULL AS start_up_known,
        w.cut_short IS NOT NULL AS end_known,
        least(w.gpu_s, CAST(coalesce(w.queued_us, 0) / 1e6 * w.gpu_count AS DECIMAL(38, 6))) AS queued,
        least(w.gpu_s, CAST(w.work_from_us / 1e6 * w.gpu_count AS DECIMAL(38, 6))) AS before_work,
        least(w.gpu_s, CAST((w.run_us - w.lost_us) / 1e6 * w.gpu_count AS DECIMAL(38, 6))) AS before_loss,
        CASE
            WHEN u.job_id IS NOT NULL THEN u.sampled_gpu_s
            WHEN NOT w.sampled AND j.job_id IS NULL AND r.job_id IS NOT NULL THEN w.run_s * w.gpu_count
        END AS known,
        CASE WHEN u.job_id IS NOT NULL THEN u.busy_pct ELSE r.mean_pct END AS busy_pct
    FROM worked AS w
    LEFT JOIN used AS u ON w.job_id = u.job_id AND w.attempt = u.attempt
    LEFT JOIN sampled_jobs AS j ON w.job_id = j.job_id
    LEFT JOIN job_reported_use AS r ON w.job_id = r.job_id
),

kept AS (
    SELECT
        *,
        CASE WHEN end_known THEN gpu_s - greatest(before_loss, before_work) END AS lost,
        CASE
            WHEN known IS NOT NULL AND busy_pct IS NOT NULL
                THEN least(CAST(known AS DECIMAL(38, 6)), greatest(before_loss, before_work) - before_work)
        END AS covered,
        greatest(before_loss, before_work) - before_work AS left_over
    FROM parts
),

split AS (
    SELECT
        gpu_class,
        class_order,
        gpu_s AS held,
        CASE WHEN queued_known THEN queued END AS queued,
        CASE WHEN start_up_known THEN before_work - queued END AS start_up,
        lost,
        CASE WHEN NOT end_known THEN gpu_s END AS end_unknown,
        covered,
        left_over,
        least(covered, CAST(covered * greatest(0, 1 - busy_pct / 100) AS DECIMAL(38, 6))) AS idle
    FROM kept
),

added AS (
    SELECT
        coalesce(gpu_class, 'all') AS gpu_class,
        coalesce(class_order, 99) AS class_order,
        count(*) AS attempts,
        sum(held) AS held,
        sum(queued) AS queued,
        sum(start_up) AS start_up,
        sum(lost) AS lost,
        sum(idle) AS idle,
        sum(covered) AS covered,
        sum(left_over) AS left_over,
        coalesce(sum(end_unknown), 0) AS end_unknown
    FROM split
    GROUP BY GROUPING SETS ((gpu_class, class_order), ())
    HAVING count(*) > 0
),

rest AS (
    SELECT
        *,
        held - coalesce(queued, 0) - coalesce(start_up, 0) - coalesce(lost, 0) - coalesce(idle, 0) AS useful
    FROM added
)

SELECT
    gpu_class,
    attempts,
    CAST(held AS DOUBLE) / 3600 AS held_gpu_hours,
    CAST(queued AS DOUBLE) / 3600 AS queued_gpu_hours,
    CAST(start_up AS DOUBLE) / 3600 AS start_up_gpu_hours,
    CAST(lost AS DOUBLE) / 3600 AS lost_gpu_hours,
    CAST(idle AS DOUBLE) / 3600 AS idle_gpu_hours,
    CAST(useful AS DOUBLE) / 3600 AS useful_gpu_hours,
    CAST(useful AS DOUBLE) / nullif(CAST(held AS DOUBLE), 0) AS goodput_share,
    coalesce(CAST(covered AS DOUBLE), 0) / nullif(CAST(left_over AS DOUBLE), 0) AS idle_known_share,
    CAST(end_unknown AS DOUBLE) / nullif(CAST(held AS DOUBLE), 0) AS end_unknown_share
FROM rest
ORDER BY class_order
