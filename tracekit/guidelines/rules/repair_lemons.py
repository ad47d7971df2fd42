"""Repair or replace nodes that go out of service much more often than the others."""

from __future__ import annotations

from tracekit.calibration.losses import LossChange
from tracekit.guidelines.interface import Evidence, Finding, Guideline, LossTrial, Measure, Number, Practice, Threshold
from tracekit.text import shorten

_COLUMNS = (
    "node_id",
    "cluster",
    "rack",
    "failures",
    "worked_h",
    "expected_failures",
    "shrunk_per_1000_d",
    "shrunk_low",
    "shrunk_high",
    "probability",
)

_NAMED = 3
"""Most nodes named in a sentence."""
_SENTENCE = "({nodes_share} of all nodes) had {failures_share} of the failures, {excess_failures} beyond the usual."


def _find(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/lemon_nodes")
    lemons = answer.frame.filter("lemon")
    every = int(answer.frame["failures"].sum())
    failed, expected = int(lemons["failures"].sum()), float(lemons["expected_failures"].sum())
    return Finding(
        {
            "lemons": Number(float(len(lemons)), len(answer.frame)),
            "excess_failures": Number(failed - expected, failed),
            "failures_share": Number(failed / every if every else None, every),
            "nodes_share": Number(len(lemons) / len(answer.frame) if len(answer.frame) else None, len(answer.frame)),
        },
        notes=(
            *answer.notes,
            (
                "A lemon's failure rate is above twice the cluster's with a probability of 95 % or more, given "
                "the record of all nodes. This guideline is about outages of machines; drain-nodes is about jobs "
                "that fail on a node."
            ),
        ),
        rows=tuple(lemons.select(_COLUMNS).iter_rows(named=True)) if len(lemons) else (),
        rows_title="Lemon nodes",
        text=_naming(lemons["node_id"].to_list())
        if len(lemons)
        else "No node fails more than twice as often as all nodes do, as far as its record shows.",
    )


def _naming(nodes: list[str]) -> str:
    """Return the sentence of the guideline with the names of the worst nodes."""
    # A name is text, even with braces.
    names = [shorten(node, 30).replace("{", "{{").replace("}", "}}") for node in nodes[:_NAMED]]
    more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
    return f"{', '.join(names)}{more} {_SENTENCE}"


def _changes(finding: Finding) -> tuple[LossChange, ...]:
    names = frozenset(str(row["node_id"]) for row in finding.rows)
    return (LossChange("without the outages of these nodes", without=names),)


GUIDELINE = Guideline(
    id="repair-lemons",
    title="Repair or replace nodes that fail too often (lemons)",
    question="Which nodes go out of service much more often than the others?",
    measures=(
        Measure("lemons", "nodes whose failure rate is above twice the cluster's", "nodes", "nodes"),
        Measure(
            "excess_failures", "failures there beyond the number expected at the cluster's rate", "failures", "failures"
        ),
        Measure("failures_share", "their share of all failures", "share", "failures"),
        Measure("nodes_share", "their share of all nodes", "share", "nodes"),
    ),
    thresholds=(
        Threshold("lemons", "at least", 1, "probability of at least 0.95 by empirical Bayes (failures/lemon_nodes)"),
        Threshold("excess_failures", "at least", 3, "ours: fewer are not worth checking, as in drain-nodes"),
    ),
    finding=f"{{lemons}} {_SENTENCE}",
    find=_find,
    advice=(
        "Take these nodes out of service, run the vendor's full diagnostics and a burn-in under load, and replace "
        "what fails. Return a node to the vendor if it comes back a third time. Until then use it only for short "
        "single-node jobs."
    ),
    cost="These nodes are unavailable while they are tested, and parts and labour cost money.",
    risk=(
        "A node may fail often because of its jobs or its surroundings: its rack, its switch, its users. It then "
        "fails again after the repair. The effect assumes a repair that helps for good."
    ),
    practice=Practice(
        slurm=(
            "'scontrol update nodename=N state=drain reason=lemon'; or its own feature, 'Features=lemon', which "
            "large jobs exclude, and a low 'Weight' elsewhere, because nodes of the lowest weight are taken first."
        ),
        kubernetes=(
            "'kubectl cordon' and 'kubectl drain'; or a taint 'lemon=true:NoSchedule' that short single-node jobs "
            "tolerate. Lower 'nominalQuota' of Kueue during that time."
        ),
        yarn=(
            "Put the node into the file of 'yarn.resourcemanager.nodes.exclude-path' and call "
            "'yarn rmadmin -refreshNodes -g'; or give it a node label that only one queue may use."
        ),
    ),
    sources=(
        "Robbins (1956), Carlin and Louis (2000), and the notes on them in failures/lemon_nodes",
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)",
    ),
    tables=("jobs", "node_events"),
    least_n=2,
    trial=LossTrial(_changes),
)
