-- title: The numbers of the first screen, over time
-- question: How did waits, use and outcomes change?
-- paper: none
-- tables: jobs, attempts
-- also: capacity, nodes, gpu_utilization
-- needs: queueing
-- merge: hours
-- param step_s: 0 | length of the intervals for averaging allocated GPUs [s], or 0 for the shortest that a page can show
-- param quota: auto {auto, capacity, peak, p95} | if no total is known, peak and p95 sum these proxies over the {tenant.many}
-- param gpus: 0.0 | GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- param from_us: 0 | start of the time to cover [us since 1970]; 0: start of the trace
-- param to_us: 0 | end of the time to cover, exclusive [us since 1970]; 0: the last submission
-- column period: text | whole (the time up to the last submission), half, or span
-- column number: number | number of the period among those of its kind, from 1
-- column start_time: time | start of the period [UTC]
-- column end_time: time | end of the period [UTC]
-- column jobs: jobs | jobs submitted in the period: jobs with GPUs, or all jobs if no job in the trace has any
-- column started: jobs | of these jobs, the number whose wait is known
-- column mean_wait_s: s | mean wait of these jobs, from the submission to the first start
-- column p90_wait_s: s | 90th percentile of these waits
-- column waited_h: hours | sum of these waits
-- column held_share: share | GPU time allocated / GPU time owned; NULL when the capacity is unknown
-- column used_share: share | mean utilization of the GPUs that have telemetry, allocated or not; NULL if none has
-- column completed_share: share | GPU time of completed jobs / GPU time of all jobs, for jobs that ended in the period; NULL if none did
-- rule:
-- The time from the first moment of the trace to its last submission is divided into spans of equal length (see the
-- view page_spans; the last span may be shorter), and into two halves split at a full hour. held_share: see
-- queuing/gpu_time_held; an interval belongs to the period in which it begins. used_share: all samples have the same
-- weight, whether or not a job used the GPU. A sample of a part of a GPU is weighted by the size of that part (see
-- attempt_samples), and is excluded if that size is unknown. completed_share: see overview/status; a job belongs to the
-- period in which it ended. The whole and its last half also include jobs that ended later or at an unknown time. With
-- from_us or to_us, the query counts jobs that were submitted or ended in the selected time, and intervals and samples
-- that begin in it. The spans are the same as without these parameters, but the first and the last may be shorter.
WITH
looked_at AS (
    SELECT
        CASE WHEN $from_us = 0 THEN since ELSE greatest(since, $from_us) END AS since,
        CASE WHEN $to_us = 0 THEN until ELSE least(until, $to_us) END AS until,
        CASE WHEN $to_us = 0 THEN until + 1 ELSE least(until + 1, $to_us) END AS beyond,
        first,
        span_h * 3600000000 AS span
    FROM page_spans
),

framed AS (
    SELECT
        since,
        until,
        beyond,
        (beyond - since + 3599999999) // 3600000000 AS hours,
        first + (since - first) // span * span AS first,
        span
    FROM looked_at
    WHERE beyond > since
),

-- The periods: the whole time, its halves and its spans.
cut AS (
    SELECT 'whole' AS period, since, until, beyond, hours * 3600000000 AS length, 1 AS parts FROM framed
    UNION ALL
    SELECT 'half', since, until, beyond, (hours + 1) // 2 * 3600000000, least(2, hours) FROM framed
    UNION ALL
    SELECT 'span', first, until, beyond, span, (beyond - 1 - first) // span + 1 FROM framed
),

period AS (
    SELECT
        c.period,
        i.number + 1 AS number,
        CASE WHEN $from_us = 0 THEN c.since + i.number * c.length
            ELSE greatest(c.since + i.number * c.length, $from_us) END AS since,
        least(c.until, c.since + (i.number + 1) * c.length) AS until
    FROM cut AS c
    INNER JOIN (SELECT unnest(generate_series(0, 59)) AS number) AS i ON i.number < c.parts
),

sized AS (SELECT coalesce(bool_or(gpu_count > 0), FALSE) AS any_gpus FROM jobs),

submitted AS (
    SELECT epoch_us(j.submit_time) AS at_us, j.queue_s
    FROM jobs AS j
    CROSS JOIN sized AS s
    WHERE j.submit_time IS NOT NULL AND (j.gpu_count > 0 OR NOT s.any_gpus)
),

waits AS (
    SELECT
        c.period,
        (s.at_us - c.since) // c.length + 1 AS number,
        count(*) AS jobs,
        count(s.queue_s) AS started,
        CAST(sum(CAST(s.queue_s AS DECIMAL(38, 6))) AS DOUBLE) AS wait_s,
        quantile_cont(s.queue_s, 0.9) AS p90_wait_s
    FROM submitted AS s
    CROSS JOIN cut AS c
    WHERE ($from_us = 0 OR s.at_us >= $from_us) AND s.at_us < c.beyond
    GROUP BY c.period, (s.at_us - c.since) // c.length + 1
),

