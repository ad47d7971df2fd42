-- title: Backtest of expected waits
-- question: How accurate are the forecasts of 'tracekit wait'?
-- paper: none
-- tables: jobs
-- needs: queueing
-- param level: 0.8 | share of the waits that an interval should cover
-- param window: 100 | maximum number of similar jobs to use (those with the most similar queues)
-- param least: 20 | minimum number of similar jobs for a forecast
-- param days: 56 | maximum age of a similar job's wait, in days since it began
-- param judged_share: 0.5 | share of the jobs that are tested (the latest jobs); the others are used for learning
-- column gpu_class: class | size class of the job, or all for jobs of every class; NULL when unknown
-- column jobs: jobs | tested jobs
-- column too_few: jobs | of these, jobs without a forecast because too few earlier jobs are similar
-- column unknown: jobs | jobs that left the queue or the log within the interval without starting
-- column told: jobs | the other jobs, whose interval can be checked
-- column covered_share: share | waits within the interval / told; a wait equal to a bound counts in part
-- column below_share: share | waits below the interval / told
-- column above_share: share | waits above the interval / told
-- column inside_share: share | waits between the ends, both included / told
-- column low_p50_s: s | median of the lower ends
-- column high_p50_s: s | median of the upper ends; an unknown one counts as longer than any known one
-- interval inside_share: proportion of told
-- rule:
-- For each of the last jobs of the history, the query computes the interval that would have been forecast when the job
-- began to wait, using only what was known at that moment. It then checks whether the job's wait fell into this
-- interval (timeline expected_waits). covered_share should match level. If many waits are equal, such as 0 s, a bound
-- falls among them, and the waits beyond the quantile count as missed. inside_share counts all of them as covered, so
-- it is at least the share of the most frequent wait. For example, if 97 of 100 jobs start at once, inside_share is at
-- least 97 percent at any level.
WITH judged AS (
    -- Use decimal numbers, because their sums do not depend on row order.
    SELECT *, CAST(below AS DECIMAL(38, 9)) AS under, CAST(above AS DECIMAL(38, 9)) AS over_
    FROM expected_waits
    WHERE judged
),

counted AS (
    SELECT
        grouping(judged.gpu_class) AS whole,
        judged.gpu_class,
        judged.class_order,
        count(judged.job_id) AS jobs,
        count(*) FILTER (WHERE step < 0) AS too_few,
        count(*) FILTER (WHERE step >= 0 AND below IS NULL) AS unknown,
        count(below) AS told,
        CAST(sum(under) AS DOUBLE) AS under,
        CAST(sum(over_) AS DOUBLE) AS over_,
        CAST(sum(under) + sum(over_) AS DOUBLE) AS missed,
        count(*) FILTER (WHERE inside) AS inside,
        quantile_cont(low_s, 0.5) FILTER (WHERE below IS NOT NULL) AS low_p50_s,
        quantile_cont(high_s, 0.5) FILTER (WHERE below IS NOT NULL) AS high_p50_s
    -- The row for all is present even if no job is tested.
    FROM (SELECT 1 AS one) AS always
    LEFT JOIN judged ON TRUE
    GROUP BY GROUPING SETS ((judged.gpu_class, judged.class_order), ())
)

SELECT
    CASE WHEN whole = 1 THEN 'all' ELSE gpu_class END AS gpu_class,
    jobs,
    too_few,
    unknown,
    told,
    1 - missed / nullif(told, 0) AS covered_share,
    under / nullif(told, 0) AS below_share,
    over_ / nullif(told, 0) AS above_share,
    CAST(inside AS DOUBLE) / nullif(told, 0) AS inside_share,
    low_p50_s,
    high_p50_s
FROM counted
WHERE whole = 1 OR jobs > 0
ORDER BY whole, class_order NULLS LAST
