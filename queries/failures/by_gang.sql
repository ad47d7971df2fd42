-- title: Probability that a node failure hits a multi-node job, by job size
-- question: How likely is a multi-node job to lose a node within a given time?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param within_h: 24 | how long the job runs, in hours
-- param placed: neighbours {neighbours, random} | sets of nodes that are neighbours by cluster, rack and name, or random sets
-- param sets: 400 | maximum number of sets of each size
-- column nodes: nodes | nodes of the set: 1, 2, 4 and so on
-- column gpus: GPUs | GPUs of these nodes, mean over the sets; NULL if any node's GPUs are unknown
-- column sets: sets | number of sets of this size
-- column failures: failures | mean number of failures per set in the log
-- column hit_share: share | share of moments after which a node of the set fails within within_h
-- column independent_share: share | the same if the set's nodes failed independently
-- column alike_share: share | the same if all nodes failed independently at one rate: 1 - exp(-n * t / mean)
-- column nodes_per_hit: nodes | nodes of the set that fail within within_h, if any does
-- column independent_nodes_per_hit: nodes | the same if they failed independently of each other
-- rule:
-- Failures are those of failures/time_between, over all causes. Let t be within_h. Each moment at least t before the
-- end of the log is a hit if a failure on one of the set's nodes begins within t. hit_share is the share of hits,
-- averaged over the sets. It describes a job that could have run on these nodes, whether or not one did and even if
-- some nodes were down; a node out of service adds no failure. Neighbours are consecutive nodes in the order of
-- cluster, rack and name (n2 before n10), where the first node follows the last; sets begin at even distances. Random
-- sets start from each node equally often and are the same in each run. independent_share is the mean over the same sets
-- of 1 - product(1 - p), with p the hit_share of each node alone. alike_share is 1 - exp(-n * t / mean_h), with the
-- mean_h of failures/time_between. If failures occur together, or soon after each other on one node, they hit fewer
-- jobs but more nodes of each. hit_share is then below the other two shares, and nodes_per_hit above
-- independent_nodes_per_hit. Only alike_share ignores that nodes fail again soon after a failure. The values are NULL
-- if the log is not longer than t.
SELECT
    nodes,
    gpus,
    sets,
    failures,
    hit_share,
    independent_share,
    alike_share,
    nodes_per_hit,
    independent_nodes_per_hit
FROM gang_hits
ORDER BY nodes
