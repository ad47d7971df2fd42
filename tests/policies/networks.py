"""Small networks for tests, with simple numbers for links and traffic, and helpers for audited runs and their logs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.replay.auditor import audit
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.assumptions.sections import LinkSpeeds, TrafficFamily
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["assert_alike", "ideal", "run", "takes", "talking"]

_NEVER_SLOW = LinkSpeeds(gpu_gbit=1e12, node_gbit=1e12, spine_gbit=1e12)


def talking(
    *, message_mb: float = 125.0, compute_s: float = 1.0, sharing: Any = "always", extra: float = 0.0, b: float = 0.3
) -> Models:
    """Return models in which a ring of two GPUs takes 0 s in a node, 1 s in a rack and 2 s over the spine.

    A message of 125 MB has 1 Gbit, so 2 GPUs send 1 Gbit each over links of 1 Gbit/s. A rack of two nodes has one link
    to the spine.
    """
    models = load_models()
    links = replace(
        models.links,
        levels={"default": LinkSpeeds(gpu_gbit=1e12, node_gbit=1.0, spine_gbit=0.5)},
        oversubscription=4.0,
    )
    family = TrafficFamily(share=1.0, message_mb=message_mb, compute_s=compute_s)
    return replace(
        models,
        links=links,
        traffic=replace(models.traffic, families={"one": family}),
        contention=replace(models.contention, sharing=sharing, extra=extra),
        spread=replace(models.spread, levels={"default": b}),
    )


def ideal() -> Models:
    """Return models in which neither links nor nodes slow a gang down."""
    models = load_models()
    family = TrafficFamily(share=1.0, message_mb=0.0, compute_s=1.0)
    return replace(
        models,
        links=replace(models.links, levels={"default": _NEVER_SLOW}),
        traffic=replace(models.traffic, families={"one": family}),
        spread=replace(models.spread, levels={"default": 0.0}),
    )


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models | None = None, seed: int = 0) -> Outcome:
    """Return a policy's outcome after the auditor found no broken law."""
    scenario = Scenario.make(jobs, cluster, models=models, seed=seed)
    outcome = scenario.run(policy, log=True).outcome
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []
    return outcome


def takes(outcome: Outcome) -> list[tuple[int, int, int, int]]:
    """Return rows (time [ms], job, node, GPUs) of the GPUs that jobs take, in order."""
    assert outcome.log is not None
    return sorted(
        (int(r["time_ms"]), int(r["job"]), int(r["node"]), int(r["value"]) // 1000)
        for r in outcome.log
        if r["kind"] == LOG_KINDS["take"]
    )


def assert_alike(jobs: Jobs, cluster: Cluster, one: str, other: str, models: Models | None = None) -> None:
    """Compare two policies job by job, and node by node."""
    first, second = (run(jobs, cluster, policy, models) for policy in (one, other))
    for name in ("first_start_ms", "end_ms", "preemptions", "nodes_spanned", "unschedulable"):
        assert getattr(first, name).tolist() == getattr(second, name).tolist(), name
    assert takes(first) == takes(second)
