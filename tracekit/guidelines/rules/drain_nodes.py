"""Drain nodes that fail more often than bad luck explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.characterize.timelines.node_failures import adjust, excess_among_attempts
from tracekit.guidelines.interface import Finding, Guideline, LackingError, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import share_of

if TYPE_CHECKING:
    from tracekit.array_types import Ints
    from tracekit.guidelines.evidence import Evidence

__all__ = ["GUIDELINE"]

_LEVEL = 0.05
_KINDS = 7
"""Size classes, those of unknown size included, as in failures/by_node."""
_WITHOUT = "adjusted_p_value_without_one_user"
_COLUMNS = ("node_id", "attempts", "failed_attempts", "expected_failed_attempts", "adjusted_p_value", _WITHOUT)

_BY_USER = """
SELECT
    p.node_id,
    j."user" AS who,
    coalesce(o.class_order, 6) AS kind,
    count(*) AS attempts,
    count(*) FILTER (WHERE o.failed) AS failed_attempts
FROM (SELECT DISTINCT job_id, attempt, node_id FROM placements WHERE node_id IS NOT NULL) AS p
INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt
LEFT JOIN jobs AS j ON p.job_id = j.job_id
WHERE o.failed IS NOT NULL AND o.run_s >= 0
GROUP BY p.node_id, j."user", coalesce(o.class_order, 6)
"""
"""The attempts that failures/by_node counts, by user."""

_WITH_GPUS = "SELECT node_id FROM node_gpus WHERE observed > 0"


def _find(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/by_node")
    excess = answer.frame.filter(pl.col("adjusted_p_value") <= _LEVEL)
    suspects = _of_many_users(evidence, answer.frame, excess) if len(excess) else excess
    attempts, failed = int(suspects["attempts"].sum()), int(suspects["failed_attempts"].sum())
    expected = float(suspects["expected_failed_attempts"].sum())
    share = share_of(failed, attempts)
    ends = [None if end is None else end * attempts - expected for end in (share.low, share.high)]
    left = len(excess) - len(suspects)
    none = "No node fails more often than chance explains"
    none += ", once the failures of its most frequent user are left out." if left else "."
    bare = bool(len(suspects)) and not _have_gpus(evidence, suspects)
    return Finding(
        {
            "suspect_nodes": Number(float(len(suspects)), len(answer.frame)),
            "excess_failures": Number(failed - expected, attempts, *ends),
            "failed_share": share,
            "one_user_nodes": Number(float(left), len(answer.frame)),
        },
        notes=(
            *answer.notes,
            (
                "A node is named only where its failures are more than chance explains also when the user with most "
                "failures there is left out, on this node and on all others; jobs of unknown users count as those of "
                "one user."
            ),
            (
                "Failures that come in clusters, such as one job failing again and again on one node, make a good node "
                "look bad: look at the jobs before the node is drained."
            ),
        ),
        rows=tuple(suspects.select(_COLUMNS).iter_rows(named=True)) if len(suspects) else (),
        rows_title="Suspect nodes",
        text="" if len(suspects) else none,
        advice=_ADVICE_WITHOUT_GPUS if bare else "",
        cost=_COST_WITHOUT_GPUS if bare else "",
    )


def _of_many_users(evidence: Evidence, nodes: pl.DataFrame, excess: pl.DataFrame) -> pl.DataFrame:
    """Return the nodes in excess that are so without their most frequent user too, with that p-value.

    The p-value of each is taken anew without the attempts, on all nodes, of the user who failed most often there; then
    all are adjusted for the number of nodes, as before.

    Raises
    ------
    LackingError
        The log names no users.
    """
    tried = evidence.sql(_BY_USER)
    if tried["who"].null_count() == len(tried):
        raise LackingError("The log names no users, so that a bad node looks like a user whose jobs fail there.")
    everything = _by_kind(tried)
    p_values = dict(nodes.select("node_id", "p_value").iter_rows())
    by_node, by_user = (tried.partition_by(column, as_dict=True) for column in ("node_id", "who"))
    for node in excess["node_id"]:
        own = by_node[(node,)]
        most = own.group_by("who").agg(pl.col("failed_attempts", "attempts").sum())
        user = most.sort("failed_attempts", "attempts", "who", descending=[True, True, False])["who"][0]
        here = _by_kind(own) - _by_kind(own.filter(pl.col("who").eq_missing(user)))
        others = everything - _by_kind(by_user[(user,)]) - here
        p_values[node] = float(excess_among_attempts(*np.stack([here, others], axis=1))[0])
    adjusted = adjust(np.array(list(p_values.values()), np.float64))
    again = pl.DataFrame({"node_id": list(p_values), _WITHOUT: adjusted})
    return excess.join(again, on="node_id", how="left", maintain_order="left").filter(pl.col(_WITHOUT) <= _LEVEL)


def _by_kind(tried: pl.DataFrame) -> Ints:
    """Return the failed attempts and the attempts by size class, shape (2, 7)."""
    kinds = tried["kind"].to_numpy()
    columns = (tried[name].to_numpy() for name in ("failed_attempts", "attempts"))
    return np.stack([np.bincount(kinds, weights=values, minlength=_KINDS) for values in columns]).astype(np.int64)


def _have_gpus(evidence: Evidence, suspects: pl.DataFrame) -> bool:
    with_gpus = evidence.sql(_WITH_GPUS, also=("nodes", "placements", "gpu_utilization"))
    return bool(len(suspects.join(with_gpus, on="node_id", how="semi")))


_ADVICE_WITHOUT_GPUS = (
    "Drain these nodes, run the vendor's hardware diagnostics, and look at the kernel's messages on memory, disks and "
    "network; bring back those that pass, and count failures by node from then on."
)
_COST_WITHOUT_GPUS = "These nodes are missing while they are tested."


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
    risk="Several users whose jobs fail and always land there still make a good node suspect.",
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
