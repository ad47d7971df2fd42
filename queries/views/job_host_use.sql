-- title: Processors, memory and time allocated to and used by each job
-- tables: jobs, attempts, placements, job_usage
-- column job_id: text | the job
-- column cpu_s: s | CPU time used, over all cores; NULL when unknown
-- column core_s: s | cores * run time; NULL when unknown
-- column memory_used_gib: GiB | peak host memory in use, as far as the source shows it; NULL when unknown
-- column memory_gib: GiB | requested host memory; NULL when unknown
-- column run_s: s | run time, summed over the attempts; NULL if any of them is unknown
-- column longest_s: s | run time of the longest attempt; NULL if any of them is unknown
-- column time_limit_s: s | the time limit; NULL when there is none
-- rule:
-- One row for each job with attempts. The definitions follow Slurm's seff: CPU time of all steps / (cores * wall time),
-- and memory of the largest step / requested memory. Steps are the rows of job_usage without a node whose instance is
-- not in placements. Steps run one after the other, so only the largest step's memory counts; components of a job are
-- summed. Other rows are parts that run in parallel, on nodes or as instances, and are also summed. If a source records
-- the same use in both ways, the larger value counts.
WITH instances AS (
    SELECT DISTINCT job_id, instance
    FROM placements
    WHERE instance IS NOT NULL
),

parts AS (
    SELECT
        u.job_id,
        u.task,
        u.memory_gib,
        u.cpu_s,
        u.instance IS NOT NULL AND u.node_id IS NULL AND i.job_id IS NULL AS is_step
    FROM job_usage AS u
    LEFT JOIN instances AS i ON u.job_id = i.job_id AND u.instance = i.instance
),

tasks AS (
    SELECT
        job_id,
        is_step,
        CASE WHEN is_step THEN max(memory_gib) ELSE sum(memory_gib) END AS memory_gib,
        sum(CAST(cpu_s AS DECIMAL(38, 6))) AS cpu_s
    FROM parts
    GROUP BY job_id, is_step, task
),

kinds AS (
    SELECT job_id, sum(memory_gib) AS memory_gib, CAST(sum(cpu_s) AS DOUBLE) AS cpu_s
    FROM tasks
    GROUP BY job_id, is_step
),

used AS (
    SELECT job_id, max(memory_gib) AS memory_gib, max(cpu_s) AS cpu_s
    FROM kinds
    GROUP BY job_id
),

ran AS (
    SELECT
        job_id,
        CASE WHEN count(*) = count(run_s) THEN CAST(sum(CAST(run_s AS DECIMAL(38, 6))) AS DOUBLE) END AS run_s,
        CASE WHEN count(*) = count(run_s) THEN max(run_s) END AS longest_s
    FROM attempts
    GROUP BY job_id
)

SELECT
    j.job_id,
    u.cpu_s,
    j.cpu_count * r.run_s AS core_s,
    u.memory_gib AS memory_used_gib,
    j.memory_gib,
    r.run_s,
    r.longest_s,
    j.time_limit_s
FROM jobs AS j
INNER JOIN ran AS r ON j.job_id = r.job_id
LEFT JOIN used AS u ON j.job_id = u.job_id
