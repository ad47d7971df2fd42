-- title: The spans into which a page divides the log's time
-- tables: jobs, attempts
-- views: trace_window
-- column since: us since 1970 | the full hour that contains the first moment of jobs and attempts
-- column until: us since 1970 | the last submission
-- column hours: hours | hours from since to until, rounded up
-- column first: us since 1970 | start of the first span, at or before `since`
-- column span_h: hours | length of a span; the last span ends with the last submission
-- column spans: number | number of spans, at most 60
-- rule:
-- One row, or no row if there is no submission. A span is a whole number of hours, a day, two days or whole weeks, and
-- as short as possible with at most 60 spans. Spans begin at clock or calendar boundaries in the time zone of the
-- trace: days at midnight, weeks on Monday. If the clocks change in between, later spans begin an hour off. A trace
-- whose times count from its start has no calendar, so its first span begins with the trace. The same applies if the
-- first span would begin before year 1.
WITH frame AS (
    SELECT
        (since // 3600000000) * 3600000000 AS since,
        greatest(last_submission, since) AS until,
        (greatest(last_submission, since) // 3600000000) - (since // 3600000000) + 1 AS hours
    FROM trace_window
    WHERE last_submission IS NOT NULL
),

-- How far clocks are ahead of UTC when the trace begins. 1970 began on a Thursday; hour 96 was the first of a Monday.
clocked AS (
    SELECT
        f.since,
        f.until,
        f.hours,
        CASE WHEN z.clock IS NULL THEN 0
            ELSE epoch_us(make_timestamp(CAST(f.since AS BIGINT)) AT TIME ZONE 'UTC' AT TIME ZONE z.clock) - f.since
                - 96 * 3600000000 END AS ahead
    FROM frame AS f
    CROSS JOIN trace_zone AS z
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
    FROM clocked
),

-- Remainders of times before the epoch are negative.
aligned AS (
    SELECT
        *,
        since - ((since + ahead) % (span_h * 3600000000) + span_h * 3600000000) % (span_h * 3600000000) AS calendar_first
    FROM sized
),

-- Year 1 began 62135596800 seconds before 1970.
placed AS (SELECT *, CASE WHEN calendar_first < -62135596800000000 THEN since ELSE calendar_first END AS first FROM aligned)

SELECT
    since,
    until,
    hours,
    first,
    span_h,
    (until - first) // (span_h * 3600000000) + 1 AS spans
FROM placed
