"""Drain nodes that fail more often than bad luck explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import Finding, Guideline, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import share_of

if TYPE_CHECKING:
    from tracekit.guidelines.evidence import Evidence

__all__ = ["GUIDELINE"]

_LEVEL = 0.05
_COLUMNS = ("node_id", "attempts", "failed_attempts", "expected_failed_attempts", "adjusted_p_value")


def _find(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/by_node")
    nodes = answer.frame
    suspects = nodes.filter(pl.col("adjusted_p_value") <= _LEVEL)
    attempts, failed = int(suspects["attempts"].sum()), int(suspects["failed_attempts"].sum())
    expected = float(suspects["expected_failed_attempts"].sum())
    share = share_of(failed, attempts)
    ends = [None if end is None else end * attempts - expected for end in (share.low, share.high)]
    return Finding(
        {
            "suspect_nodes": Number(float(len(suspects)), len(nodes)),
            "excess_failures": Number(failed - expected, attempts, *ends),
            "failed_share": share,
        },
        notes=(
            *answer.notes,
            (
                "Failures that come in clusters, such as one job failing again and again on one node, make a good node "
                "look bad: look at the jobs before the node is drained."
            ),
        ),
        rows=tuple(suspects.select(_COLUMNS).iter_rows(named=True)),
        rows_title="Suspect nodes",
    )


GUIDELINE = Guideline(
    id="drain-nodes",
    title="Drain suspect nodes",
    question="Which nodes fail more often than if all were alike?",
    measures=(
        Measure("suspect_nodes", "nodes that fail more often than bad luck explains", "nodes", "nodes"),
        Measure(
            "excess_failures", "failed attempts there beyond what was to be expected", "attempts", "attempts there"
        ),
        Measure("failed_share", "share of the attempts there that failed", "share", "attempts there"),
    ),
    thresholds=(
        Threshold("suspect_nodes", "at least", 1, "adjusted p-value of at most 0.05 (Holm, 1979)"),
        Threshold("excess_failures", "at least", 3, "ours: fewer are not worth a look"),
    ),
    finding=(
        "{suspect_nodes} fail more often than chance explains: {failed_share} of the attempts there failed, "
        "{excess_failures} more than expected."
    ),
    find=_find,
    advice=(
        "Drain these nodes, run the vendor's GPU diagnostics and a bandwidth test, and look at Xid and ECC messages; "
        "bring back those that pass, and count failures by node from then on."
    ),
    cost="The GPUs of these nodes are missing while they are tested.",
    risk="A user whose jobs fail and always land there makes a good node suspect.",
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
        "Holm (1979) and the exact tests named in failures/by_node",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): infrastructure failures",
    ),
    tables=("jobs", "attempts", "placements"),
    needs=("placement", "statuses"),
    least_n=2,
    no_trial=(
        "The replay knows no failures of nodes; the failures beyond the expected number are the most that is saved."
    ),
)
