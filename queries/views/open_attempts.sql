-- title: Attempts without an end, and how long each counts as running
-- tables: jobs, attempts, placements, nodes
-- views: trace_window
-- column job_id: text | the job
-- column attempt: number | the attempt
-- column until_us: us since 1970 | time up to which the attempt counts as running
-- column lost: text | why this time is before the end of the trace: limit or excluded; NULL if the attempt runs to the end
-- rule:
-- One row for each attempt with a start, no end and the status running. It counts as running to the last moment of the
-- trace, with two exceptions for ends that schedulers lose (Slurm: sacctmgr show runawayjobs). limit: the last moment
-- is more than an hour after the attempt's time limit, so the attempt ends at that limit. We chose an hour because
-- schedulers take a while to stop a job, and some allow overrun (Slurm: KillWait, OverTimeLimit). excluded: a later run
-- began on one of the attempt's nodes, and the GPUs of both, together with the other allocations there at that time,
-- exceed the GPUs of the node. The attempt then ends as the later run begins. Of several such attempts, the one that
-- began first is removed first. A node has the GPUs listed in the nodes table, or more if a placement shows more; if
-- the number is unknown, nothing is excluded. If you query only some jobs, only their runs exclude each other.
WITH still AS (
    SELECT
        a.job_id,
        a.attempt,
        epoch_us(a.start_time) AS since,
        w.until AS last_us,
        CASE
            WHEN j.time_limit_s > 0 AND epoch_us(a.start_time) + (j.time_limit_s + 3600) * 1000000 < w.until
                THEN epoch_us(a.start_time) + CAST(round(j.time_limit_s * 1000000) AS BIGINT)
        END AS limit_us
    FROM attempts AS a
    INNER JOIN jobs AS j ON a.job_id = j.job_id
    CROSS JOIN trace_window AS w
    WHERE a.status = 'running' AND a.end_time IS NULL AND a.start_time IS NOT NULL
),

part AS (
    SELECT
        p.node_id,
        s.job_id,
        s.attempt,
        min(coalesce(epoch_us(p.start_time), s.since)) AS since,
        min(coalesce(s.limit_us, s.last_us)) AS until,
        bool_or(s.limit_us IS NOT NULL) AS limited,
        CAST(sum(CAST(p.gpu_count AS DECIMAL(38, 6))) AS DOUBLE) AS gpus
    FROM placements AS p
    INNER JOIN still AS s ON p.job_id = s.job_id AND p.attempt = s.attempt
    WHERE p.gpu_count > 0 AND p.end_time IS NULL
    GROUP BY p.node_id, s.job_id, s.attempt
),

opened AS (SELECT node_id, min(since) AS since FROM part GROUP BY node_id),

