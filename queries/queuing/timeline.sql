-- title: Running and waiting over time
-- question: When does each {tenant.one} run and wait, and for how many GPUs?
-- paper: Helios Fig 3 and 4 (SC'21)
-- tables: jobs, attempts
-- needs: queueing
-- param step_s: 3600 | length of the averaging intervals [s]
-- param quota: auto {auto, capacity, peak, p95} | source of capacity_gpus: the recorded quota or, as a proxy, the {tenant.one}'s peak or 95th percentile
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column time: UTC | start of the interval
-- column cluster: text | the cluster
-- column vc: text | the tenant; NULL for jobs without one
-- column running_jobs: jobs | mean number of running attempts
-- column pending_jobs: jobs | mean number of waiting jobs
-- column running_gpus: GPUs | mean number of GPUs allocated
-- column pending_gpus: GPUs | mean number of GPUs that waiting jobs ask for
-- column capacity_gpus: GPUs | mean number of GPUs that the {tenant.one} may use; NULL when unknown
-- rule:
-- Means over each interval, weighted by time: running_gpus times the length of an interval is the GPU time allocated in
-- it. Every {tenant.one} has a row for every interval from the first to the last moment of the trace. Attempts that
-- still run, and jobs that still wait, count up to the end of the trace. Attempts and jobs with other unknown ends are
-- excluded, and a note counts them. If there are no {tenant.many}, capacity_gpus is the capacity of the cluster: see
-- queuing/cluster_timeline.
SELECT time, cluster, vc, running_jobs, pending_jobs, running_gpus, pending_gpus, capacity_gpus
FROM gpu_timeline
ORDER BY time, cluster NULLS LAST, vc NULLS LAST