load AS (
    SELECT
        cluster,
        epoch_us(time) AS at_us,
        any_value(submitting) AS early,
        sum(CAST(running_gpus AS DECIMAL(38, 9))) AS held,
        CAST(max(cluster_gpus) AS DECIMAL(38, 9)) AS owned
    FROM gpu_timeline
    GROUP BY cluster, time
),

counted AS (
    SELECT at_us, held, owned FROM (SELECT *, early OR NOT bool_or(early) OVER () AS counts FROM load) AS l
    WHERE counts AND owned IS NOT NULL
),

use AS (
    SELECT
        c.period,
        greatest(0, l.at_us - c.since) // c.length + 1 AS number,
        CAST(sum(l.held) AS DOUBLE) / nullif(CAST(sum(l.owned) AS DOUBLE), 0) AS held_share
    FROM counted AS l
    CROSS JOIN cut AS c
    WHERE ($from_us = 0 OR l.at_us >= $from_us) AND l.at_us < c.beyond
    GROUP BY c.period, greatest(0, l.at_us - c.since) // c.length + 1
),

hours AS (
    SELECT
        date_trunc('hour', time) AS hour,
        split_part(split_part(gpu_instance, '/', 1), '+', 1) AS profile,
        sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS percents,
        count(utilization_pct) AS samples
    FROM gpu_utilization
    GROUP BY 1, 2
),

of_parts AS (
    SELECT
        c.period,
        (epoch_us(h.hour) - c.since) // c.length + 1 AS number,
        CASE WHEN h.profile IS NULL THEN 1e0 ELSE p.share END AS weight,
        sum(h.percents) AS percents,
        sum(h.samples) AS samples
    FROM hours AS h
    CROSS JOIN cut AS c
    LEFT JOIN gpu_parts AS p ON h.profile = p.profile
    WHERE epoch_us(h.hour) >= c.since AND ($from_us = 0 OR epoch_us(h.hour) >= $from_us) AND epoch_us(h.hour) < c.beyond
    GROUP BY 1, 2, 3
),

sampled AS (
    SELECT
        period,
        number,
        sum(CAST(percents AS DOUBLE) * weight) / 100 / nullif(sum(CAST(samples AS DOUBLE) * weight), 0) AS used_share
    FROM of_parts
    GROUP BY 1, 2
),

ended AS (
    SELECT epoch_us(end_time) AS at_us, status, gpu_s FROM job_gpu_hours WHERE gpu_s IS NOT NULL
),

outcome AS (
    SELECT
        period,
        number,
        CAST(sum(gpu_s) FILTER (WHERE status = 'completed') AS DOUBLE) AS completed_s,
        CAST(sum(gpu_s) AS DOUBLE) AS all_s
    FROM (
        SELECT
            c.period,
            e.status,
            e.gpu_s,
            CASE
                WHEN c.period = 'span' THEN (e.at_us - c.since) // c.length + 1
                ELSE greatest(1, least(c.parts, coalesce((e.at_us - c.since) // c.length + 1, c.parts)))
            END AS number
        FROM ended AS e
        CROSS JOIN cut AS c
        WHERE ($from_us = 0 OR e.at_us >= $from_us)
            AND ((c.period <> 'span' AND $to_us = 0) OR e.at_us < c.beyond)
    ) AS p
    GROUP BY period, number
)

SELECT
    p.period,
    p.number,
    make_timestamp(CAST(p.since AS BIGINT)) AS start_time,
    make_timestamp(CAST(p.until AS BIGINT)) AS end_time,
    coalesce(w.jobs, 0) AS jobs,
    coalesce(w.started, 0) AS started,
    w.wait_s / nullif(w.started, 0) AS mean_wait_s,
    w.p90_wait_s,
    CASE WHEN w.started > 0 THEN w.wait_s / 3600 END AS waited_h,
    u.held_share,
    s.used_share,
    CASE WHEN o.all_s > 0 THEN coalesce(o.completed_s, 0) / o.all_s END AS completed_share
FROM period AS p
LEFT JOIN waits AS w ON p.period = w.period AND p.number = w.number
LEFT JOIN use AS u ON p.period = u.period AND p.number = u.number
LEFT JOIN sampled AS s ON p.period = s.period AND p.number = s.number
LEFT JOIN outcome AS o ON p.period = o.period AND p.number = o.number
ORDER BY CASE p.period WHEN 'whole' THEN 1 WHEN 'half' THEN 2 ELSE 3 END, p.number
