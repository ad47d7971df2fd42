"""Drain nodes that fail more often than bad luck explains."""

from __future__ import annotations

import polars as pl

from tracekit.characterize.suspects import LEVEL
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Measure,
    Number,
    Practice,
    Threshold,
)
from tracekit.guidelines.intervals import share_of

_COLUMNS = (
    "node_id",
    "attempts",
    "failed_attempts",
    "trials",
    "failed_trials",
    "expected_failed_trials",
    "adjusted_p_value",
    "adjusted_p_value_without_one_user",
)

_WITH_GPUS = """
SELECT DISTINCT p.node_id
FROM placements AS p
INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt
INNER JOIN jobs AS j ON p.job_id = j.job_id
INNER JOIN node_gpus AS g ON p.node_id = g.node_id
WHERE o.failed AND g.observed > 0 AND j.gpu_count IS DISTINCT FROM 0
"""
"""GPU nodes with failed jobs that may have used GPUs."""


def _find(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/by_node")
    excess = answer.frame.filter(pl.col("adjusted_p_value") <= LEVEL)
    suspects = excess.filter("suspect")
    if suspects["adjusted_p_value_without_one_user"].null_count():
        raise LackingError(
            "The log names no users, so a bad node cannot be distinguished from a user whose jobs fail there."
        )
    trials, failed = int(suspects["trials"].sum()), int(suspects["failed_trials"].sum())
    expected = float(suspects["expected_failed_trials"].sum())
    share = share_of(failed, trials)
    ends = [None if end is None else end * trials - expected for end in (share.low, share.high)]
    left = len(excess) - len(suspects)
    none = "No node fails more often than chance explains"
    none += ", if the failures of its most frequent user are left out." if left else "."
    advice, cost = _texts(evidence, suspects)
    return Finding(
        {
            "suspect_nodes": Number(float(len(suspects)), len(answer.frame)),
            "excess_failures": Number(failed - expected, trials, *ends),
            "failed_share": share,
            "one_user_nodes": Number(float(left), len(answer.frame)),
        },
        notes=(
            *answer.notes,
            *_lemons(evidence, suspects),
            (
                "A user's attempts on one node, each begun within an hour of the one before, count once, by the "
                "first of them. A job that is tried again there also counts once. So one broken script causes one "
                "failure, not many."
            ),
            (
                "Failures are compared within the same user, job group, tenant and size class, with those on "
                "nodes that are not suspect."
            ),
            (
                "A node is named only if chance does not explain its failures, even without the user with the "
                "most failures there, on this node and on all others; jobs of unknown users count as jobs of one "
                "user."
            ),
        ),
        rows=tuple(suspects.select(_COLUMNS).iter_rows(named=True)) if len(suspects) else (),
        rows_title="Suspect nodes",
        text="" if len(suspects) else none,
        advice=advice,
        cost=cost,
    )


def _lemons(evidence: Evidence, suspects: pl.DataFrame) -> list[str]:
    """Return which of the suspects also go out of service too often, if the log has outages."""
    if suspects.is_empty() or not evidence.trace.has("node_events"):
        return []
    lemons = evidence.query("failures/lemon_nodes").frame.filter("lemon")
    both = len(suspects.join(lemons, on="node_id", how="semi"))
    return [f"{both:,} of these {len(suspects):,} nodes also go out of service too often (repair-lemons)."]


def _texts(evidence: Evidence, suspects: pl.DataFrame) -> tuple[str, str]:
    """Return the advice and the cost; empty if the guideline's own texts fit all of these nodes."""
    if suspects.is_empty():
        return "", ""
    with_gpus = evidence.sql(_WITH_GPUS, also=("nodes", "gpu_utilization"))
    number = len(suspects.join(with_gpus, on="node_id", how="semi"))
    if number == len(suspects):
        return "", ""
    return (_ADVICE_WITH_SOME, _COST_WITHOUT_GPUS) if number else (_ADVICE_WITHOUT_GPUS, _COST_WITHOUT_GPUS)


_ADVICE_WITHOUT_GPUS = (
    "Drain these nodes, run the vendor's hardware diagnostics, and check the kernel messages about memory, disks "
    "and network. Bring back the nodes that pass, and count failures by node from then on."
)
_ADVICE_WITH_SOME = (
    "Drain these nodes, run the vendor's hardware diagnostics (with GPU diagnostics and a bandwidth test if the "
    "nodes have GPUs), and check the kernel messages. Bring back the nodes that pass, and count failures by node "
    "from then on."
)
_COST_WITHOUT_GPUS = "These nodes are unavailable while they are tested."


GUIDELINE = Guideline(
    id="drain-nodes",
    title="Drain suspect nodes",
    question="Which nodes fail more often than they would if all nodes were equal?",
    measures=(
        Measure("suspect_nodes", "nodes that fail more often than bad luck explains", "nodes", "nodes"),
        Measure(
            "excess_failures",
            "failed attempts there beyond the expected number, where a user's session counts once",
            "attempts",
            "attempts there, counted the same way",
        ),
        Measure(
            "failed_share",
            "share of the attempts there that failed, counted the same way",
            "share",
            "attempts there, counted the same way",
        ),
        Measure("one_user_nodes", "further nodes that do so only because of one user's failures", "nodes", "nodes"),
    ),
    thresholds=(
        Threshold("suspect_nodes", "at least", 1, "adjusted p-value of at most 0.05 (Holm, 1979)"),
        Threshold("excess_failures", "at least", 3, "ours: fewer are not worth checking"),
    ),
    finding=(
        "{suspect_nodes} failed too often: {failed_share} of the attempts there failed, {excess_failures} more "
        "than expected."
    ),
    find=_find,
    advice=(
        "Drain these nodes, run the vendor's GPU diagnostics and a bandwidth test, and check for Xid and ECC "
        "messages. Bring back the nodes that pass, and count failures by node from then on."
    ),
    cost="The GPUs of these nodes are unavailable while they are tested.",
    risk=(
        "A good node still looks suspect if jobs of several users fail for one reason and always land there. A "
        "bad node that only one user uses is not found."
    ),
    practice=Practice(
        slurm="'scontrol update nodename=N state=drain reason=...'; a HealthCheckProgram that does this automatically.",
        kubernetes=(
            "'kubectl cordon', and 'kubectl drain' if the pods may be stopped; node-problem-detector taints a "
            "node only if 'taintEnabled' is set for the problem. New pods then avoid the node, but Kueue still "
            "counts it in its quotas (topology-aware scheduling leaves cordoned nodes out): lower 'nominalQuota' "
            "for that time."
        ),
        yarn=(
            "'yarn rmadmin -refreshNodes -g' after you add the node to the file of "
            "'yarn.resourcemanager.nodes.exclude-path'; a script in 'yarn.nodemanager.health-checker.script.path' "
            "reports the node as unhealthy automatically."
        ),
    ),
    sources=(
        "Mantel and Haenszel (1959), Holm (1979), and the notes on them in failures/by_node",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): infrastructure failures",
    ),
    tables=("jobs", "attempts", "placements"),
    needs=("placement", "statuses"),
    least_n=2,
    no_trial=(
        "A simulation cannot show the gain, because these failures did not take the node down. The failures "
        "beyond the expected number are the most that can be avoided. repair-lemons tests what outages cost."
    ),
)
