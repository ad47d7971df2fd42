"""Elastic policies: worked by hand, and the settings in which they are known policies or known divisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.assumptions.models import Models, load_models
from tracekit.replay.outcome import LOG_KINDS, Outcome
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

ARRAYS = (
    "first_start_ms",
    "end_ms",
    "run_ms",
    "overhead_ms",
    "preemptions",
    "migrations",
    "nodes_spanned",
    "unschedulable",
)
ELASTIC = ["elastic-fifo", "elastic-fifo,steps=double", "elastic-srjf", "elastic-fifo,preempt=on", "pollux-lite"]
RIGID = "elastic=off,gap=0"


def linear() -> Models:
    models = load_models()
    return replace(models, elastic=replace(models.elastic, sigma=0.0))


def run(jobs: Jobs, cluster: Cluster, policy: str) -> Outcome:
    return Scenario.make(jobs, cluster, models=linear()).run(policy, log=True).outcome


def takes(outcome: Outcome) -> list[tuple[int, int, int]]:
    """Return (time [s], job, GPUs) of each start."""
    found: list[list[int]] = []
    assert outcome.log is not None
    for row in outcome.log.tolist():
        if row[1] == LOG_KINDS["start"]:
            found.append([row[0] // 1000, row[2], 0])
        elif row[1] == LOG_KINDS["take"]:
            found[-1][2] += row[5] // 1000
    return [(a, b, c) for a, b, c in found]


def assert_same(jobs: Jobs, cluster: Cluster, policy: str, other: str) -> None:
    one, two = run_engine(jobs, cluster, policy), run_engine(jobs, cluster, other)
    for name in ARRAYS:
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


@tried(21, 60, jobs=job_lists(), cluster=clusters())
def test_jobs_of_fixed_size_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"elastic-fifo,{RIGID}", "fifo,scan=skip")


@tried(21, 60, jobs=job_lists(), cluster=clusters())
def test_jobs_of_fixed_size_that_nobody_stops_are_shortest_first(jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"elastic-srjf,preempt=off,{RIGID}", "sjf,scan=skip")


@tried(21, 60, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_jobs_of_fixed_size_that_are_stopped_are_shortest_remaining_first(jobs: Jobs, cluster: Cluster) -> None:
    assert_same(jobs, cluster, f"elastic-srjf,{RIGID},fit=count,overhead=none", "srtf,scan=skip,fit=count")
    # Under las jobs of one submission never evict each other; here the one named first does.
    apart = replace(jobs, submit_ms=jobs.submit_ms + np.arange(len(jobs)))
    assert_same(apart, cluster, f"elastic-fifo,preempt=on,{RIGID},fit=count,overhead=none", "las,queues=none,fit=count")


def test_minimum_first_then_one_gpu_after_the_other() -> None:
    jobs = make_jobs([(0, 4, 60), (0, 4, 60), (0, 1, 60)])
    outcome = run(jobs, make_cluster((8,)), "elastic-fifo")
    # Minima 1, 1, 1; the third grows to 2, its most; the first two to 3 each.
    assert takes(outcome)[:3] == [(0, 0, 3), (0, 1, 3), (0, 2, 2)]
    # Job 2 is twice as fast and ends at 30 s. The others then have 37.5 s left and resize to 4, for 10 s.
    assert outcome.end_ms.tolist() == [77_500, 77_500, 30_000]
    assert outcome.migrations.tolist() == [1, 1, 0]


def test_doubling_gives_powers_of_the_minimum() -> None:
    jobs = make_jobs([(0, 4, 60), (0, 4, 60)])
    # 1, 1; 2, 2; 4 and then 4 is more than is left.
    assert takes(run(jobs, make_cluster((7,)), "elastic-fifo,steps=double"))[:2] == [(0, 0, 4), (0, 1, 2)]


def test_plans_keep_their_distance() -> None:
    jobs = make_jobs([(0, 2, 100), (1, 2, 100)])
    assert takes(run(jobs, make_cluster((4,)), "elastic-fifo"))[:3] == [(0, 0, 4), (30, 0, 2), (30, 1, 2)]


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-srjf", "pollux-lite"])
def test_linear_speed_and_equal_jobs_share_equally(policy: str) -> None:
    jobs = make_jobs([(0, 4, 600)] * 4)
    outcome = run(jobs, make_cluster((8,)), policy)
    assert takes(outcome)[:4] == [(0, j, 2) for j in range(4)]
    assert outcome.end_ms.tolist() == [1_200_000] * 4


@pytest.mark.parametrize("policy", ELASTIC)
def test_with_room_for_all_everyone_has_the_most(policy: str) -> None:
    jobs = make_jobs([(0, 1, 60), (60, 2, 60), (60, 4, 60), (120, 3, 60)])
    cluster = make_cluster((8, 8, 4))
    outcome = Scenario.make(jobs, cluster).run(policy, log=True).outcome
    most = [2, 4, 8, 6] if "double" not in policy else [2, 4, 8, 4]
    assert sorted((job, gpus) for _, job, gpus in takes(outcome)) == list(enumerate(most))
    assert outcome.migrations.sum() == outcome.preemptions.sum() == 0


def test_the_harmonic_mean_gives_to_those_that_have_least() -> None:
    jobs = make_jobs([(0, 8, 600), (0, 1, 600), (0, 1, 600)])
    # Minima 2, 1, 1; then one more for the ones with 1, which is their most; the rest for the large one.
    assert takes(run(jobs, make_cluster((8,)), "pollux-lite"))[:3] == [(0, 0, 4), (0, 1, 2), (0, 2, 2)]


def test_a_change_that_costs_more_than_it_gains_is_not_made() -> None:
    jobs = make_jobs([(0, 4, 600), (0, 4, 20)])
    outcome = run(jobs, make_cluster((8,)), "pollux-lite,delta=1000000")
    # GPUs become free at 20 s; a change would count as no speed at all.
    assert outcome.migrations.tolist() == [0, 0]
    assert run(jobs, make_cluster((8,)), "pollux-lite,delta=1").migrations.tolist() == [1, 0]


@tried(9, 25, jobs=job_lists(), cluster=clusters())
@pytest.mark.parametrize("policy", ELASTIC)
def test_the_laws_hold(policy: str, jobs: Jobs, cluster: Cluster) -> None:
    outcome = run_engine(jobs, cluster, policy)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic") == []


@tried(9, 25, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_nobody_is_stopped_unless_told(jobs: Jobs, cluster: Cluster) -> None:
    one_model = replace(cluster, model=np.zeros_like(cluster.model))
    order = np.lexsort((one_model.rack, one_model.domain))
    one_model = replace(one_model, rack=np.zeros_like(cluster.rack), gpus=one_model.gpus[order])
    assert run_engine(jobs, one_model, "elastic-fifo").preemptions.sum() == 0
    assert run_engine(jobs, one_model, "pollux-lite").preemptions.sum() == 0
