"""Helpers shared by tests of policies that resize jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.replay.auditor import audit
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.outcome import LOG_KINDS, Outcome
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["ARRAYS", "as_switched", "assert_all_work_done", "assert_lawful", "elastic", "run", "same", "takes"]

ARRAYS = ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations", "unschedulable")


def elastic(**changes: Any) -> Models:
    """Return the built-in models with changes to M8, with linear speed by default."""
    models = load_models()
    return replace(models, elastic=replace(models.elastic, **{"sigma": 0.0} | changes))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models | None = None, seed: int = 0) -> Outcome:
    """Replay with the event log. Speed is linear unless models are given."""
    made = Scenario.make(jobs, cluster, models=elastic() if models is None else models, seed=seed)
    return made.run(policy, log=True).outcome


def takes(outcome: Outcome) -> list[tuple[int, int, int]]:
    """Return (time [s], job, GPUs) of each start or restart with another number of GPUs."""
    found: list[list[int]] = []
    assert outcome.log is not None
    for row in outcome.log.tolist():
        if row[1] == LOG_KINDS["start"]:
            found.append([row[0] // 1000, row[2], 0])
        elif row[1] == LOG_KINDS["take"]:
            found[-1][2] += row[5] // 1000
    return [(a, b, c) for a, b, c in found]


def assert_all_work_done(jobs: Jobs, outcome: Outcome) -> None:
    """Check that each job's logged time at its speeds, minus overhead, equals its work, so none ends early or late.

    Because ends are whole milliseconds, a job may do up to a millisecond of work too much at its last speed.
    """
    assert outcome.log is not None
    n = len(jobs)
    done, rate, since, owed, last = ([0] * n for _ in range(5))
    for time, kind, job, _, _, value in outcome.log.tolist():
        if kind not in {LOG_KINDS[name] for name in ("start", "rate", "stop", "finish")}:
            continue
        if rate[job]:
            waited = min(time - since[job], owed[job])
            done[job] += (time - since[job] - waited) * rate[job]
            owed[job] -= waited
        since[job], last[job] = time, rate[job]
        rate[job] = value if kind in {LOG_KINDS["start"], LOG_KINDS["rate"]} else 0
        owed[job] += value if kind == LOG_KINDS["stop"] else 0
    for job, work_ms in enumerate(jobs.work_ms.tolist()):
        if outcome.end_ms[job] >= 0:
            assert 0 <= done[job] - work_ms * 1_000_000 <= max(last[job] - 1, 0), job


def same(one: Outcome, two: Outcome) -> None:
    """Check that two runs have the same schedule."""
    for name in ARRAYS:
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


def as_switched(cluster: Cluster, outcome: Outcome) -> Cluster:
    """Return the cluster with nodes that join and leave as the log says."""
    assert outcome.log is not None
    log = outcome.log[np.isin(outcome.log["kind"], (LOG_KINDS["up"], LOG_KINDS["down"]))]
    return replace(
        cluster,
        change_ms=log["time_ms"].astype(np.int64),
        change_node=log["node"].astype(np.int32),
        change_up=(log["kind"] == LOG_KINDS["up"]).astype(np.int8),
    )


def assert_lawful(jobs: Jobs, cluster: Cluster, outcome: Outcome) -> None:
    """Check a run against the auditor's laws, with gangs of any size."""
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic") == []
