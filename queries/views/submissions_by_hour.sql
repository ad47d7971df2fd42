-- title: Submissions by cluster and hour of the day
-- tables: jobs
-- column cluster: text | the cluster; NULL when unknown
-- column hour: hour | 0..23 in the trace's time zone
-- column jobs: jobs | jobs submitted in this hour, over all days
-- column gpu_jobs: jobs | of these, jobs with GPUs
-- column sized_jobs: jobs | of these, jobs whose number of GPUs is known, including CPU jobs
-- column days: days | days from the first to the last submission of the trace; the same in every row
-- rule:
-- Hours and days are local to the trace's time zone. The days are all calendar days from the first to the last
-- submission in any cluster, both included, even days without a submission. So the counts of all clusters are divided
-- by the same number. Jobs without a submission time are excluded, and hours of a cluster without a submission have no
-- row. Clock changes are not corrected: a day with 23 or 25 hours counts as one day.
WITH local_times AS (
    SELECT j.cluster, j.gpu_count, j.submit_time AT TIME ZONE 'UTC' AT TIME ZONE z.timezone AS submitted
    FROM jobs AS j
    CROSS JOIN trace_zone AS z
    WHERE j.submit_time IS NOT NULL
),

span AS (
    SELECT date_diff('day', CAST(min(submitted) AS DATE), CAST(max(submitted) AS DATE)) + 1 AS days
    FROM local_times
)

SELECT
    t.cluster,
    CAST(extract(HOUR FROM t.submitted) AS BIGINT) AS hour,
    count(*) AS jobs,
    count(*) FILTER (WHERE t.gpu_count > 0) AS gpu_jobs,
    count(t.gpu_count) AS sized_jobs,
    max(s.days) AS days
FROM local_times AS t
CROSS JOIN span AS s
GROUP BY 1, 2
