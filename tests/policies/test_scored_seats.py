"""Policies that give jobs of one GPU the place with the least score: by hand, and where nobody shares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same, sharing_jobs
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

POLICIES = ("schedtune-like", "iadeep", "interference-greedy")


@tried(4, 10, jobs=sharing_jobs(typed=False), cluster=clusters())
@pytest.mark.parametrize("policy", POLICIES)
def test_alone_on_a_gpu_it_is_first_in_first_out(policy: str, jobs: Jobs, cluster: Cluster) -> None:
    fifo = run_engine(jobs, cluster, "fifo,scan=skip")
    assert same(run_engine(jobs, cluster, f"{policy},residents=1"), fifo)


@settings(max_examples=10, deadline=None)
@given(jobs=sharing_jobs(), cluster=clusters())
def test_shortest_first_alone(jobs: Jobs, cluster: Cluster) -> None:
    sjf = run_engine(jobs, cluster, "sjf,scan=skip")
    assert same(run_engine(jobs, cluster, "interference-greedy,key=sjf,residents=1"), sjf)


@tried(4, 8, jobs=sharing_jobs(), cluster=clusters())
@pytest.mark.parametrize(
    ("policy", "residents"),
    [
        ("schedtune-like,residents=3,memory=blind,crash=3,overhead=lucid", 3),
        ("schedtune-like", 4),
        ("iadeep,kappa=0.8,tune=7,cap=2", 3),
        ("interference-greedy,wait=off", 2),
        ("interference-greedy", 2),
    ],
)
def test_the_laws_hold(policy: str, residents: int, jobs: Jobs, cluster: Cluster) -> None:
    lawful(jobs, cluster, policy, residents)


# ---- schedtune-like ----


def test_a_job_goes_where_it_and_those_there_end_soonest() -> None:
    # GPUs with jobs of u = 1 and 0.2, 100 s left each. A job of u = 0.5 and 100 s: beside the first both have 0.75,
    # 133 + 33; beside the second 0.95, 105 + 5.
    jobs = make_jobs([(0, 1, 100), (0, 1, 100), (0, 1, 100)], utilization=[1.0, 0.2, 0.5])
    outcome = lawful(jobs, make_cluster((2,)), "schedtune-like", 4)
    # Both end after 100 / 0.95 s.
    assert outcome.end_ms.tolist() == [100_000, 105_264, 105_264]


def test_memory_that_is_not_foreseen_runs_out() -> None:
    # With 0.45 of the memory each, the third does not fit beside two.
    jobs = make_jobs([(0, 1, 100)] * 3, utilization=0.0)
    known = lawful(jobs, make_cluster((1,)), "schedtune-like", 4)
    assert known.first_start_ms.tolist() == [0, 0, 100_000]
    blind = lawful(jobs, make_cluster((1,)), "schedtune-like,memory=blind,crash=10,overhead=uniform", 4)
    # It runs for 10 s, starts again at 100 s, and does the other 90 s after 30 s of overhead.
    assert blind.preemptions.tolist() == [0, 0, 1]
    assert blind.end_ms.tolist() == [100_000, 100_000, 220_000]


def test_a_margin_keeps_jobs_apart() -> None:
    jobs = make_jobs([(0, 1, 100)] * 2, utilization=0.0)
    outcome = lawful(jobs, make_cluster((1,)), "schedtune-like,margin=0.3", 4)
    # 0.45 and 0.585.
    assert outcome.first_start_ms.tolist() == [0, 100_000]


def test_a_faster_gpu_may_be_worth_company() -> None:
    models = load_models()
    faster = replace(models, type_speed=replace(models.type_speed, ratio={"V100": {"A100": 3.0}}))
    jobs = make_jobs([(0, 1, 90), (0, 1, 90)], model="A100|V100", utilization=0.2)
    slow = replace(models, type_speed=replace(models.type_speed, ratio={"A100|V100": {"A100": 1.0, "V100": 0.25}}))
    cluster = make_cluster((1, 1), model=["A100", "V100"])
    outcome = Scenario.make(jobs, cluster, models=slow).run("schedtune-like").outcome
    # Beside the first at 0.98, 91.8 + 1.8, and not alone at a quarter of the speed.
    assert outcome.end_ms.tolist() == [91_837, 91_837]
    equal = Scenario.make(jobs, cluster, models=faster).run("schedtune-like").outcome
    assert equal.end_ms.tolist() == [90_000, 90_000]


# ---- iadeep ----


def test_an_idle_gpu_first_then_the_set_that_interferes_least() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 1, 100), (0, 1, 50)], utilization=[0.9, 0.3, 0.5])
    outcome = lawful(jobs, make_cluster((2,)), "iadeep", 3)
    # Beside 0.3: 1 - 0.5 * 0.15 = 0.925; 50 / 0.925 s. The other did 50 by then.
    assert outcome.end_ms.tolist() == [100_000, 104_055, 54_055]


def test_nobody_joins_while_jobs_are_tuned_and_tuned_ones_are_faster() -> None:
    jobs = make_jobs([(0, 1, 200), (0, 1, 200), (0, 1, 20)], utilization=[0.5, 0.4, 0.0])
    models = load_models()
    small = replace(models, memory=replace(models.memory, levels={"pair": 0.3}))
    outcome = Scenario.make(jobs, make_cluster((1,)), models=small).run("iadeep,tune=60,kappa=0.5").outcome
    # Untuned both have 0.9; from 60 s on 1 / (1 + (1 / 0.9 - 1) / 2) = 0.947368. The third joins then and, with u = 0,
    # slows nobody; its coming has all tuned anew: 0.9 until 120 s, by when it has ended and gone.
    assert outcome.first_start_ms.tolist() == [0, 0, 60_000]
    assert outcome.end_ms.tolist()[2] == 80_000
    # 108 done by 120 s, and 92 left at 0.947368: 97.111 s.
    assert outcome.end_ms.tolist()[:2] == [217_112, 217_112]


def test_a_busy_gpu_takes_nobody() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], utilization=[1.0, 0.1])
    assert lawful(jobs, make_cluster((1,)), "iadeep", 3).first_start_ms.tolist() == [0, 100_000]
    assert lawful(jobs, make_cluster((1,)), "iadeep,cap=2", 3).first_start_ms.tolist() == [0, 0]


# ---- interference-greedy ----


def test_who_would_be_better_off_waiting_waits() -> None:
    # Two busy jobs halve each other. One of 100 s has 100 s left; another of 100 s would take 200 s and delay it by
    # 100: 300, not less than 100 + 100. One of 10 s beside 1,000 s: 20 + 1,000, less than 1,010 it is not either.
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], utilization=1.0)
    assert lawful(jobs, make_cluster((1,)), "interference-greedy", 2).end_ms.tolist() == [100_000, 200_000]
    both = lawful(jobs, make_cluster((1,)), "interference-greedy,wait=off", 2)
    assert both.end_ms.tolist() == [200_000, 200_000]


def test_who_hardly_hurts_shares() -> None:
    # u = 0.5 and 0.4: 0.9; 111 + 11 is less than 200.
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], utilization=[0.5, 0.4])
    assert lawful(jobs, make_cluster((1,)), "interference-greedy", 2).end_ms.tolist() == [111_112, 111_112]


@settings(max_examples=10, deadline=None)
@given(jobs=sharing_jobs(), cluster=clusters())
def test_without_interference_nobody_waits_for_a_better_place(jobs: Jobs, cluster: Cluster) -> None:
    models = load_models()
    free = replace(models, interference=replace(models.interference, levels={"default": 0.0}))
    waits, never = (
        Scenario.make(jobs, cluster, models=free).run(f"interference-greedy{more}").outcome
        for more in ("", ",wait=off")
    )
    assert same(waits, never)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_cannot_be_is_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="residents"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"{policy},residents=0")
    assert run_engine(make_jobs([(0, 1, 1), (0, 2, 1)]), make_cluster((1,)), policy).end_ms.tolist() == [1000, -1]
