-- title: Time between failures of a node, by cause
-- question: How long does a node work until it fails, and are nodes alike?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- column cause: text | 'all', or the cause in a word that is the same for every source; unknown where none was given
-- column nodes: nodes | nodes that were watched
-- column failed_nodes: nodes | those of them that failed
-- column failures: failures | failures after time in which the node worked
-- column node_hours: hours | time in which nodes worked, summed, also that which no failure ended
-- column mean_h: hours | node_hours / failures; NULL without a failure
-- column p10_h: hours | by which one in ten had failed, by Kaplan-Meier; NULL where so many did not
-- column p50_h: hours | the same for half of them
-- column exponential_aic: AIC | of one constant rate for all nodes; NULL here and below with fewer than 20 failures
-- column weibull_aic: AIC | of a rate that falls or rises since the node came back
-- column weibull_shape: 1 | below 1 the rate falls, above 1 it rises
-- column weibull_shape_low: 1 | low end of its 95 % interval, by the profile likelihood
-- column weibull_shape_high: 1 | high end of its 95 % interval
-- column gamma_aic: AIC | of nodes whose constant rates are gamma distributed
-- column rate_spread: 1 | standard deviation of these rates / their mean; 0 where nodes are alike
-- column two_kinds_aic: AIC | of good and bad nodes, each with a constant rate
-- column bad_share: share | bad nodes / nodes
-- column bad_mean_h: hours | mean time between failures of a bad node
-- column good_mean_h: hours | mean time between failures of a good node; NULL where these never fail
-- column preferred: text | exponential, weibull, gamma or two_kinds: which law the failures speak for
-- rule:
-- A failure is an event whose state is down, or drained for a cause that is a fault: neither maintenance nor unknown.
-- Failures of a node that overlap or adjoin are one. Each cause is a process of its own on every node: its clock starts
-- with the log, or when the node is back from the last failure by that cause, and is cut off by the end of the log
-- (right-censored). Nodes that never failed count with the whole log, as far as the table nodes names them. The log is
-- the time of failures/node_availability. How long a node had worked when the log began is unknown, and taken as 0: this
-- is right for a constant rate, and pulls the Weibull shape towards 1 where nodes fail rarely. A failure at the first
-- moment of the log counts as none. One that goes on ends the time before it, and no other begins.
-- Quantiles are those of Kaplan and Meier (1958), over the times of all nodes. All laws are fitted to the same times by
-- maximum likelihood, so that their AICs compare: less is better. The gamma law is that of negative binomial numbers of
-- failures (Greenwood and Yule, 1920). The preferred one has the least AIC, if that is less than the exponential one's
-- by 4 (Burnham and Anderson, 2002), else it is the exponential one. Times of nodes that differ look as if the rate
-- fell; the laws of differing nodes see that long times come from the same nodes, and the Weibull law does not.
-- 'all' is listed first, then causes by their number of events.
SELECT
    cause,
    nodes,
    failed_nodes,
    failures,
    node_hours,
    mean_h,
    p10_h,
    p50_h,
    exponential_aic,
    weibull_aic,
    weibull_shape,
    weibull_shape_low,
    weibull_shape_high,
    gamma_aic,
    rate_spread,
    two_kinds_aic,
    bad_share,
    bad_mean_h,
    good_mean_h,
    preferred
FROM times_between_failures
ORDER BY place
