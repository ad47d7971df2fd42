-- title: Reasons why jobs waited
-- question: How much of the waiting is due to limits, dependencies and begin times?
-- paper: none
-- tables: jobs
-- needs: queueing
-- column reason_group: text | the last reason why the job waited, derived from the source's reason word
-- column commonest_word: text | the most common reason word in the group
-- column jobs: jobs | jobs that started after a known wait
-- column gpu_jobs: jobs | of these, jobs that asked for GPUs
-- column mean_s: s | mean wait
-- column p50_s: s | median
-- column p90_s: s | 90th percentile
-- column wait_share: share | waiting time of the group / waiting time of all these jobs
-- column gpu_wait_share: share | the same for the jobs that asked for GPUs
-- interval p50_s: median of jobs
-- rule:
-- Waits run from the submission to the first start. The groups are based on Slurm's job reason codes
-- (slurm.schedmd.com/job_reason_codes.html): limit (Assoc*, QOS* and Max*PerAccount limits of accounts and QOS,
-- partition limits, the array's own limit), dependency, begin time, held (by user or administrator), nodes (down,
-- reserved, not available), contention (Resources, Priority, licenses, burst buffers), other (other words in the
-- manual) and unlisted (words that are not in the manual). Slurm's accounting keeps only the last limit or condition,
-- and no word for jobs delayed only by resources or priority; these form the group none. A log without any reason words
-- gives no rows.
WITH started AS (
    SELECT
        wait_reason,
        queue_s,
        coalesce(gpu_count > 0, FALSE) AS has_gpus,
        regexp_extract(wait_reason, '^[A-Za-z]+') AS word
    FROM jobs
    WHERE queue_s IS NOT NULL AND EXISTS (SELECT 1 FROM jobs WHERE wait_reason IS NOT NULL)
),

grouped AS (
    SELECT
        wait_reason,
        queue_s,
        has_gpus,
        CASE
            WHEN wait_reason IS NULL THEN 'none'
            WHEN regexp_matches(word, '^((Assoc|QOS)(Grp|Max|Min)[A-Za-z]+|Max[A-Za-z]+PerAccount)$') OR word IN (
                'AccountingPolicy', 'AssociationJobLimit', 'AssociationResourceLimit', 'AssociationTimeLimit',
                'JobArrayTaskLimit', 'MaxMemPerLimit', 'PartitionConfig', 'PartitionNodeLimit', 'PartitionTimeLimit',
                'QOSJobLimit', 'QOSResourceLimit', 'QOSTimeLimit', 'QOSUsageThreshold'
            ) THEN 'limit'
            WHEN word IN ('Dependency', 'DependencyNeverSatisfied') THEN 'dependency'
            WHEN word = 'BeginTime' THEN 'begin time'
            WHEN word IN ('JobHeldAdmin', 'JobHeldUser', 'JobHoldMaxRequeue') THEN 'held'
            WHEN word IN (
                'NodeDown', 'PartitionDown', 'PartitionInactive', 'ReqNodeNotAvail', 'Reservation', 'ReservationDeleted'
            ) THEN 'nodes'
            WHEN word IN (
                'BurstBufferResources', 'BurstBufferStageIn', 'Constraints', 'Licenses', 'Priority', 'Resources'
            ) THEN 'contention'
            WHEN word IN (
                'AccountNotAllowed', 'BadConstraints', 'BurstBufferOperation', 'Cleaning', 'DeadLine', 'FedJobLock',
                'InactiveLimit', 'InvalidAccount', 'InvalidQOS', 'JobLaunchFailure', 'NonZeroExitCode', 'OutOfMemory',
                'Prolog', 'QOSNotAllowed', 'SchedDefer', 'SystemFailure', 'TimeLimit'
            ) THEN 'other'
            ELSE 'unlisted'
        END AS reason_group
    FROM started
)

SELECT
    reason_group,
    mode(wait_reason ORDER BY wait_reason) AS commonest_word,
    count(*) AS jobs,
    count(*) FILTER (WHERE has_gpus) AS gpu_jobs,
    CAST(avg(CAST(queue_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_s,
    quantile_cont(queue_s, 0.5) AS p50_s,
    quantile_cont(queue_s, 0.9) AS p90_s,
    CAST(sum(CAST(queue_s AS DECIMAL(38, 6))) AS DOUBLE)
    / nullif(sum(CAST(sum(CAST(queue_s AS DECIMAL(38, 6))) AS DOUBLE)) OVER (), 0) AS wait_share,
    CAST(coalesce(sum(CAST(queue_s AS DECIMAL(38, 6))) FILTER (WHERE has_gpus), 0) AS DOUBLE)
    / nullif(sum(CAST(sum(CAST(queue_s AS DECIMAL(38, 6))) FILTER (WHERE has_gpus) AS DOUBLE)) OVER (), 0)
        AS gpu_wait_share,
    percentiles(queue_s) AS _p50_s
FROM grouped
GROUP BY reason_group
ORDER BY jobs DESC, reason_group
