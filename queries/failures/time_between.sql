-- title: Time between failures of a node, by cause
-- question: How long does a node run until it fails, and do nodes differ?
-- paper: none
-- tables: node_events
-- also: nodes, jobs, attempts
-- column cause: text | 'all' or the cause, with the same name for every source; unknown if the source gives none
-- column nodes: nodes | nodes observed
-- column failed_nodes: nodes | of these, nodes that failed
-- column failures: failures | failures that ended a time in which a node worked
-- column node_hours: hours | total time in which nodes worked, including time not ended by a failure
-- column mean_h: hours | node_hours / failures; NULL if there are none
-- column p10_h: hours | time after which one node in ten had failed, by Kaplan-Meier; NULL if fewer did
-- column p50_h: hours | the same for half of the nodes
-- column exponential_aic: AIC | AIC of one constant rate for all nodes; NULL, as in the columns below, with fewer than 20 failures
-- column weibull_aic: AIC | AIC of a rate that falls or rises with the time since the node came back
-- column weibull_shape: 1 | the rate falls if the shape is below 1 and rises if it is above 1
-- column weibull_shape_low: 1 | lower end of the shape's 95 % interval, by profile likelihood
-- column weibull_shape_high: 1 | upper end of this interval
-- column gamma_aic: AIC | AIC of constant rates that are gamma distributed over nodes
-- column rate_spread: 1 | standard deviation of these rates / their mean; 0 if nodes do not differ
-- column two_kinds_aic: AIC | AIC of good and bad nodes, each with a constant rate
-- column bad_share: share | bad nodes / nodes
-- column bad_mean_h: hours | mean time between failures of a bad node
-- column good_mean_h: hours | mean time between failures of a good node; NULL if good nodes never fail
-- column preferred: text | exponential, weibull, gamma or two_kinds: the law that best describes the failures
-- rule:
-- A failure is an event whose state is down, or drained for a known cause other than maintenance. Failures of a node
-- that overlap or adjoin count as one. Each cause has its own process on every node. Its clock starts with the log, or
-- when the node is back from the last failure with that cause, and stops at the end of the log (right-censored). Nodes
-- that never failed count with the whole log if the nodes table lists them. The log is the observed time of
-- failures/node_availability. A node's working time before the log is unknown and assumed to be 0. This is correct for
-- a constant rate; if nodes fail rarely, it pulls the Weibull shape towards 1. A failure at the first moment of the log
-- does not count. After a failure without an end, no new time begins. Quantiles follow Kaplan and Meier (1958), over
-- the times of all nodes. All laws are fitted to the same times by maximum likelihood, so their AICs can be compared; a
-- lower AIC is better. The gamma law gives negative binomial numbers of failures (Greenwood and Yule, 1920). The
-- preferred law is the one with the lowest AIC if that is at least 4 below the exponential law's (Burnham and Anderson,
-- 2002), and otherwise the exponential law. If nodes differ, their pooled times look as if the rate fell over time. The
-- laws with differing nodes account for this; the Weibull law does not. 'all' comes first, followed by the causes in
-- order of their number of events.
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
