-- title: Failures that come together
-- question: Do nodes fail together more often than chance explains?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param window_min: 60 | longest time between the begins of two failures that come together, in minutes
-- param shuffles: 199 | random worlds that the p-value is counted over
-- column cause: text | 'all', or the cause in a word that is the same for every source; unknown where none was given
-- column nodes_of: text | which two nodes make a pair: any, those of one cluster, or those of one rack
-- column chance: text | what it is compared with: times (moved at random) or racks (dealt out anew)
-- column failures: failures | failures of the nodes that can make such a pair
-- column pairs: pairs | failures of two such nodes that began within the window of each other
-- column expected_pairs: pairs | the same by chance
-- column ratio: 1 | pairs / expected_pairs; NULL where none is expected
-- column p_value: 0..1 | chance of at least so many pairs
-- column groups: groups | times in which two such nodes or more failed together
-- column largest_group: nodes | nodes of the widest of them; 0 without one
-- column grouped_failures: failures | failures in them
-- rule:
-- Failures are those of failures/time_between: overlapping ones of a node are one, each cause is counted apart. A pair
-- is two failures of two nodes that began at most the window apart; ten nodes that fail at once are 45 pairs. A group is
-- failures of which each begins within the window of the one before, on two nodes or more.
-- chance=times: nodes that fail independently of each other, at any time of the log alike. expected_pairs is exact: the
-- pairs of failures of two such nodes, at whatever times, times 2 * w - w^2, where w is the window as a share of the log.
-- p_value counts the worlds with at least so many pairs, this one included, when all failures of each node are moved by
-- one random offset around the end of the log, which keeps their number and the times between them. More pairs than
-- that can also mean that the rate of all nodes changes with time: a bad month, or hours in which people look.
-- chance=racks leaves the times as they are: racks are dealt out anew among the nodes whose rack is known, so that what
-- all nodes share does not count. expected_pairs is the pairs of any two of these nodes times the share of pairs of nodes
-- that have one rack. A rack is one of its cluster; rows on racks need nodes.rack, rows on clusters two clusters.
-- The random worlds are the same in each run. 'all' is listed first, then causes by their number of events.
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
