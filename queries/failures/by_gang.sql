-- title: Chance that a gang is hit, by its size
-- question: How likely does a gang lose a node within a given time?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param within_h: 24 | how long the gang runs, in hours
-- param placed: neighbours {neighbours, random} | sets of nodes side by side, by cluster, rack and name, or random ones
-- param sets: 400 | most sets of each size
-- column nodes: nodes | nodes of the gang: 1, 2, 4 and so on
-- column gpus: GPUs | GPUs of these nodes, the mean over the sets; NULL where those of a node are unknown
-- column sets: sets | sets of so many nodes that were looked at
-- column failures: failures | failures of a set in the log, the mean
-- column hit_share: share | moments after which a node of the set fails within the time, of all
-- column independent_share: share | the same if the nodes of the set failed independently of each other
-- column alike_share: share | the same if all nodes of the log failed alike and independently: 1 - exp(-n * t / mean)
-- column nodes_per_hit: nodes | nodes of the set that fail within the time, where one does
-- column independent_nodes_per_hit: nodes | the same if they failed independently of each other
-- rule:
-- Failures are those of failures/time_between, by all causes together. Each moment of the log from which the time t still
-- lies in the log is looked at: it is a hit where a failure of one of the set's nodes begins within t. hit_share is the
-- share of such moments, the mean over the sets. This asks what would have hit a gang there, whether or not one ran, and
-- whether or not all nodes were up: a node that is away adds no failure.
-- Side by side: nodes in the order of cluster, rack and name (n2 before n10), the last followed by the first; sets begin
-- at even distances. Random sets, of which each node begins as many, are the same in each run.
-- independent_share is the mean over the same sets of 1 - product(1 - p), with p the hit_share of each node alone.
-- alike_share is 1 - exp(-n * t / mean_h), with the mean_h of failures/time_between. Failures that come together, or
-- soon after each other on one node, hit fewer gangs, and more nodes of each: hit_share is then below the other two, and
-- nodes_per_hit above independent_nodes_per_hit. alike_share alone misses it where a node fails again soon.
-- NULL where the log is not longer than t.
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
