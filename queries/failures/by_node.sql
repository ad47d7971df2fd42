-- title: Failed attempts by node
-- question: On which nodes do attempts fail more often than by chance?
-- paper: infrastructure failures of Philly (ATC'19); Mantel and Haenszel (1959); Przyborowski and Wilenski; Holm
-- tables: jobs, attempts, placements
-- needs: placement, statuses
-- tenant: compared
-- param rule: stated {stated, retried} | attempts with a failure status; retried adds attempts with an unknown end that were tried again
-- param failures: all {all, node_fail} | every failed attempt, or only those that the source blames on the node
-- param exposure: trials {trials, sized_attempts, attempts, node_hours} | measure of a node's exposure: trials as in the rule, its attempts of each size class, all its attempts, or their hours
-- column node_id: text | the node
-- column attempts: attempts | attempts on this node whose end and run time are known
-- column failed_attempts: attempts | of these attempts, those that failed
-- column timed_out_attempts: attempts | of the failed attempts, those with status timeout
-- column failed_share: share | failed_attempts / attempts
-- column node_hours: hours | total run time of these attempts
-- column mean_hours_between_failures: hours | node_hours / failed_attempts; NULL if nothing failed
-- column trials: trials | what is tested: the trials defined in the rule, or all attempts
-- column failed_trials: trials | of these trials, those that failed
-- column expected_failed_trials: trials | number expected at the risk of the nodes that are not suspect
-- column p_value: 0..1 | probability of at least this many failed trials at that risk
-- column adjusted_p_value: 0..1 | the same, adjusted for the number of nodes tested
-- column adjusted_p_value_without_one_user: 0..1 | adjusted_p_value without the user with the most failures on the node; NULL if adjusted_p_value is above 0.05
-- column suspect: true or false | whether both adjusted p-values are at most 0.05, as far as they are known
-- rule:
-- An attempt on several nodes counts on each of them, because sources do not say which node failed. Attempts with an
-- unknown end or run time are excluded; a note counts them. An attempt failed if its status is failed, timeout,
-- node_fail or out_of_memory (view attempt_outcomes). To count each cause only once, a trial is the first attempt on
-- the node in a user's session, and a job has at most one trial per node: its first attempt there. In a session, each
-- attempt begins within an hour of the previous one; a session ends with the UTC day. Only similar trials are compared:
-- trials of one stratum have the same cluster, tenant, size class and user, and the same job group (name and group) if
-- that group has ten trials. A user's smaller groups are combined, and so are a tenant's users with fewer than ten
-- trials. In such a combination, a group or a user has one trial per node. The choice of trials and strata does not
-- depend on how attempts ended. Equal risk means that all trials of one stratum fail with the same probability on any
-- node. A node with n trials is expected to have the sum over the strata of F * n / N failures, if F of the N trials on
-- normal nodes failed. p_value is the probability of at least this many failures, one-sided and exact, as a sum of
-- hypergeometric numbers (Fisher; Mantel and Haenszel, 1959; Gart, 1970). Suspect nodes are compared with normal ones.
-- adjusted_p_value follows Holm. A node is suspect if this value is at most 0.05, both with all users and without the
-- user with the most failures there (NULL if no user is known, or with exposure=node_hours). Suspects are removed from
-- the comparison, and all nodes are tested again until no suspect is added (at most ten times). If all nodes are
-- equally good, a node is called suspect in at most 5 of 100 traces. This guarantee fails if jobs of several users
-- repeatedly fail on the same node for one reason. With exposure=sized_attempts, each attempt is a trial and each size
-- class a stratum; with exposure=attempts, all classes are one stratum. Clustered failures then make good nodes
-- suspect. exposure=node_hours assumes equal risk in every hour: expected = F * h / H, and p_value comes from
-- binomial(F, h / H) (Przyborowski and Wilenski, 1940). Most failures occur early in a run, so nodes with many short
-- attempts look bad by this measure. failures=node_fail counts only failures that the source blames on the node. Sorted
-- by p_value, most suspect first.
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
