-- title: Load of each cluster through time
-- question: When is the cluster full, and how much is waited for then?
-- paper: Helios Fig 3 (SC'21)
-- tables: jobs, attempts
-- also: capacity
-- needs: queueing
-- param step_s: 0 | length of the intervals over which is averaged [s]; 0: as short as a page can show the trace
-- param quota: auto {auto, capacity, peak, p95} | what VCs own where the trace states no total: stated, or a proxy
-- column time: UTC | start of the interval
-- column cluster: text | the cluster
-- column running_jobs: jobs | mean number of running attempts
-- column pending_jobs: jobs | mean number of waiting jobs
-- column running_gpus: GPUs | mean number of GPUs held
-- column pending_gpus: GPUs | mean number of GPUs that waiting jobs ask for
-- column capacity_gpus: GPUs | what the cluster owns at the start of the interval; NULL when unknown
-- rule:
-- The sums over the VCs of queuing/timeline, which see. What a cluster owns is the total that the trace states (a row
-- of the capacity table without a VC), else the sum over its VCs.
WITH totals AS (
    SELECT
        cluster,
        time,
        sum(CAST(running_jobs AS DECIMAL(38, 6))) AS running_jobs,
        sum(CAST(pending_jobs AS DECIMAL(38, 6))) AS pending_jobs,
        sum(CAST(running_gpus AS DECIMAL(38, 6))) AS running_gpus,
        sum(CAST(pending_gpus AS DECIMAL(38, 6))) AS pending_gpus,
        sum(CAST(capacity_gpus AS DECIMAL(38, 6))) AS summed_gpus
    FROM gpu_timeline
    GROUP BY cluster, time
),

stated AS (
    SELECT cluster, time, gpu_count
    FROM capacity
    WHERE vc IS NULL AND gpu_count IS NOT NULL
)

SELECT
    t.time,
    t.cluster,
    CAST(t.running_jobs AS DOUBLE) AS running_jobs,
    CAST(t.pending_jobs AS DOUBLE) AS pending_jobs,
    CAST(t.running_gpus AS DOUBLE) AS running_gpus,
    CAST(t.pending_gpus AS DOUBLE) AS pending_gpus,
    CAST(coalesce(s.gpu_count, t.summed_gpus) AS DOUBLE) AS capacity_gpus
FROM totals AS t
ASOF LEFT JOIN stated AS s ON t.cluster = s.cluster AND t.time >= s.time
ORDER BY t.time, t.cluster NULLS LAST
