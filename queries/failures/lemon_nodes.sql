-- title: Nodes that fail too often (lemons)
-- question: Which nodes are lemons, and how certain is it?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param times: 2 | a lemon exceeds this many times the cluster's failure rate
-- param least: 0.95 | minimum probability for calling a node a lemon
-- column node_id: text | the node
-- column cluster: text | its cluster; NULL when unknown
-- column rack: text | its rack; NULL when unknown
-- column failures: failures | failures that ended a time in which the node worked
-- column worked_h: hours | time in which the node worked
-- column expected_failures: failures | worked_h times the cluster's rate
-- column failures_per_1000_d: 1/1000 d | failures / worked_h, per 1,000 days; NULL if the node never worked
-- column shrunk_per_1000_d: 1/1000 d | expected rate of the node, given the records of all nodes
-- column shrunk_low: 1/1000 d | lower end of that rate's 95 % interval
-- column shrunk_high: 1/1000 d | upper end of the interval
-- column probability: 0..1 | probability that the node's rate is above `times` times the cluster's
-- column lemon: true or false | whether probability is at least `least`
-- rule:
-- Failures and the times between them are those of failures/time_between, over all causes. The record of a node with
-- few failures is mostly noise, so its rate is shrunk towards that of the other nodes: the shorter the record, the
-- more. The nodes' rates are assumed to be gamma distributed, with shape a and mean m estimated by maximum likelihood
-- over all nodes, so the number of failures is negative binomial. Given k failures in T hours, the rate of a node is
-- gamma distributed with shape a + k and mean (a + k) / (a / m + T). This is empirical Bayes (Robbins, 1956; Carlin and
-- Louis, 2000). The interval and the probability come from that distribution. If nodes do not differ (a is unbounded),
-- every node has the cluster's rate, and none is a lemon. The cluster's rate is all failures / all hours. Repeated
-- failures after an unsuccessful repair count like any others. Unlike failures/by_node, this query uses records of
-- machines, not of jobs. Sorted by probability, most likely first.
SELECT
    node_id,
    cluster,
    rack,
    failures,
    worked_h,
    expected_failures,
    failures_per_1000_d,
    shrunk_per_1000_d,
    shrunk_low,
    shrunk_high,
    probability,
    probability >= $least AS lemon
FROM node_rates
ORDER BY probability DESC NULLS LAST, shrunk_per_1000_d DESC NULLS LAST, node_id
