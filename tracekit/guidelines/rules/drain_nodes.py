"""Drain nodes that fail more often than bad luck explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.suspects import LEVEL
from tracekit.guidelines.interface import Finding, Guideline, LackingError, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import share_of

if TYPE_CHECKING:
    from tracekit.guidelines.evidence import Evidence

__all__ = ["GUIDELINE"]

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
"""Nodes with GPUs on which jobs failed that may have held some."""


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
    none += ", once the failures of its most frequent user are left out." if left else "."
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
                "A user's attempts on one node, of which each begins within an hour of the one before, count once, by "
                "the first of them, and so does a job that is tried again there: what one broken script loses is one "
                "failure, not many."
            ),
            (
                "Failures are compared within the same user, job group, tenant and size class, with those on the nodes "
                "that are not suspect."
            ),
            (
                "A node is named only where its failures are more than chance explains also when the user with most "
                "failures there is left out, on this node and on all others; jobs of unknown users count as those of "
                "one user."
            ),
        ),
        rows=tuple(suspects.select(_COLUMNS).iter_rows(named=True)) if len(suspects) else (),
        rows_title="Suspect nodes",
        text="" if len(suspects) else none,
        advice=advice,
        cost=cost,
    )


def _lemons(evidence: Evidence, suspects: pl.DataFrame) -> list[str]:
    """Return which of the suspects go out of service too often as well, where the log has outages."""
    if suspects.is_empty() or not evidence.trace.has("node_events"):
        return []
    lemons = evidence.query("failures/lemon_nodes").frame.filter("lemon")
    both = len(suspects.join(lemons, on="node_id", how="semi"))
    return [f"{both:,} of these {len(suspects):,} nodes also go out of service too often (repair-lemons)."]


def _texts(evidence: Evidence, suspects: pl.DataFrame) -> tuple[str, str]:
    """Return the advice and the cost, empty where the guideline's own speak of what all of these nodes have."""
    if suspects.is_empty():
        return "", ""
    with_gpus = evidence.sql(_WITH_GPUS, also=("nodes", "gpu_utilization"))
    number = len(suspects.join(with_gpus, on="node_id", how="semi"))
    if number == len(suspects):
        return "", ""
    return (_ADVICE_WITH_SOME, _COST_WITHOUT_GPUS) if number else (_ADVICE_WITHOUT_GPUS, _COST_WITHOUT_GPUS)


_ADVICE_WITHOUT_GPUS = (
    "Drain these nodes, run the vendor's hardware diagnostics, and look at the kernel's messages on memory, disks and "
    "network; bring back those that pass, and count failures by node from then on."
)
_ADVICE_WITH_SOME = (
    "Drain these nodes, run the vendor's hardware diagnostics, with those of the GPUs and a bandwidth test where there "
    "are some, and look at the kernel's messages; bring back those that pass, and count failures by node from then on."
)
_COST_WITHOUT_GPUS = "These nodes are missing while they are tested."


GUIDELINE = Guideline(
    id="drain-nodes",
    title="Drain suspect nodes",
    question="Which nodes fail more often than if all were alike?",
    measures=(
        Measure("suspect_nodes", "nodes that fail more often than bad luck explains", "nodes", "nodes"),
        Measure(
            "excess_failures",
            "failed attempts there beyond what was to be expected, those of one session of a user counted once",
            "attempts",
            "attempts there, counted so",
        ),
        Measure(
            "failed_share", "share of the attempts there that failed, counted so", "share", "attempts there, counted so"
        ),
        Measure("one_user_nodes", "more nodes that do so by the failures of one user alone", "nodes", "nodes"),
    ),
    thresholds=(
        Threshold("suspect_nodes", "at least", 1, "adjusted p-value of at most 0.05 (Holm, 1979)"),
        Threshold("excess_failures", "at least", 3, "ours: fewer are not worth a look"),
    ),
    finding=(
        "There are more failures than chance explains on {suspect_nodes}: {failed_share} of the attempts there failed, "
        "{excess_failures} more than expected."
    ),
    find=_find,
    advice=(
        "Drain these nodes, run the vendor's GPU diagnostics and a bandwidth test, and look at Xid and ECC messages; "
        "bring back those that pass, and count failures by node from then on."
    ),
    cost="The GPUs of these nodes are missing while they are tested.",
    risk=(
        "Several users whose jobs fail for one reason and always land there still make a good node suspect; a bad node "
        "that only one user uses is not found."
    ),
    practice=Practice(
        slurm="'scontrol update nodename=N state=drain reason=...'; a HealthCheckProgram that does it by itself.",
        kubernetes=(
            "'kubectl cordon', and 'kubectl drain' where the pods may be stopped; node-problem-detector taints a node "
            "only where 'taintEnabled' is set for the problem. New pods then keep away, but Kueue goes on counting "
            "the node in its quotas (topology-aware scheduling leaves cordoned nodes out): lower 'nominalQuota' for "
            "that time."
        ),
        yarn=(
            "'yarn rmadmin -refreshNodes -g' after the node is in the file of "
            "'yarn.resourcemanager.nodes.exclude-path'; a script in 'yarn.nodemanager.health-checker.script.path' "
            "reports the node unhealthy by itself."
        ),
    ),
    sources=(
        "Mantel and Haenszel (1959), Holm (1979), and what failures/by_node says of them",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): infrastructure failures",
    ),
    tables=("jobs", "attempts", "placements"),
    needs=("placement", "statuses"),
    least_n=2,
    no_trial=(
        "Cannot tell by replay: jobs that fail on a node that stays in service are no outage that it could leave out; "
        "the failures beyond the expected number are the most that is saved. repair-lemons tries what outages cost."
    ),
)
