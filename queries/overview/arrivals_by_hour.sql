-- title: Submissions by hour of the day
-- question: In which hours do people submit jobs?
-- paper: Helios Fig 2 (SC'21)
-- tables: jobs
-- needs: arrivals, hour_of_day
-- column hour: hour | 0..23 in the trace's time zone
-- column jobs: jobs | jobs submitted in this hour, over all days
-- column gpu_jobs: jobs | of these, jobs with GPUs; NULL when no job's size is known
-- column mean_jobs_per_day: jobs/day | jobs / days from the first to the last submission
-- rule:
-- Hours and days are local to the trace's time zone. The days are all calendar days from the first to the last
-- submission, both included, even days without a submission (view submissions_by_hour). Jobs without a submission time
-- are excluded. All 24 hours have a row. Clock changes are not corrected: a day with 23 or 25 hours counts as one day.
WITH span AS (
    SELECT max(days) AS days, sum(sized_jobs) AS sized_jobs
    FROM submissions_by_hour
),

by_hour AS (
    SELECT hour, sum(jobs) AS jobs, sum(gpu_jobs) AS gpu_jobs
    FROM submissions_by_hour
    GROUP BY hour
),

hours AS (
    SELECT unnest(generate_series(0, 23)) AS hour
)

SELECT
    hours.hour,
    CAST(coalesce(by_hour.jobs, 0) AS BIGINT) AS jobs,
    CASE WHEN span.sized_jobs > 0 THEN CAST(coalesce(by_hour.gpu_jobs, 0) AS BIGINT) END AS gpu_jobs,
    CAST(coalesce(by_hour.jobs, 0) AS DOUBLE) / span.days AS mean_jobs_per_day
FROM hours
CROSS JOIN span
LEFT JOIN by_hour ON hours.hour = by_hour.hour
ORDER BY hours.hour
