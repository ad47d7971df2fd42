-- title: Nodes that fail together
-- question: Do nodes fail together more often than by chance?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param window_min: 60 | longest time between the starts of two failures that count as simultaneous, in minutes
-- param shuffles: 199 | number of random shuffles used for the p-value
-- column cause: text | 'all' or the cause, with the same name for every source; unknown if the source gives none
-- column nodes_of: text | nodes that can form a pair: any two, two of one cluster, or two of one rack
-- column chance: text | what is randomized for comparison: times (moved at random) or racks (reassigned at random)
-- column failures: failures | failures of nodes that can be part of such a pair
-- column pairs: pairs | pairs of failures of two such nodes that began at most the window apart
-- column expected_pairs: pairs | pairs expected by chance
-- column ratio: 1 | pairs / expected_pairs; NULL if none is expected
-- column p_value: 0..1 | probability of at least this many pairs by chance
-- column groups: groups | times at which two or more such nodes failed together
-- column largest_group: nodes | nodes of the largest group; 0 if there is none
-- column grouped_failures: failures | failures in these groups
-- rule:
-- Failures are those of failures/time_between: overlapping failures of a node count as one, and each cause is counted
-- separately. A pair is two failures, on two different nodes, that began at most the window apart; ten nodes that fail
-- at once form 45 pairs. A group has failures on two or more nodes, and each failure begins within the window of the
-- one before. chance=times compares with nodes that fail independently of each other and at a constant rate over the
-- log. expected_pairs is exact: the number of failure pairs on two such nodes, at any time, times 2 * w - w^2, where w
-- is the window as a share of the log. For p_value, all failures of a node are moved by one random offset and wrap
-- around at the end of the log, which keeps their number and the times between them. p_value is the share of shuffles,
-- including the real log, with at least as many pairs. More pairs than expected can also mean that the failure rate of
-- all nodes changes over time, for example in a bad month, or because failures are noticed only at certain hours.
-- chance=racks keeps the times and reassigns racks at random among the nodes with a known rack, so effects on all nodes
-- do not count. expected_pairs is the number of pairs of any two of these nodes times the share of node pairs that are
-- in one rack. A rack belongs to one cluster. Rows for racks need nodes.rack, and rows for clusters need two clusters.
-- The shuffles are the same in each run. 'all' comes first, followed by the causes in order of their number of events.
SELECT
    cause,
    nodes_of,
    chance,
    failures,
    pairs,
    expected_pairs,
    pairs / nullif(expected_pairs, 0) AS ratio,
    p_value,
    groups,
    largest_group,
    grouped_failures
FROM faults_at_once
ORDER BY place, nodes_of, chance DESC