-- For each attempt: earlier attempts without a bound, and later ones with a bound.
need AS (
    SELECT
        *,
        coalesce(sum(CASE WHEN limited THEN 0 ELSE gpus END) OVER (
            PARTITION BY node_id
            ORDER BY since, job_id, attempt
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS older,
        coalesce(sum(CASE WHEN limited THEN gpus ELSE 0 END) OVER (
            PARTITION BY node_id
            ORDER BY since, job_id, attempt
            ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ), 0) AS bounded
    FROM part
),

shown AS (
    SELECT node_id, gpu_count AS gpus FROM nodes
    UNION ALL
    SELECT node_id, gpu_count FROM placements WHERE gpu_index IS NULL
    UNION ALL
    SELECT node_id, gpu_index + 1 FROM (SELECT node_id, unnest(gpu_index) AS gpu_index FROM placements) AS named
),

size AS (
    SELECT s.node_id, max(s.gpus) AS gpus
    FROM shown AS s
    INNER JOIN opened AS o ON s.node_id = o.node_id
    WHERE s.node_id IN (SELECT node_id FROM nodes WHERE gpu_count IS NOT NULL)
    GROUP BY s.node_id
),

-- GPUs of ended attempts count from their start, or from the start of the first attempt without an end.
ended AS (
    SELECT
        p.node_id,
        epoch_us(coalesce(p.start_time, a.start_time)) AS started,
        greatest(epoch_us(coalesce(p.start_time, a.start_time)), o.since) AS since,
        epoch_us(coalesce(p.end_time, a.end_time)) AS until,
        p.gpu_count AS gpus
    FROM placements AS p
    INNER JOIN opened AS o ON p.node_id = o.node_id
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    WHERE
        p.gpu_count > 0
        AND epoch_us(coalesce(p.end_time, a.end_time)) > epoch_us(coalesce(p.start_time, a.start_time))
        AND epoch_us(coalesce(p.end_time, a.end_time)) > o.since
),

-- GPUs of attempts with neither an end nor a bound count from their start on.
change AS (
    SELECT node_id, since AS at_us, gpus, started = since AS starts FROM ended
    UNION ALL
    SELECT node_id, until, -gpus, FALSE FROM ended
    UNION ALL
    SELECT node_id, since, CASE WHEN limited THEN 0 ELSE gpus END, TRUE FROM part
),

moment AS (
    SELECT node_id, at_us, sum(CAST(gpus AS DECIMAL(38, 6))) AS gpus, bool_or(starts) AS starts
    FROM change
    GROUP BY node_id, at_us
),

level AS (
    SELECT
        node_id,
        at_us,
        starts,
        CAST(sum(gpus) OVER (
            PARTITION BY node_id ORDER BY at_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS DOUBLE) AS held
    FROM moment
),

-- GPUs in use at each later start: the attempt's own, and those of attempts that ended later, or that have no bound and
-- are not older.
later AS (
    SELECT
        n.node_id,
        n.job_id,
        n.attempt,
        n.since,
        n.bounded,
        l.at_us,
        s.gpus AS size,
        l.held - n.older + CASE WHEN n.limited THEN n.gpus ELSE 0 END AS held
    FROM need AS n
    INNER JOIN size AS s ON n.node_id = s.node_id
    INNER JOIN level AS l ON n.node_id = l.node_id
    WHERE l.starts AND l.at_us > n.since AND l.at_us < n.until
),

-- If the others alone fit, younger attempts with a bound may be too many.
together AS (
    SELECT t.node_id, t.job_id, t.attempt, t.at_us, t.size, t.held + sum(p.gpus) AS held
    FROM later AS t
    INNER JOIN part AS p
        ON t.node_id = p.node_id
        AND p.since <= t.at_us
        AND p.until > t.at_us
        AND (
            p.since > t.since
            OR (p.since = t.since AND (p.job_id > t.job_id OR (p.job_id = t.job_id AND p.attempt > t.attempt)))
        )
    WHERE p.limited AND t.held <= t.size + 0.00001 AND t.held + t.bounded > t.size + 0.00001
    GROUP BY t.node_id, t.job_id, t.attempt, t.at_us, t.size, t.held
),

excluded AS (
    SELECT job_id, attempt, min(at_us) AS at_us
    FROM (
        SELECT job_id, attempt, at_us FROM later WHERE held > size + 0.00001
        UNION ALL
        SELECT job_id, attempt, at_us FROM together WHERE held > size + 0.00001
    ) AS found
    GROUP BY job_id, attempt
)

SELECT
    s.job_id,
    s.attempt,
    least(s.last_us, coalesce(s.limit_us, s.last_us), coalesce(e.at_us, s.last_us)) AS until_us,
    CASE
        WHEN e.at_us IS NOT NULL AND e.at_us < coalesce(s.limit_us, e.at_us + 1) THEN 'excluded'
        WHEN s.limit_us IS NOT NULL THEN 'limit'
    END AS lost
FROM still AS s
LEFT JOIN excluded AS e ON s.job_id = e.job_id AND s.attempt = e.attempt
