-- title: The numbers of the first screen, part by part
-- question: How do waits, use and outcomes differ by part of the cluster and over time?
-- paper: none
-- tables: jobs, attempts
-- also: capacity, nodes, placements, gpu_utilization
-- needs: queueing
-- merge: hours
-- tenant: own
-- param users: 30 | number of users that get their own rows, starting with the most GPU time
-- param step_s: 0 | length of the intervals for averaging owned GPUs [s], or 0 for the shortest that a page can show
-- param quota: auto {auto, capacity, peak, p95} | if no total is known, peak and p95 sum these proxies over the {tenant.many}
-- param gpus: 0.0 | GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column kind: text | what is counted: waits, ended, held, waiting, owned, used or time
-- column span: number | number of the time span, from 1; NULL for ends after the last span or at an unknown time
-- column cluster: text | cluster of the jobs or of the nodes
-- column vc: text | tenant of the jobs
-- column partition: text | partition of the jobs
-- column user: text | user of the jobs, in the rows by user
-- column by_user: true or false | whether the row is by cluster and user; the other rows are split by everything except the user
-- column gpu_model: text | GPU model that the jobs ran on
-- column gpu_class: class | size class of the jobs; like the columns above, NULL if the value is unknown or the row is not about jobs
-- column bin: number | waits: length in twentieths of a decade above 1 s, -1 if shorter, NULL when unknown; other kinds: NULL
-- column status: text | ended: completed or other
-- column jobs: number | waits and ended: jobs; used: samples, each counted as the GPUs it covers; other kinds: NULL
-- column amount: see kind | waits: sum of the waits [s]; ended, held, waiting, owned: GPU*s; used: sum of utilization [%]; time: length [s]
-- rule:
-- Jobs are counted twice: by cluster, tenant, partition, GPU model and size, and for some users by cluster and user. In
-- both cases rows add up: those for one part of the cluster and of the time give the numbers for that part, and all
-- rows together give the numbers of overview/through_time. Spans are those of the view page_spans. waits: jobs with
-- GPUs (all jobs if no job in the trace has any), by the span of their submission. ended: jobs whose GPU time is known,
-- by the span of their end. held and waiting: the time for which attempts had GPUs and jobs waited for GPUs, per span,
-- within the intervals of queuing/gpu_time_held. An interval belongs to the span in which it begins. owned: the
-- clusters' capacity in these intervals. used: samples of all GPUs with telemetry, allocated or not. A sample of a part
-- of a GPU is weighted by the size of that part. time: how much of each span these intervals cover.
WITH moment AS (
    SELECT
        p.first AS since,
        p.since AS first_hour,
        p.until,
        p.span_h * 3600000000 AS length,
        p.spans,
        w.until AS last_moment
    FROM page_spans AS p
    CROSS JOIN trace_window AS w
),

load AS (
    SELECT
        cluster,
        epoch_us(time) AS at_us,
        any_value(submitting) AS early,
        CAST(max(cluster_gpus) AS DECIMAL(38, 9)) AS owned
    FROM gpu_timeline
    GROUP BY cluster, time
),

counted AS (
    SELECT cluster, at_us, owned FROM (SELECT *, early OR NOT bool_or(early) OVER () AS counts FROM load) AS l WHERE counts
),

-- The counted intervals have equal length and follow each other without gaps.
grid AS (
    SELECT
        c.since AS since,
        c.since + c.intervals * l.step AS until,
        l.step
    FROM (SELECT min(at_us) AS since, count(DISTINCT at_us) AS intervals FROM counted) AS c
    CROSS JOIN (
        SELECT CASE WHEN count(DISTINCT at_us) > 1
            THEN (max(at_us) - min(at_us)) // (count(DISTINCT at_us) - 1) END AS step
        FROM load
    ) AS l
),

span AS (
    SELECT
        i.number + 1 AS number,
        m.since + i.number * m.length AS since,
        CASE WHEN i.number + 1 = m.spans THEN greatest(m.until, m.since + (i.number + 1) * m.length)
            ELSE m.since + (i.number + 1) * m.length END AS until
    FROM moment AS m
    CROSS JOIN (SELECT unnest(generate_series(0, 59)) AS number) AS i
    WHERE i.number < m.spans
),

