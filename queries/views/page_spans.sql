-- title: The spans into which a page cuts the time of the log
-- tables: jobs, attempts
-- views: trace_window
-- column since: us since 1970 | the whole hour in which the first moment of jobs and attempts lies
-- column until: us since 1970 | the last submission
-- column hours: hours | whole hours from the one to the other, begun ones included
-- column first: us since 1970 | begin of the first span, at or before `since`
-- column span_h: hours | length of a span; the last ends with the last submission
-- column spans: number | how many there are, at most 60
-- rule:
-- One row; none without a submission. A span has a whole number of hours, a day, two days or whole weeks where it is long:
-- the shortest of these with which 60 spans suffice. Spans begin where the clock or the calendar does (UTC): those of a
-- day at midnight, weeks on Monday.
WITH frame AS (
    SELECT
        (since // 3600000000) * 3600000000 AS since,
        greatest(last_submission, since) AS until,
        (greatest(last_submission, since) // 3600000000) - (since // 3600000000) + 1 AS hours
    FROM trace_window
    WHERE last_submission IS NOT NULL
),

sized AS (
    SELECT *, CASE
        WHEN hours <= 59 THEN 1
        WHEN hours <= 2 * 59 THEN 2
        WHEN hours <= 3 * 59 THEN 3
        WHEN hours <= 6 * 59 THEN 6
        WHEN hours <= 12 * 59 THEN 12
        WHEN hours <= 24 * 59 THEN 24
        WHEN hours <= 48 * 59 THEN 48
        ELSE 168 * ((hours + 168 * 59 - 1) // (168 * 59))
    END AS span_h
    FROM frame
),

-- 1970 began on a Thursday; hour 96 was the first of a Monday. Remainders of times before it are negative.
aligned AS (
    SELECT *, since // 3600000000 - ((since // 3600000000 - 96) % span_h + span_h) % span_h AS first_h FROM sized
)

SELECT
    since,
    until,
    hours,
    first_h * 3600000000 AS first,
    span_h,
    (until // 3600000000 - first_h) // span_h + 1 AS spans
FROM aligned
