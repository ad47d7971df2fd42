-- title: Submissions and waits by hour of the week
-- question: When in the week do jobs arrive, and how long do they wait?
-- paper: none
-- tables: jobs
-- needs: arrivals, hour_of_day, queueing, gpu_count
-- param most: 4 | number of clusters that get their own rows, starting with the most submissions
-- column cluster: text | the cluster, or NULL for all clusters together
-- column weekday: number | 1 (Monday) to 7 (Sunday), in the trace's time zone
-- column hour: hour | 0..23 in the trace's time zone
-- column jobs: jobs | jobs with GPUs submitted in this hour, over all weeks
-- column jobs_per_hour: jobs/hour | jobs / number of times the hour occurs from the first to the last day; NULL if it never does
-- column waits: waits | of these jobs, the number whose wait up to the first start is known
-- column mean_wait_s: s | mean of these waits
-- rule:
-- Only jobs with GPUs are counted, by their submission time: a wait counts for the hour in which it begins, even if it
-- lasts for days. Days are calendar days from the first to the last submission of any job, as in
-- overview/arrivals_by_hour. All 168 hours have a row. Single clusters have rows only if the trace has several known
-- clusters; ties between equally busy clusters are broken by name. Clock changes are not corrected.
WITH local_times AS (
    SELECT
        j.cluster,
        j.gpu_count,
        j.queue_s,
        j.submit_time AT TIME ZONE 'UTC' AT TIME ZONE z.timezone AS submitted
    FROM jobs AS j
    CROSS JOIN trace_zone AS z
    WHERE j.submit_time IS NOT NULL
),

-- Day 0 is a Monday; days before it count backwards.
dated AS (
    SELECT
        cluster,
        gpu_count,
        queue_s,
        date_diff('day', CAST('1970-01-05' AS DATE), CAST(submitted AS DATE)) AS day,
        CAST(extract(HOUR FROM submitted) AS BIGINT) AS hour
    FROM local_times
),

span AS (
    SELECT min(day) AS first_day, max(day) - min(day) + 1 AS days
    FROM dated
),

came AS (
    SELECT cluster, ((day % 7) + 7) % 7 + 1 AS weekday, hour, queue_s
    FROM dated
    WHERE gpu_count > 0
),

ranked AS (
    SELECT
        cluster,
        row_number() OVER (ORDER BY count(*) DESC, cluster) AS place,
        count(*) OVER () AS several
    FROM came
    WHERE cluster IS NOT NULL
    GROUP BY cluster
),

whose AS (
    SELECT CAST(NULL AS VARCHAR) AS cluster, 0 AS place
    UNION ALL
    SELECT cluster, place
    FROM ranked
    WHERE place <= $most AND several > 1
),

counted AS (
    SELECT
        w.place,
        c.weekday,
        c.hour,
        count(*) AS jobs,
        count(c.queue_s) AS waits,
        CAST(avg(CAST(c.queue_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_wait_s
    FROM came AS c
    INNER JOIN whose AS w ON w.place = 0 OR c.cluster = w.cluster
    GROUP BY w.place, c.weekday, c.hour
),

weekdays AS (
    SELECT unnest(generate_series(1, 7)) AS weekday
),

hours AS (
    SELECT unnest(generate_series(0, 23)) AS hour
),

cell AS (
    SELECT
        d.weekday,
        h.hour,
        s.days // 7 + CASE WHEN ((d.weekday - 1 - s.first_day) % 7 + 7) % 7 < s.days % 7 THEN 1 ELSE 0 END AS times
    FROM weekdays AS d
    CROSS JOIN hours AS h
    CROSS JOIN span AS s
)

SELECT
    w.cluster,
    cell.weekday,
    cell.hour,
    CAST(coalesce(c.jobs, 0) AS BIGINT) AS jobs,
    CAST(coalesce(c.jobs, 0) AS DOUBLE) / nullif(cell.times, 0) AS jobs_per_hour,
    CAST(coalesce(c.waits, 0) AS BIGINT) AS waits,
    c.mean_wait_s
FROM whose AS w
CROSS JOIN cell
LEFT JOIN counted AS c ON w.place = c.place AND cell.weekday = c.weekday AND cell.hour = c.hour
ORDER BY w.place, cell.weekday, cell.hour