-- An interval belongs to the span in which it begins. This is the total time of a span's intervals.
held_span AS (
    SELECT
        s.number,
        coalesce(g.since + (s.since - g.since + g.step - 1) // g.step * g.step, s.since) AS since,
        coalesce(g.since + (s.until - g.since + g.step - 1) // g.step * g.step, s.until) AS until
    FROM span AS s
    CROSS JOIN grid AS g
),

ranked AS (
    SELECT
        "user" AS name,
        row_number() OVER (ORDER BY sum(gpu_s) DESC NULLS LAST, count(*) DESC, "user") AS place
    FROM job_gpu_hours
    WHERE "user" IS NOT NULL
    GROUP BY "user"
),

sized AS (SELECT coalesce(bool_or(gpu_count > 0), FALSE) AS any_gpus FROM jobs),

job AS (
    SELECT
        j.job_id,
        j.cluster,
        j.vc,
        j."partition",
        r.name AS "user",
        m.gpu_model,
        j.gpu_class,
        j.gpu_count,
        j.status,
        j.queue_s,
        j.gpu_s,
        epoch_us(j.submit_time) AS submitted,
        epoch_us(j.end_time) AS ended,
        j.gpu_count > 0 OR NOT s.any_gpus AS counts
    FROM job_gpu_hours AS j
    LEFT JOIN job_gpu_models AS m ON j.job_id = m.job_id
    LEFT JOIN ranked AS r ON j."user" = r.name AND r.place <= $users
    CROSS JOIN sized AS s
),

running AS (
    SELECT
        j.cluster,
        j.vc,
        j."partition",
        j."user",
        j.gpu_model,
        j.gpu_class,
        a.gpu_count AS held_gpus,
        j.gpu_count AS asked_gpus,
        epoch_us(a.start_time) AS since,
        coalesce(epoch_us(a.end_time), o.until_us) AS until,
        CAST(round(a.wait_s * 1000000) AS BIGINT) AS wait_us
    FROM attempts AS a
    INNER JOIN job AS j ON a.job_id = j.job_id
    LEFT JOIN open_attempts AS o ON a.job_id = o.job_id AND a.attempt = o.attempt
    WHERE a.start_time IS NOT NULL
),

taken AS (
    SELECT
        'held' AS kind, cluster, vc, "partition", "user", gpu_model, gpu_class, held_gpus AS gpus, since, until
    FROM running
    UNION ALL
    SELECT 'waiting', cluster, vc, "partition", "user", gpu_model, gpu_class, asked_gpus, since - wait_us, since
    FROM running
    UNION ALL
    SELECT
        'waiting',
        j.cluster,
        j.vc,
        j."partition",
        j."user",
        j.gpu_model,
        j.gpu_class,
        j.gpu_count,
        j.submitted,
        coalesce(j.ended, CASE WHEN j.status = 'pending' THEN m.last_moment END)
    FROM job AS j
    CROSS JOIN moment AS m
    WHERE NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.job_id = j.job_id)
),

within AS (
    SELECT
        t.kind,
        s.number AS span,
        t.cluster,
        t.vc,
        t."partition",
        t."user",
        t.gpu_model,
        t.gpu_class,
        CAST(t.gpus AS DECIMAL(38, 9))
        * (least(t.until, s.until, g.until) - greatest(t.since, s.since, g.since)) / 1000000 AS amount
    FROM taken AS t
    CROSS JOIN grid AS g
    INNER JOIN held_span AS s ON t.since < s.until AND t.until > s.since
    WHERE t.gpus > 0 AND t.until > t.since
        AND least(t.until, s.until, g.until) > greatest(t.since, s.since, g.since)
),

of_jobs AS (
    SELECT
        'waits' AS kind,
        (j.submitted - m.since) // m.length + 1 AS span,
        j.cluster,
        j.vc,
        j."partition",
        j."user",
        j.gpu_model,
        j.gpu_class,
        CASE WHEN j.queue_s < 1 THEN -1 ELSE CAST(floor(20 * log10(j.queue_s)) AS BIGINT) END AS bin,
        CAST(NULL AS VARCHAR) AS status,
        count(*) AS jobs,
        sum(CAST(j.queue_s AS DECIMAL(38, 6))) AS amount
    FROM job AS j
    CROSS JOIN moment AS m
    WHERE j.submitted IS NOT NULL AND j.counts
    GROUP BY ALL
    UNION ALL
    SELECT
        'ended' AS kind,
        CASE WHEN j.ended <= m.until THEN (j.ended - m.since) // m.length + 1 END AS span,
        j.cluster,
        j.vc,
        j."partition",
        j."user",
        j.gpu_model,
        j.gpu_class,
        NULL AS bin,
        CASE WHEN j.status = 'completed' THEN 'completed' ELSE 'other' END AS status,
        count(*) AS jobs,
        sum(CAST(j.gpu_s AS DECIMAL(38, 6))) AS amount
    FROM job AS j
    CROSS JOIN moment AS m
    WHERE j.gpu_s IS NOT NULL
    GROUP BY ALL
    UNION ALL
    SELECT
        kind,
        span,
        cluster,
        vc,
        "partition",
        "user",
        gpu_model,
        gpu_class,
        NULL AS bin,
        NULL AS status,
        NULL AS jobs,
        sum(CAST(amount AS DECIMAL(38, 6))) AS amount
    FROM within
    GROUP BY ALL
),

either_way AS (
    SELECT
        kind,
        span,
        cluster,
        vc,
        "partition",
        CAST(NULL AS VARCHAR) AS "user",
        FALSE AS by_user,
        gpu_model,
        gpu_class,
        bin,
        status,
        sum(jobs) AS jobs,
        sum(amount) AS amount
    FROM of_jobs
    GROUP BY ALL
    UNION ALL
    SELECT
        kind, span, cluster, NULL, NULL, "user", TRUE, NULL, NULL, bin, status, sum(jobs), sum(amount)
    FROM of_jobs
    WHERE "user" IS NOT NULL
    GROUP BY ALL
),

owned AS (
    SELECT
        least(greatest(0, c.at_us - m.since) // m.length + 1, m.spans) AS span,
        c.cluster,
        CAST(sum(c.owned * g.step) AS DOUBLE) / 1000000 AS amount
    FROM counted AS c
    CROSS JOIN grid AS g
    CROSS JOIN moment AS m
    WHERE c.owned IS NOT NULL
    GROUP BY 1, 2
),

covered AS (
    SELECT
        least(greatest(0, c.at_us - m.since) // m.length + 1, m.spans) AS span,
        CAST(count(DISTINCT c.at_us) * any_value(g.step) AS DOUBLE) / 1000000 AS amount
    FROM counted AS c
    CROSS JOIN grid AS g
    CROSS JOIN moment AS m
    GROUP BY 1
),

hours AS (
    SELECT
        node_id,
        date_trunc('hour', time) AS hour,
        split_part(split_part(gpu_instance, '/', 1), '+', 1) AS profile,
        sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS percents,
        count(utilization_pct) AS samples
    FROM gpu_utilization
    GROUP BY 1, 2, 3
),

of_parts AS (
    SELECT
        (epoch_us(h.hour) - m.since) // m.length + 1 AS span,
        n.cluster,
        CASE WHEN h.profile IS NULL THEN 1e0 ELSE p.share END AS weight,
        sum(h.samples) AS samples,
        sum(h.percents) AS percents
    FROM hours AS h
    CROSS JOIN moment AS m
    LEFT JOIN nodes AS n ON h.node_id = n.node_id
    LEFT JOIN gpu_parts AS p ON h.profile = p.profile
    WHERE epoch_us(h.hour) >= m.first_hour AND h.samples > 0
    GROUP BY 1, 2, 3
),

used AS (
    SELECT
        span,
        cluster,
        sum(CAST(samples AS DOUBLE) * weight) AS samples,
        sum(CAST(percents AS DOUBLE) * weight) AS amount
    FROM of_parts
    WHERE weight IS NOT NULL
    GROUP BY 1, 2
)

SELECT
    kind,
    span,
    cluster,
    vc,
    "partition",
    "user",
    by_user,
    gpu_model,
    gpu_class,
    bin,
    status,
    CAST(jobs AS DOUBLE) AS jobs,
    CAST(amount AS DOUBLE) AS amount
FROM either_way
UNION ALL
SELECT
    'owned', span, cluster, NULL, NULL, NULL, FALSE, NULL, NULL, NULL, NULL, NULL, amount
FROM owned
UNION ALL
SELECT
    'time', span, NULL, NULL, NULL, NULL, FALSE, NULL, NULL, NULL, NULL, NULL, amount
FROM covered
UNION ALL
SELECT
    'used', span, cluster, NULL, NULL, NULL, FALSE, NULL, NULL, NULL, NULL, samples, amount
FROM used
ORDER BY ALL
