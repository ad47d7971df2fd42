-- title: Effective training time ratio, by job size
-- question: For what share of the time since submission do jobs make progress?
-- paper: Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)
-- tables: jobs, attempts
-- also: placements, node_events, gpu_utilization
-- needs: statuses, gpu_count, run_time
-- tenant: none
-- param checkpoint_h: 1 | hours between checkpoints of an attempt, or 0 if nothing is saved and all its work is lost
-- param start_up_min: 0 | start-up time of an attempt in minutes, used if no samples show it
-- param rule: stated {stated, retried} | attempts whose status marks them as cut short; retried adds attempts with an unknown end that were tried again
-- param interruptions: all {all, node} | what cuts attempts short: any interruption, or only node failures
-- param since: submission {submission, start} | start of the counted time: the submission (includes the first wait) or the first start
-- param min_run_h: 1 | minimum run time of a counted job, over all its attempts, in hours
-- column gpus: GPUs | jobs with more than half this number of GPUs, up to this number
-- column jobs: jobs | counted jobs
-- column attempts: attempts | attempts of these jobs
-- column interruptions: attempts | of these, attempts that were cut short
-- column wall_h: hours | total time since submission (or first start) in which the jobs ran or waited to run
-- column productive_h: hours | time in which the jobs made progress: run time without start-up and lost work
-- column ettr: share | productive_h / wall_h
-- column ettr_low: share | lower end of ettr's 95 % interval; NULL with one job, or if ettr is 0 or 1
-- column ettr_high: share | upper end of the interval
-- column median_ettr: share | median of the ratio over jobs
-- column nodes: nodes | mean number of nodes of an attempt, weighted by run time; NULL when unknown
-- column failures_per_1000_node_d: 1/1000 d | attempts of any job that were cut short / node-days of all attempts
-- column expected_ettr: share | ratio according to the formula; NULL if nothing is saved, nodes are unknown, or the result would not be above 0
-- interval median_ettr: median of jobs
-- rule:
-- The ratio follows Kokolis et al.: productive run time / wall-clock time in which the job ran or was in the queue,
-- over all its attempts. Waits are counted per attempt; since=start excludes the first. A job counts if it asked for
-- GPUs, is over, and all these times are known. Productive time is run time without each attempt's start-up and without
-- the work lost since its last checkpoint. Both are defined as in failures/goodput, except that waits for the last part
-- of a multi-node job count as start-up; idle GPUs do not reduce productive time. An attempt with an unknown end loses
-- nothing, unless rule=retried and another attempt followed. With interruptions=node, only attempts with the status
-- node_fail or a node_cause are cut short (view attempt_interruptions); all other attempts then lose nothing. ettr is
-- the ratio of the sums, so long jobs weigh more. Its interval is that of a ratio estimator: 1.96 standard errors by
-- linearization, assuming independent jobs (Cochran, Sampling Techniques, 1977), on the scale of log(ettr / (1 -
-- ettr)), which keeps it between 0 and 1. The median gives each job the same weight, and its interval assumes no
-- distribution. The expected ratio models interruptions as a Poisson process whose rate r per node is the same for all
-- jobs. A job on N nodes with R hours of work, start-up u, checkpoints every c hours and a wait of q before each
-- attempt is allocated for S = R + u + r N S (u + c / 2) hours, because each interruption costs a start-up and, on
-- average, half a checkpoint interval. Hence S = (R + u) / (1 - r N (u + c / 2)), and the expected ratio is R / (S + (1
-- + r N S) q), without the 1 for since=start. For long runs it approaches (1 - r N (u + c / 2)) / (1 + r N q). This is
-- our own first-order derivation for the quantities of that study. R, u, q and N are the means of the class; r is
-- measured over all GPU attempts with known nodes. The formula ignores interruptions that depend more on the job than
-- on its nodes, and work that ends before its first checkpoint.
WITH setting AS (
    SELECT
        CASE WHEN $checkpoint_h >= 0 THEN CAST(round($checkpoint_h * 3.6e9) AS BIGINT)
            ELSE error('checkpoint_h must be 0 or more') END AS checkpoint_us,
        CASE WHEN $start_up_min >= 0 THEN CAST(round($start_up_min * 6e7) AS BIGINT)
            ELSE error('start_up_min must be 0 or more') END AS stated_us
),

begun AS (
    SELECT
        p.job_id,
        p.attempt,
        p.gpu_count,
        p.node_count,
        p.run_us,
        p.wait_s,
        coalesce(CASE WHEN $rule = 'retried' THEN p.interrupted_or_retried ELSE p.interrupted END, FALSE)
        AND ($interruptions = 'all' OR p.node_cause IS NOT NULL OR p.status IS NOT DISTINCT FROM 'node_fail') AS cut,
        s.checkpoint_us,
        coalesce(p.queued_us, 0) + CASE
            WHEN p.begin_sampled THEN p.first_use_us
            ELSE least(s.stated_us, p.run_us - coalesce(p.queued_us, 0))
        END AS start_up_us
    FROM attempt_phases AS p
    CROSS JOIN setting AS s
    WHERE p.gpu_count > 0
),

