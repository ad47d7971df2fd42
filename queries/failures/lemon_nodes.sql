-- title: Nodes that fail much more often than the others
-- question: Which nodes are lemons, and how sure is that?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- param times: 2 | how many times the cluster's rate of failures a lemon exceeds
-- param least: 0.95 | least probability of that, for a node to be called a lemon
-- column node_id: text | the node
-- column cluster: text | its cluster; NULL when unknown
-- column rack: text | its rack; NULL when unknown
-- column failures: failures | failures after time in which the node worked
-- column worked_h: hours | that time
-- column expected_failures: failures | worked_h times the cluster's rate
-- column failures_per_1000_d: 1/1000 d | failures / worked_h; NULL where the node never worked
-- column shrunk_per_1000_d: 1/1000 d | mean of the node's rate, given the record of all nodes
-- column shrunk_low: 1/1000 d | low end of the 95 % interval of that rate
-- column shrunk_high: 1/1000 d | high end of it
-- column probability: 0..1 | that the node's rate is above `times` times the cluster's
-- column lemon: true or false | whether probability is at least `least`
-- rule:
-- Failures and the time between them are those of failures/time_between, by all causes together. A node with few
-- failures is told by chance, so its rate is drawn towards that of the others, by as much as its own record is thin:
-- rates of nodes are taken as gamma distributed, with shape a and mean m by maximum likelihood over all nodes, so that
-- the number of failures is negative binomial. Given k failures in T hours, the rate of a node is gamma distributed with
-- shape a + k and mean (a + k) / (a / m + T): empirical Bayes (Robbins, 1956; Carlin and Louis, 2000). The interval and
-- the probability are of that distribution. Where nodes are alike (a has no limit), each has the cluster's rate, and
-- none is a lemon. The cluster's rate is all failures / all hours. A repair that did not help makes failures follow
-- each other on one node, which counts against it like any others. Unlike failures/by_node this looks at machines, not
-- at jobs. Listed by probability, the most likely first.
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
