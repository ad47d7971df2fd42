-- title: Load of each cluster over time
-- question: When is the cluster full, and how long is the queue then?
-- paper: Helios Fig 3 (SC'21)
-- tables: jobs, attempts
-- also: capacity, nodes
-- needs: queueing
-- param step_s: 0 | length of the averaging intervals [s], or 0 for the shortest that a page can show
-- param quota: auto {auto, capacity, peak, p95} | if no total is known, peak and p95 sum these proxies over the {tenant.many}
-- param gpus: 0.0 | GPUs of the cluster if the trace has only one, or 0 to take them from the node list or the trace
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column time: UTC | start of the interval
-- column cluster: text | the cluster
-- column running_jobs: jobs | mean number of running attempts
-- column pending_jobs: jobs | mean number of waiting jobs
-- column running_gpus: GPUs | mean number of GPUs allocated
-- column pending_gpus: GPUs | mean number of GPUs that waiting jobs ask for
-- column capacity_gpus: GPUs | the cluster's capacity at the start of the interval; NULL when unknown
-- rule:
-- Sums over the {tenant.many} of queuing/timeline (see there). A cluster's capacity is the number of GPUs in its node
-- list. If there is no list, the capacity is the total in the trace (a row of the capacity table without {tenant.a}).
-- Without a total, it is the sum of its {tenant.many}' quotas, which are not machines; without quotas, the most GPUs
-- that the cluster's jobs used at one time. Unused GPUs do not count while node_events lists their node as down,
-- drained or in maintenance. The note next to the result names the source.
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
