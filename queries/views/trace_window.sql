-- title: The time from the first to the last event of jobs and attempts
-- tables: jobs, attempts
-- column since: us since 1970 | the first of the times in jobs and attempts; NULL if there are none
-- column until: us since 1970 | the last of these times
-- column last_submission: us since 1970 | the last submission; NULL when none is known
-- rule:
-- One row. Timelines run from the first to the last of these times. Jobs that still wait or run at the end count up to
-- the last of them.
WITH moment AS (
    SELECT unnest([min(submit_time), max(submit_time), max(start_time), max(end_time)]) AS t FROM jobs
    UNION ALL
    SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM attempts
)

SELECT
    epoch_us(min(t)) AS since,
    epoch_us(max(t)) AS until,
    (SELECT epoch_us(max(submit_time)) FROM jobs) AS last_submission
FROM moment
