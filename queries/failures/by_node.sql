-- title: Failed attempts by node
-- question: On which nodes do attempts fail more often than bad luck explains?
-- paper: infrastructure failures of Philly (ATC'19); Mantel and Haenszel (1959); Przyborowski and Wilenski; Holm
-- tables: jobs, attempts, placements
-- needs: placement, statuses
-- tenant: compared
-- param rule: stated {stated, retried} | attempts with a status of failure, or also those of unknown end tried again
-- param failures: all {all, node_fail} | every failed attempt, or those that the source blames on the node
-- param exposure: trials {trials, sized_attempts, attempts, node_hours} | what a node's risk grows with
-- column node_id: text | the machine
-- column attempts: attempts | attempts on this node whose end and run time are known
-- column failed_attempts: attempts | those of them that failed
-- column timed_out_attempts: attempts | those of failed_attempts that ran out of time: status timeout
-- column failed_share: share | failed_attempts / attempts
-- column node_hours: hours | run time of these attempts, summed
-- column mean_hours_between_failures: hours | node_hours / failed_attempts; NULL without a failure
-- column trials: trials | what is tested: with exposure=trials as in the rule, else the attempts
-- column failed_trials: trials | those of them that failed
-- column expected_failed_trials: trials | failures at the risk of the nodes that are not suspect
-- column p_value: 0..1 | chance of at least so many failed trials at that risk
-- column adjusted_p_value: 0..1 | the same, with regard to the number of nodes looked at
-- column adjusted_p_value_without_one_user: 0..1 | without the user with most failures there; NULL above 0.05 before
-- column suspect: true or false | whether both are at most 0.05, as far as they are known
-- rule:
-- An attempt on several nodes counts on each of them, since nothing says which one failed. Attempts of unknown end or
-- run time are out; a note counts them. Failed is failed, timeout, node_fail or out_of_memory (view attempt_outcomes).
-- One cause counts once: a trial is the first attempt on the node in a session of the user's, and a job has one trial a
-- node, its first there. A session is attempts of which each begins within an hour of the one before; it ends with the
-- UTC day. Like is compared with like: trials of one stratum have the same cluster, tenant, size class and user, and the
-- same job group (name and group) where that has ten trials. A user's groups with fewer are taken together, and so are
-- the users of a tenant with fewer than ten; there a group, or a user, has one trial a node. Which attempts are trials,
-- and in which stratum, does not depend on how they ended.
-- Equal risk means that all trials of one stratum have the same chance to fail, wherever they run: expected is the sum
-- over the strata of F * n / N, for a node with n trials where the nodes that are not suspect have N, of which F failed.
-- p_value is the chance of at least so many failures, one-sided and exact: a sum of hypergeometric numbers (Fisher;
-- Mantel and Haenszel, 1959; Gart, 1970), for a suspect node against those that are not. adjusted_p_value is Holm's.
-- A node is suspect where it is at most 0.05, with all users and without the one with most failures there (NULL where no
-- user is known, and by the hour). Suspects are left out of what the nodes are compared with, and all are tested again
-- until there are no more (ten times at most). Where all nodes are alike, any is named in at most 5 of 100 traces;
-- several users whose jobs fail for one reason on the same node again and again break this.
-- exposure=sized_attempts takes each attempt as a trial and each size class as a stratum, exposure=attempts all classes
-- as one: failures that come in clusters then make good nodes suspect. exposure=node_hours means equal risk in every
-- hour: expected = F * h / H, p_value from binomial(F, h / H) (Przyborowski and Wilenski, 1940). Most failures come
-- early in a run, so nodes with many short attempts look bad by the hour. failures=node_fail counts those alone that the
-- source blames on the node.
-- Listed by p_value, the most suspect first.
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
