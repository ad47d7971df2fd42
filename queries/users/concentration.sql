-- title: Concentration of use on few users
-- question: How much of the GPU and CPU time goes to the heaviest users?
-- paper: Helios Fig 8 (SC'21)
-- tables: jobs
-- also: attempts
-- needs: users
-- param gpu_time: attempts {attempts, with_gaps} | the sum of the attempts' time, or the job's whole run time
-- param cpu_time: cpu_jobs {cpu_jobs, all_jobs} | CPU time of the jobs without GPUs (as in the paper) or of all jobs
-- param x: share {share, notebook} | user_share of the k-th of n users: k / n, or (k - 1) / (n - 1) as in the paper
-- param cluster: all | the name of one cluster, or all for all clusters together
-- column user_share: share | share of the users, heaviest first
-- column gpu_time_share: share | GPU time of these users / GPU time of all users; NULL when none is known
-- column cpu_time_share: share | the same for CPU time, of CPU jobs or of all jobs, depending on cpu_time
-- column all_cpu_time_share: share | the same for the CPU time of all jobs, including GPU jobs
-- rule:
-- The n users are all users with a job, even if they have only CPU jobs or no known time. Each curve has its own
-- ranking of users, so the numbers in a row may describe different users. GPU time is run time times GPUs; CPU time is
-- run time times CPUs. cpu_time_share excludes the CPU time of GPU jobs, except with cpu_time=all_jobs;
-- all_cpu_time_share always includes it. With x=share, the k heaviest users are k / n of all users. The paper's
-- notebook places the heaviest user at 0 instead. Jobs without a user are excluded. Users with the same name in several
-- clusters count as one. One row per user.
WITH picked AS (
    SELECT j.job_id, j."user", j.gpu_count, j.cpu_count, j.run_s, j.gpu_s, j.gpu_s_with_gaps
    FROM job_gpu_hours AS j
    WHERE j."user" IS NOT NULL AND ($cluster = 'all' OR j.cluster = $cluster)
),

runs AS (
    SELECT job_id, sum(CAST(run_s AS DECIMAL(38, 6))) AS run_s
    FROM attempts
    GROUP BY job_id
),

by_user AS (
    SELECT
        p."user",
        sum(CASE WHEN $gpu_time = 'attempts' THEN p.gpu_s ELSE p.gpu_s_with_gaps END) AS gpu_s,
        sum(CAST(
            CASE WHEN $gpu_time = 'attempts' THEN CAST(r.run_s AS DOUBLE) ELSE p.run_s END
            * CASE WHEN $cpu_time = 'all_jobs' OR p.gpu_count = 0 THEN p.cpu_count END
            AS DECIMAL(38, 6)
        )) AS cpu_s,
        sum(CAST(
            CASE WHEN $gpu_time = 'attempts' THEN CAST(r.run_s AS DOUBLE) ELSE p.run_s END * p.cpu_count
            AS DECIMAL(38, 6)
        )) AS every_cpu_s
    FROM picked AS p
    LEFT JOIN runs AS r ON p.job_id = r.job_id
    GROUP BY p."user"
),

ranked AS (
    SELECT
        row_number() OVER (ORDER BY gpu_s DESC NULLS LAST, "user") AS gpu_rank,
        row_number() OVER (ORDER BY cpu_s DESC NULLS LAST, "user") AS cpu_rank,
        row_number() OVER (ORDER BY every_cpu_s DESC NULLS LAST, "user") AS every_rank,
        sum(every_cpu_s) OVER (ORDER BY every_cpu_s DESC NULLS LAST, "user" ROWS UNBOUNDED PRECEDING) AS every_cpu_s,
        sum(every_cpu_s) OVER () AS all_every_cpu_s,
        sum(gpu_s) OVER (ORDER BY gpu_s DESC NULLS LAST, "user" ROWS UNBOUNDED PRECEDING) AS gpu_s,
        sum(cpu_s) OVER (ORDER BY cpu_s DESC NULLS LAST, "user" ROWS UNBOUNDED PRECEDING) AS cpu_s,
        sum(gpu_s) OVER () AS all_gpu_s,
        sum(cpu_s) OVER () AS all_cpu_s,
        count(*) OVER () AS users
    FROM by_user
)

SELECT
    CASE
        WHEN $x = 'share' THEN CAST(g.gpu_rank AS DOUBLE) / g.users
        ELSE CAST(g.gpu_rank - 1 AS DOUBLE) / greatest(g.users - 1, 1)
    END AS user_share,
    CAST(g.gpu_s AS DOUBLE) / nullif(CAST(g.all_gpu_s AS DOUBLE), 0) AS gpu_time_share,
    CAST(c.cpu_s AS DOUBLE) / nullif(CAST(c.all_cpu_s AS DOUBLE), 0) AS cpu_time_share,
    CAST(e.every_cpu_s AS DOUBLE) / nullif(CAST(e.all_every_cpu_s AS DOUBLE), 0) AS all_cpu_time_share
FROM ranked AS g
INNER JOIN ranked AS c ON g.gpu_rank = c.cpu_rank
INNER JOIN ranked AS e ON g.gpu_rank = e.every_rank
ORDER BY g.gpu_rank