worked AS (
    SELECT
        *,
        run_us - start_up_us - CASE
            WHEN NOT cut THEN 0
            WHEN checkpoint_us = 0 THEN run_us - start_up_us
            ELSE (run_us - start_up_us) % checkpoint_us
        END AS productive_us,
        attempt = min(attempt) OVER (PARTITION BY job_id) AND $since = 'start' AS without_wait
    FROM begun
),

rate AS (
    SELECT count(*) FILTER (WHERE cut) / nullif(CAST(sum(CAST(node_count AS HUGEINT) * run_us) AS DOUBLE) / 3.6e9, 0) AS per_h
    FROM worked
    WHERE node_count > 0 AND run_us IS NOT NULL
),

job AS (
    SELECT
        w.job_id,
        CAST(pow(2, greatest(0, ceil(log2(any_value(j.gpu_count)) - 1e-9))) AS BIGINT) AS gpus,
        count(*) AS attempts,
        count(*) FILTER (WHERE NOT w.without_wait) AS waits,
        count(*) FILTER (WHERE w.cut) AS cuts,
        sum(w.run_us) AS run_us,
        sum(w.start_up_us) AS start_up_us,
        sum(w.productive_us) AS productive_us,
        coalesce(sum(CAST(round(w.wait_s * 1e6) AS BIGINT)) FILTER (WHERE NOT w.without_wait), 0) AS wait_us,
        CASE WHEN count(w.node_count) = count(*) THEN sum(CAST(w.node_count AS HUGEINT) * w.run_us) END AS node_us
    FROM worked AS w
    INNER JOIN jobs AS j ON w.job_id = j.job_id
    WHERE j.gpu_count > 0 AND coalesce(j.status, '') NOT IN ('running', 'pending')
    GROUP BY w.job_id
    HAVING
        count(w.run_us) = count(*)
        AND bool_and(w.without_wait OR coalesce(w.wait_s >= 0, FALSE))
        AND sum(w.run_us) >= $min_run_h * 3.6e9
        AND sum(w.run_us) > 0
),

timed AS (
    SELECT *, CAST(productive_us AS DOUBLE) / 3.6e9 AS productive, CAST(run_us + wait_us AS DOUBLE) / 3.6e9 AS wall
    FROM job
),

class AS (
    SELECT
        gpus,
        count(*) AS jobs,
        CAST(sum(attempts) AS BIGINT) AS attempts,
        CAST(sum(cuts) AS BIGINT) AS cuts,
        CAST(sum(run_us + wait_us) AS DOUBLE) / 3.6e9 AS wall,
        CAST(sum(productive_us) AS DOUBLE) / 3.6e9 AS productive,
        CAST(sum(start_up_us) AS DOUBLE) / 3.6e9 / CAST(sum(attempts) AS DOUBLE) AS start_up,
        coalesce(CAST(sum(wait_us) AS DOUBLE) / 3.6e9 / nullif(CAST(sum(waits) AS DOUBLE), 0), 0) AS wait,
        CASE
            WHEN count(node_us) = count(*) THEN CAST(sum(node_us) AS DOUBLE) / CAST(sum(run_us) AS DOUBLE)
        END AS nodes,
        quantile_cont(productive / wall, 0.5) AS median_ettr,
        percentiles(productive / wall) AS _median_ettr
    FROM timed
    GROUP BY gpus
),

spread AS (
    SELECT
        t.gpus,
        CASE
            WHEN count(*) > 1
                THEN sqrt(CAST(sum(CAST(pow(t.productive - c.productive / c.wall * t.wall, 2) AS DECIMAL(38, 12))) AS DOUBLE)
                    * count(*) / (count(*) - 1)) / any_value(c.wall)
        END AS error
    FROM timed AS t
    INNER JOIN class AS c ON t.gpus = c.gpus
    GROUP BY t.gpus
),

model AS (
    SELECT
        c.*,
        CASE
            WHEN c.productive > 0 AND c.productive < c.wall
                THEN 1.959963984540054 * s.error / (c.productive / c.wall * (1 - c.productive / c.wall))
        END AS reach,
        r.per_h,
        r.per_h * c.nodes AS per_gang_h,
        c.productive / c.jobs AS work,
        CASE
            WHEN $checkpoint_h > 0 AND r.per_h * c.nodes * (c.start_up + $checkpoint_h / 2) < 1
                THEN (c.productive / c.jobs + c.start_up) / (1 - r.per_h * c.nodes * (c.start_up + $checkpoint_h / 2))
        END AS scheduled
    FROM class AS c
    INNER JOIN spread AS s ON c.gpus = s.gpus
    CROSS JOIN rate AS r
)

SELECT
    gpus,
    jobs,
    attempts,
    cuts AS interruptions,
    wall AS wall_h,
    productive AS productive_h,
    productive / wall AS ettr,
    1 / (1 + (wall / productive - 1) * exp(reach)) AS ettr_low,
    1 / (1 + (wall / productive - 1) * exp(-reach)) AS ettr_high,
    median_ettr,
    nodes,
    per_h * 24000 AS failures_per_1000_node_d,
    work / (
        scheduled + (CASE WHEN $since = 'submission' THEN 1 ELSE 0 END + per_gang_h * scheduled) * wait
    ) AS expected_ettr,
    _median_ettr
FROM model
ORDER BY gpus
