-- title: Fragmentation of free GPUs
-- question: Could a large job use the GPUs that are free?
-- paper: Philly Section 3.1 (ATC'19)
-- tables: jobs, attempts, placements
-- needs: placement
-- tenant: none
-- param step_s: 0 | time between the moments looked at [s]; 0: as short as a page can show the trace
-- param capacity: observed {observed, listed} | GPUs of a node: the largest number any source shows, or the node list
-- param events: away {away, ignored} | nodes that node_events says are out of service: no capacity, or as if there
-- column time: UTC | a moment, every step_s
-- column cluster: text | the cluster
-- column vc: text | NULL: VCs share the nodes, so that free GPUs belong to none of them
-- column free_gpus: GPUs | GPUs that no attempt holds
-- column whole_free_nodes: nodes | nodes of which no GPU is held
-- column largest_gang: GPUs | the largest gang that would fit on the fewest nodes that can hold it
-- rule:
-- The state at each moment, changes at that moment included. A gang wants the fewest nodes that can hold it, so the
-- largest that fits fills all wholly free nodes and the best of the others. An attempt that still runs holds its GPUs
-- to the end of the trace. A node that node_events says is down, drained or in maintenance has no free GPU then, so
-- that free_gpus over what the cluster has in queuing/cluster_timeline is the idle share. Attempts with another unknown
-- start or end hold nothing, and so do placements on nodes of unknown size.
SELECT time, cluster, CAST(NULL AS VARCHAR) AS vc, free_gpus, whole_free_nodes, largest_gang
FROM free_gpus
ORDER BY time, cluster NULLS LAST
