"""MuxFlow-like: assignments against brute force, schedules by hand, and one class alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.sharing_runs import lawful, same, sharing_jobs
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters
from tracekit.errors import UsageError
from tracekit.policies.literature.optimal import best_assignment
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.assumptions.of_jobs import online_load
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def steady(load: float, memory: str = "pair") -> Models:
    models = load_models()
    online = replace(models.online, load=load, swing=0.0)
    return replace(models, online=online, memory=replace(models.memory, level=memory))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models) -> Outcome:
    return Scenario.make(jobs, cluster, models=models).run(policy, log=True).outcome


@settings(max_examples=25, deadline=None)
@given(weights=st.lists(st.integers(-3, 9), min_size=12, max_size=12))
def test_assignments_are_the_best_of_all(weights: list[int]) -> None:
    table = np.array(weights, float).reshape(3, 4)
    best = max(sum(max(table[r, c], 0) for r, c in enumerate(order)) for order in permutations(range(4), 3))
    found = best_assignment(table)
    assert sum(table[r, c] for r, c in found) == best
    assert all(table[r, c] > 0 for r, c in found)
    assert len({r for r, _ in found}) == len({c for _, c in found}) == len(found)


def test_loads_go_up_and_down_by_the_swing() -> None:
    models = load_models()
    hours = np.array([0.0, 0.25, 0.5, 0.75])
    assert online_load(models, 0, hours).round(3).tolist() == [0.26, 0.39, 0.26, 0.13]
    assert online_load(models, 6 * 3_600_000, 0.0).round(3).tolist() == 0.39


def test_an_offline_job_has_what_the_online_one_leaves() -> None:
    # Load 0.4: 0.6 * 0.9 / 0.9 = 0.6 of its speed until the online job ends at 60 s; 36 done, the rest alone.
    jobs = make_jobs([(0, 1, 60), (0, 1, 100)], preemptible=[0, 1], utilization=0.9)
    outcome = run(jobs, make_cluster((1,)), "muxflow-like", steady(0.4))
    assert outcome.end_ms.tolist() == [60_000, 124_000]


def test_an_online_job_joins_an_offline_one_where_no_gpu_is_idle() -> None:
    jobs = make_jobs([(0, 1, 100), (10, 1, 50)], preemptible=[1, 0], utilization=0.9)
    outcome = run(jobs, make_cluster((1,)), "muxflow-like", steady(0.4))
    # 10 + 50 * 0.6 by 60 s, 60 left.
    assert outcome.end_ms.tolist() == [120_000, 60_000]
    assert run(jobs, make_cluster((1,)), "muxflow-like", steady(0.4, "single")).end_ms.tolist() == [100_000, 150_000]


def test_a_busy_service_stops_offline_work_and_sends_it_away_in_time() -> None:
    jobs = make_jobs([(0, 1, 100), (0, 1, 100)], preemptible=[1, 0], utilization=0.5)
    # The online job starts first, the offline one is not matched to it at a load of 0.9.
    outcome = run(jobs, make_cluster((1,)), "muxflow-like,round=10,evict=20", steady(0.9))
    assert outcome.end_ms.tolist() == [200_000, 100_000]
    later = make_jobs([(0, 1, 100), (10, 1, 100)], preemptible=[1, 0], utilization=0.5)
    outcome = run(later, make_cluster((1,)), "muxflow-like,round=10,evict=20,overhead=uniform", steady(0.9))
    # It stands still from 10 s on, leaves at 30 s, and goes on at 110 s after 30 s of overhead.
    assert outcome.preemptions.tolist() == [1, 0]
    assert outcome.end_ms.tolist() == [230_000, 110_000]


@tried(4, 12, jobs=sharing_jobs(preemptible=1), cluster=clusters())
def test_offline_jobs_alone_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    assert same(run_engine(jobs, cluster, "muxflow-like"), run_engine(jobs, cluster, "fifo,scan=skip"))
    online = replace(jobs, preemptible=np.zeros(len(jobs), np.int8), devices=np.ones(len(jobs), np.int32))
    assert same(run_engine(online, cluster, "muxflow-like"), run_engine(online, cluster, "fifo,scan=skip"))


@settings(max_examples=12, deadline=None)
@given(jobs=sharing_jobs(), cluster=clusters(), how=st.sampled_from(["stop=0.3", "candidates=1", "hysteresis=0"]))
def test_the_laws_hold(jobs: Jobs, cluster: Cluster, how: str) -> None:
    lawful(jobs, cluster, f"muxflow-like,round=4,evict=6,overhead=lucid,{how}", 2)


@settings(max_examples=12, deadline=None)
@given(jobs=sharing_jobs(), cluster=clusters())
def test_online_jobs_run_as_if_alone(jobs: Jobs, cluster: Cluster) -> None:
    outcome = lawful(jobs, cluster, "muxflow-like,round=4", 2)
    online = (jobs.preemptible == 0) & (jobs.devices == 1) & (outcome.end_ms >= 0)
    assert (outcome.end_ms - outcome.first_start_ms)[online].tolist() == jobs.work_ms[online].tolist()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="candidates"):
        run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), "muxflow-like,candidates=0")
    jobs = make_jobs([(0, 1, 1), (0, 2, 1)])
    assert run_engine(jobs, make_cluster((1,)), "muxflow-like").end_ms.tolist() == [1000, -1]
