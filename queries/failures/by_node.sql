-- title: Failed attempts by node
-- question: Which nodes fail more often than bad luck explains?
-- paper: infrastructure failures of Philly (ATC'19); tests of Fisher and of Przyborowski and Wilenski; Holm
-- tables: jobs, attempts, placements
-- needs: placement, statuses
-- param rule: stated {stated, retried} | attempts with a status of failure, or also those of unknown end tried again
-- param failures: all {all, node_fail} | every failed attempt, or those that the source blames on the node
-- param exposure: sized_attempts {sized_attempts, attempts, node_hours} | what a node's risk grows with
-- column node_id: text | the machine
-- column attempts: attempts | attempts on this node whose end and run time are known
-- column failed_attempts: attempts | those of them that failed
-- column failed_share: share | failed_attempts / attempts
-- column node_hours: hours | run time of these attempts, summed
-- column mean_hours_between_failures: hours | node_hours / failed_attempts; NULL without a failure
-- column expected_failed_attempts: attempts | failures that the node would have if all were alike
-- column p_value: 0..1 | chance of at least so many failures if all nodes were alike
-- column adjusted_p_value: 0..1 | the same, with regard to the number of nodes looked at
-- rule:
-- An attempt on several nodes counts on each of them, since nothing says which one failed. Attempts of unknown end or
-- run time are out; a note counts them. Failed is failed, timeout, node_fail or out_of_memory (view attempt_outcomes).
-- Equal risk means that all attempts of one size class have the same chance to fail, wherever they run: expected is the
-- sum over the classes of F * n / N, for a node with n of the N attempts of the class, of which F failed. p_value is the
-- chance of at least so many failures, one-sided and exact: a sum of hypergeometric numbers (Fisher; Mantel, Haenszel).
-- exposure=attempts takes all classes as one. exposure=node_hours means equal risk in every hour: expected = F * h / H,
-- p_value from binomial(F, h / H) (Przyborowski and Wilenski, 1940). Most failures come early in a run, so nodes with
-- many short attempts look bad by the hour.
-- adjusted_p_value is Holm's (1979): naming all nodes with at most 0.05 names any good one in at most 5 of 100 traces.
-- Failures that come in clusters break the assumption: a job or user that fails time after time on one node makes that
-- node look bad. failures=node_fail counts those alone that the source blames on the node.
-- Listed by p_value, the most suspect first.
SELECT
    node_id,
    attempts,
    failed_attempts,
    failed_share,
    node_hours,
    mean_hours_between_failures,
    expected_failed_attempts,
    p_value,
    adjusted_p_value
FROM node_failures
ORDER BY p_value NULLS LAST, node_id
