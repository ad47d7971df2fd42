-- title: Fragmentation of free GPUs
-- question: Could a large job use the free GPUs?
-- paper: Philly Section 3.1 (ATC'19)
-- tables: jobs, attempts, placements
-- needs: placement
-- tenant: none
-- param step_s: 0 | time between the evaluated moments [s], or 0 for the shortest that a page can show
-- param capacity: observed {observed, listed} | source of a node's GPU count: the largest number in any source, or the node list
-- param events: away {away, ignored} | whether nodes that node_events lists as out of service have no capacity (away) or count as present (ignored)
-- column time: UTC | a moment, every step_s
-- column cluster: text | the cluster
-- column vc: text | NULL, because {tenant.many} share the nodes, so no {tenant.one} owns the free GPUs
-- column free_gpus: GPUs | GPUs that no attempt uses
-- column whole_free_nodes: nodes | nodes whose GPUs are all free
-- column largest_gang: GPUs | the largest multi-GPU job that would fit on the fewest nodes for its size
-- rule:
-- Each row is the state at one moment, including changes at that moment. A multi-GPU job is assumed to need the fewest
-- nodes that fit it, so the largest job that fits fills all entirely free nodes and the best of the others. An attempt
-- that still runs keeps its GPUs to the end of the trace. A node that node_events lists as down, drained or in
-- maintenance has no free GPUs during that time, so free_gpus over the capacity in queuing/cluster_timeline is the idle
-- share. Other attempts with an unknown start or end take no GPUs, and neither do placements on nodes of unknown size.
SELECT time, cluster, CAST(NULL AS VARCHAR) AS vc, free_gpus, whole_free_nodes, largest_gang
FROM free_gpus
ORDER BY time, cluster NULLS LAST
