-- title: Failed attempts by node
-- question: On which nodes do attempts fail more often than chance explains?
-- paper: infrastructure failures of Philly (ATC'19); Mantel and Haenszel (1959); Przyborowski and Wilenski; Holm
-- tables: jobs, attempts, placements
-- needs: placement, statuses
-- tenant: compared
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- param failures: all {all, node_fail} | every failed attempt, or only those that the source blames on the node
-- param exposure: trials {trials, sized_attempts, attempts, node_hours} | what a node's risk grows with: trials as in the rule, its attempts of each size class, all its attempts, or their hours
-- column node_id: text | the node
-- column attempts: attempts | attempts on this node whose end and run time are known
-- column failed_attempts: attempts | of these, attempts that failed
-- column timed_out_attempts: attempts | of the failed attempts, those with status timeout
-- column failed_share: share | failed_attempts / attempts
-- column node_hours: hours | total run time of these attempts
-- column mean_hours_between_failures: hours | node_hours / failed_attempts; NULL without a failure
-- column trials: trials | what is tested: trials as defined in the rule, or the attempts
-- column failed_trials: trials | of these, attempts that failed
-- column expected_failed_trials: trials | failures expected at the risk of the nodes that are not suspect
-- column p_value: 0..1 | chance of at least this many failed trials at that risk
-- column adjusted_p_value: 0..1 | the same, adjusted for the number of nodes tested
-- column adjusted_p_value_without_one_user: 0..1 | the same without the user with the most failures there; NULL if adjusted_p_value is above 0.05
-- column suspect: true or false | whether both are at most 0.05, as far as they are known
-- rule:
-- An attempt on several nodes counts on each of them, because no source says which node failed. Attempts with an
-- unknown end or run time are excluded; a note counts them. Failed is failed, timeout, node_fail or out_of_memory (view
-- attempt_outcomes). Each cause counts once: a trial is the first attempt on the node in a user's session, and a job
-- has one trial per node, its first there. In a session each attempt begins within an hour of the one before; it ends
-- with the UTC day. Only similar trials are compared: trials of one stratum have the same cluster, tenant, size class
-- and user, and the same job group (name and group) if that has ten trials. A user's smaller groups are combined, and
-- so are the users of a tenant with fewer than ten trials; in such a combination a group, or a user, has one trial per
-- node. Which attempts are trials, and in which stratum, does not depend on how they ended. Equal risk means that all
-- trials of one stratum have the same chance to fail, wherever they run. The expected number is the sum over the strata
-- of F * n / N, for a node with n trials, if the nodes that are not suspect have N trials and F of them failed. p_value
-- is the chance of at least this many failures, one-sided and exact: a sum of hypergeometric numbers (Fisher; Mantel
-- and Haenszel, 1959; Gart, 1970). Suspect nodes are compared with those that are not suspect. adjusted_p_value is
-- Holm's. A node is suspect if it is at most 0.05, both with all users and without the user with the most failures
-- there (NULL if no user is known, and by the hour). Suspects are removed from the nodes used for comparison, and all
-- nodes are tested again until no suspect is added (ten times at most). If all nodes are equally good, at most 5 of 100
-- traces name any node. This fails if jobs of several users fail for one reason on the same node again and again.
-- exposure=sized_attempts takes each attempt as a trial and each size class as a stratum, and exposure=attempts takes
-- all classes as one stratum: failures that come in clusters then make good nodes suspect. exposure=node_hours means
-- equal risk in every hour: expected = F * h / H, p_value from binomial(F, h / H) (Przyborowski and Wilenski, 1940).
-- Most failures come early in a run, so nodes with many short attempts look bad by the hour. failures=node_fail counts
-- only failures that the source blames on the node. Sorted by p_value, most suspect first.
SELECT
    node_id,
    attempts,
    failed_attempts,
    timed_out_attempts,
    failed_share,
    node_hours,
    mean_hours_between_failures,
    trials,
    failed_trials,
    expected_failed_trials,
    p_value,
    adjusted_p_value,
    adjusted_p_value_without_one_user,
    suspect
FROM node_failures
ORDER BY p_value NULLS LAST, node_id
