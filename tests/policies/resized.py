"""What the tests of policies that resize jobs share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.replay.auditor import audit
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.outcome import LOG_KINDS, Outcome
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ARRAYS", "assert_lawful", "elastic", "run", "same", "takes"]

ARRAYS = ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations", "unschedulable")


def elastic(**changes: Any) -> Models:
    """The built-in models, with changes to M8; linear speed unless told otherwise."""
    models = load_models()
    return replace(models, elastic=replace(models.elastic, **{"sigma": 0.0} | changes))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models | None = None, seed: int = 0) -> Outcome:
    """Replay with the log; speed is linear unless models are given."""
    made = Scenario.make(jobs, cluster, models=elastic() if models is None else models, seed=seed)
    return made.run(policy, log=True).outcome


def takes(outcome: Outcome) -> list[tuple[int, int, int]]:
    """Return (time [s], job, GPUs) of each start, or start anew on another number of GPUs."""
    found: list[list[int]] = []
    assert outcome.log is not None
    for row in outcome.log.tolist():
        if row[1] == LOG_KINDS["start"]:
            found.append([row[0] // 1000, row[2], 0])
        elif row[1] == LOG_KINDS["take"]:
            found[-1][2] += row[5] // 1000
    return [(a, b, c) for a, b, c in found]


def same(one: Outcome, two: Outcome) -> None:
    """Hold two runs to the same schedule."""
    for name in ARRAYS:
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


def assert_lawful(jobs: Jobs, cluster: Cluster, outcome: Outcome) -> None:
    """Hold a run to the auditor's laws, gangs of any size."""
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic") == []
