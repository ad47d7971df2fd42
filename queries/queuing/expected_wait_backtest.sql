-- title: Expected waits, checked
-- question: How good are the forecasts of 'tracekit wait'?
-- paper: none
-- tables: jobs
-- needs: queueing
-- param level: 0.8 | share of the waits that an interval shall hold
-- param window: 100 | how many of the latest jobs like it are looked at
-- param least: 20 | fewest jobs like it that tell anything
-- param days: 56 | jobs that began to wait longer ago are left out, in days
-- param judged_share: 0.5 | share of the jobs, the last ones, that are judged; the others are learned from
-- column gpu_class: class | size class of the job; all for every job; NULL when unknown
-- column jobs: jobs | jobs that are judged
-- column too_few: jobs | those of them that are told nothing, since too few earlier ones are like them
-- column unknown: jobs | those that left the queue or the log within the interval, without a start
-- column told: jobs | the others, whose interval can be checked
-- column covered_share: share | waits within the interval / told; a wait that equals an end counts in part
-- column below_share: share | waits below the interval / told
-- column above_share: share | waits above the interval / told
-- column inside_share: share | waits between the ends, both included / told
-- column low_p50_s: s | median of the lower ends
-- column high_p50_s: s | median of the upper ends; longer than any that is known where one has none
-- interval inside_share: proportion of told
-- rule:
-- For each of the last jobs of the history: the interval that it would have been told when it began to wait, from what
-- was known at that moment and no later, and whether its wait fell in (timeline expected_waits).
-- covered_share is what the level promises: where many waits are the same, such as 0 s, an end falls into the middle
-- of them, and those beyond the quantile count as missed. inside_share counts them all as held, so that it is at least
-- the share of the most frequent wait: where 97 of 100 jobs start at once, it is 97 percent at least, at any level.
WITH judged AS (
    -- Decimal numbers, because their sums do not depend on the order of the rows.
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
    -- Where no job is judged the row of all is there too.
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
