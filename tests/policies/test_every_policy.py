"""Every registered policy, with its defaults, on one small mixed trace."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.policies.resized import as_switched
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.outages.asked import checkpoints_for, read_checkpoints
from tracekit.replay.outages.away import with_outages
from tracekit.replay.outages.failures import Outages
from tracekit.replay.registry import named_policy, policies
from tracekit.replay.results.tables import jobs_table, timeline_table
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

TENANTS = ["a", "b", "c"]
MODELS = ["A100", "V100"]
_random = np.random.default_rng(11)
_SIZES = [*_random.choice([1, 1, 1, 2, 4, 8, 16], 79).tolist(), 64]
JOBS = make_jobs(
    [(i * 7.5, size, float(_random.integers(1, 300))) for i, size in enumerate(_SIZES)],
    vc=[TENANTS[i % 3] for i in range(80)],
    user=[f"u{i % 7}" for i in range(80)],
    model=[MODELS[i % 2] if i % 5 == 0 else None for i in range(80)],
    name=[i % 4 for i in range(80)],
    utilization=[(i % 10 + 1) / 10 for i in range(80)],
)
CLUSTER = make_cluster([8] * 5, model=["A100"] * 3 + ["V100"] * 2, quota={"a": 20, "b": 16, "c": 16})
POSSIBLE = JOBS.devices <= 16
ELASTIC = (
    *("afs-l", "elastic-fifo", "elastic-srjf", "elastic-tiresias", "elasticflow", "ffdl-optimizer", "heet-like"),
    *("lyra", "ones-like", "optimus", "pollux-lite", "powerflow-like"),
)
SHARING = ("antman", "gandiva", "lucid", "miger-like", "muri", "sjf-ffs", "sjf-bsbf")
"""Policies that give jobs other numbers of GPUs than they ask for."""


def outages_of(seed: int) -> Outages:
    """Sixty times away of nodes, most of which stop what runs there; some at the same time."""
    random = np.random.default_rng(seed)
    since = random.integers(0, 1200, 60) * 1000
    return Outages(
        random.integers(0, CLUSTER.nodes, 60).astype(np.int32),
        since,
        since + random.integers(1, 60, 60) * 1000,
        random.random(60) < 0.8,
        1e6,
        "drawn for a test",
    )


@functools.cache
def recorded_jobs() -> Jobs:
    """Return the jobs with the schedule of `fifo` as that of the log."""
    fifo = run_engine(JOBS, CLUSTER, "fifo")
    known = np.where(fifo.first_start_ms < 0, -1, 0)
    return replace(
        JOBS,
        recorded_start_ms=np.where(known, -1, fifo.first_start_ms),
        recorded_end_ms=np.where(known, -1, fifo.end_ms),
    )


def run(policy: str) -> Outcome:
    return run_engine(recorded_jobs(), CLUSTER, policy)


@functools.cache
def outcome_of(policy: str) -> Outcome:
    """Return the outcome of a policy, for all tests that only read it."""
    return run(policy)


@pytest.mark.parametrize("policy", list(policies()))
def test_every_policy_ends_all_jobs_that_can_run(policy: str) -> None:
    outcome = outcome_of(policy)
    assert (outcome.end_ms >= 0).tolist() == POSSIBLE.tolist()
    assert (outcome.first_start_ms[POSSIBLE] >= JOBS.submit_ms[POSSIBLE]).all()
    assert (outcome.end_ms[POSSIBLE] > outcome.first_start_ms[POSSIBLE]).all()


@pytest.mark.thorough
@pytest.mark.parametrize("policy", list(policies()))
def test_every_policy_does_the_same_again(policy: str) -> None:
    one, two = outcome_of(policy), run(policy)
    assert jobs_table(JOBS, one).equals(jobs_table(JOBS, two))
    assert timeline_table(JOBS, one).equals(timeline_table(JOBS, two))
    if one.log is not None and two.log is not None:
        assert one.log.tobytes() == two.log.tobytes()


@pytest.mark.thorough
@pytest.mark.parametrize("policy", list(policies()))
def test_every_mechanism_can_run_again(policy: str) -> None:
    jobs, models, chosen = recorded_jobs(), load_models(), named_policy(policy)
    cluster = chosen.borrowed(CLUSTER, jobs, models)
    mechanism = chosen.mechanism(jobs, cluster, models, 0)
    one, two = (simulate(jobs, cluster, assign(jobs, cluster), mechanism) for _ in range(2))
    assert jobs_table(jobs, one).equals(jobs_table(jobs, two))


# What the recorded schedule leaves out is not even submitted; its laws are those of its own tests.
@pytest.mark.parametrize("policy", [name for name in policies() if name != "recorded"])
def test_every_policy_keeps_the_laws(policy: str) -> None:
    outcome = outcome_of(policy)
    if outcome.log is None or not len(outcome.log):
        pytest.skip("its mechanism writes no log")
    gang = "elastic" if policy in ELASTIC else "exact"
    residents = 4 if policy == "muri" else 2 if policy in SHARING else 1
    cluster = CLUSTER
    if policy == "lyra":
        # It chooses which of the servers on loan leave, and when is held to its own tests.
        cluster = as_switched(named_policy(policy).borrowed(CLUSTER, JOBS, load_models()), outcome)
    assert audit(JOBS, cluster, outcome.log, outcome, gang=gang, residents=residents) == []


# What keeps books of its own of running jobs or nodes, which do not know of a job that a node stops.
_WITHOUT_OUTAGES = (
    *("bestfit", "clustering", "dotproduct", "fgd", "packing", "random"),  # parts of GPUs
    *("hived", "lyra", "power-cap", "power-down", "price-aware-like", "recorded", "sjf-bsbf", "sjf-ffs"),
)


@pytest.mark.parametrize("policy", [name for name in policies() if name not in _WITHOUT_OUTAGES])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_every_policy_lets_jobs_go_on_after_an_outage(policy: str, seed: int) -> None:
    outages = outages_of(seed)
    scenario = Scenario.make(JOBS, with_outages(CLUSTER, outages))
    scenario = replace(scenario, outages=outages, saving=read_checkpoints("interval=20,cost=2,restart=5"))
    result = scenario.run(policy, log=True)
    outcome, cluster = result.outcome, result.cluster
    assert cluster is not None
    assert outcome.losses is not None
    assert outcome.losses.restarts.sum() > 0
    assert (outcome.end_ms >= 0).tolist() == POSSIBLE.tolist()
    saving = checkpoints_for(scenario.saving, JOBS, cluster, outages.rate_per_ms)
    assert outcome.log is not None
    assert audit(JOBS, cluster, outcome.log, outcome, gang="elastic", residents=8, checkpoints=saving) == []


@pytest.mark.parametrize("policy", [name for name in _WITHOUT_OUTAGES if name != "recorded"])
def test_who_cannot_be_replayed_with_outages_says_so(policy: str) -> None:
    scenario = replace(Scenario.make(JOBS, with_outages(CLUSTER, outages_of(0))), outages=outages_of(0))
    with pytest.raises(UsageError, match="does not support outages"):
        scenario.run(policy)
