-- title: Groups of recurring jobs
-- question: Which jobs run repeatedly, for how many users, and how similar are their run times?
-- paper: recurring tasks of PAI (NSDI'22)
-- tables: jobs
-- also: attempts
-- param min_jobs: 1 | minimum number of jobs of a listed group; PAI calls a group recurring if it has at least 5
-- column group: text | the group, as the source names it
-- column jobs: jobs | jobs of this group
-- column users: users | distinct users who submitted them; NULL when none is known
-- column median_run_s: s | median run time
-- column run_s_cv: ratio | standard deviation of the run time / its mean; NULL if fewer than two run times are known
-- column gpu_hours: GPU-hours | GPU time of these jobs over their attempts; NULL when none is known
-- rule:
-- Jobs of every status are included; jobs without a group are excluded. The run time is that of the job, including gaps
-- between attempts. The standard deviation is the sample standard deviation (n - 1). If the mean is 0, the ratio is
-- NULL. What a group is depends on the source: a task group in PAI, an application in DLRM, or a kind of job in Acme.
-- Percentiles interpolate linearly. Sorted by jobs in descending order.
WITH spread AS (
    SELECT
        "group",
        "user",
        run_s,
        gpu_s,
        CAST(avg(CAST(run_s AS DECIMAL(38, 6))) OVER (PARTITION BY "group") AS DOUBLE) AS mean_s
    FROM job_gpu_hours
    WHERE "group" IS NOT NULL
)

SELECT
    "group",
    count(*) AS jobs,
    nullif(count(DISTINCT "user"), 0) AS users,
    quantile_cont(run_s, 0.5) AS median_run_s,
    sqrt(
        CAST(sum(CAST((run_s - mean_s) * (run_s - mean_s) AS DECIMAL(38, 6))) AS DOUBLE) / nullif(count(run_s) - 1, 0)
    ) / nullif(max(mean_s), 0) AS run_s_cv,
    CAST(sum(gpu_s) AS DOUBLE) / 3600 AS gpu_hours
FROM spread
GROUP BY "group"
HAVING count(*) >= $min_jobs
ORDER BY jobs DESC, "group"
