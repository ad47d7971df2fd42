-- title: Load of each cluster through time
-- question: When is the cluster full, and how much is waited for then?
-- paper: Helios Fig 3 (SC'21)
-- tables: jobs, attempts
-- also: capacity, nodes
-- needs: queueing
-- param step_s: 0 | length of the intervals over which is averaged [s]; 0: as short as a page can show the trace
-- param quota: auto {auto, capacity, peak, p95} | peak and p95: where no total is stated, the sum of these proxies of the VCs
-- param gpus: 0.0 | GPUs that the cluster has, for a trace of one cluster; 0: those of its node list, or what the trace states
-- param events: away {away, ignored} | nodes that node_events says are out of service: no capacity, or as if there
-- column time: UTC | start of the interval
-- column cluster: text | the cluster
-- column running_jobs: jobs | mean number of running attempts
-- column pending_jobs: jobs | mean number of waiting jobs
-- column running_gpus: GPUs | mean number of GPUs held
-- column pending_gpus: GPUs | mean number of GPUs that waiting jobs ask for
-- column capacity_gpus: GPUs | what the cluster has at the start of the interval; NULL when unknown
-- rule:
-- The sums over the VCs of queuing/timeline, which see. What a cluster has are the GPUs of its node list, else the total
-- that the trace states (a row of the capacity table without a VC), else the sum of the quotas of its VCs, which are no
-- machines, else the most GPUs that its jobs held at one time. GPUs of nodes that node_events says are down, drained or
-- in maintenance, and that no job holds, are not among them then. The note beside the result names the source.
SELECT
    time,
    cluster,
    CAST(sum(CAST(running_jobs AS DECIMAL(38, 6))) AS DOUBLE) AS running_jobs,
    CAST(sum(CAST(pending_jobs AS DECIMAL(38, 6))) AS DOUBLE) AS pending_jobs,
    CAST(sum(CAST(running_gpus AS DECIMAL(38, 6))) AS DOUBLE) AS running_gpus,
    CAST(sum(CAST(pending_gpus AS DECIMAL(38, 6))) AS DOUBLE) AS pending_gpus,
    max(cluster_gpus) AS capacity_gpus
FROM gpu_timeline
GROUP BY cluster, time
ORDER BY time, cluster NULLS LAST
