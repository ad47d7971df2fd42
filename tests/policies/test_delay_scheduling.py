"""Delay scheduling: timers and the cost test by hand, and the settings in which it is first in, first out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.effort import tried
from tests.policies.networks import assert_alike, ideal, run, takes, talking
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

TWO_RACKS = make_cluster((2, 2, 2), rack=["r0", "r0", "r1"])
JOBS = make_jobs([(0, 1, 100), (0, 2, 20), (0, 2, 40), (1, 2, 10), (2, 1, 5)])


def test_a_gang_waits_for_its_timers() -> None:
    # Node 0 has one free GPU, the others none until 20 s. Job 4 passes job 3 and has that GPU until 7 s. Job 3 takes
    # node 1 at 20 s.
    outcome = run(JOBS, TWO_RACKS, "delay-scheduling,rack=inf,any=inf,gap=0", talking())
    assert outcome.first_start_ms.tolist() == [0, 0, 0, 20_000, 2_000]
    assert outcome.end_ms.tolist() == [100_000, 20_000, 40_000, 30_000, 7_000]
    # With scan=stop job 4 waits behind it.
    stop = run(JOBS, TWO_RACKS, "delay-scheduling,rack=inf,any=inf,gap=0,scan=stop", talking())
    assert stop.first_start_ms.tolist() == [0, 0, 0, 20_000, 20_000]


def test_after_its_timers_a_gang_goes_further_and_slower() -> None:
    jobs = make_jobs([(0, 1, 30), (1, 2, 10)])
    pair = make_cluster((2, 1, 1), rack=["r0", "r0", "r1"])
    # Job 0 has node 1. Job 1 has node 0 at once.
    assert takes(run(jobs, pair, "delay-scheduling,gap=0", talking()))[1] == (1_000, 1, 0, 2)
    three = make_cluster((2, 1, 1), rack=["r0", "r1", "r2"])
    jobs = make_jobs([(0, 2, 500), (1, 2, 10)])
    # Job 0 has node 0; nodes 1 and 2 are in two racks: from 21 s on, at a third of the speed [ppm], 30 s.
    found = run(jobs, three, "delay-scheduling,rack=10,any=20,gap=0", talking())
    assert found.first_start_ms.tolist() == [0, 21_000]
    assert found.end_ms.tolist() == [500_000, 51_001]
    # One GPU of each node of a rack is left: from 11 s on, at half of the speed.
    near = make_cluster((3, 1))
    found = run(jobs, near, "delay-scheduling,rack=10,any=20,gap=0", talking())
    assert [found.first_start_ms[1], found.end_ms[1]] == [11_000, 31_000]


@pytest.mark.parametrize(
    ("held", "start", "end"),
    [
        # Nodes 1 and 2 are free at half speed: job 1 loses 10 s there. Node 0 is free in 5 s, in 14 s, ...
        (6, 6, 16),
        (10.9, 10.9, 20.9),
        (15, 1, 21),
    ],
)
def test_the_cost_test_waits_only_where_that_pays(held: float, start: float, end: float) -> None:
    jobs = make_jobs([(0, 2, held), (1, 2, 10)])
    cluster = make_cluster((2, 1, 1))
    found = run(jobs, cluster, "delay-scheduling,cost=oracle,rack=100,any=100,gap=0", talking())
    assert [found.first_start_ms[1], found.end_ms[1]] == [start * 1000, end * 1000]


def test_the_mean_of_past_waits_is_expected() -> None:
    # Five pairs wait 0 s each for node 0 or 1; the sixth then expects no wait, and so waits for one that ends late.
    rows = [(10.0 * i, 2, 5.0) for i in range(5)]
    jobs = make_jobs([*rows, (100, 2, 100), (101, 2, 10)])
    cluster = make_cluster((2, 1, 1))
    mean = run(jobs, cluster, "delay-scheduling,cost=mean,rack=1000,any=1000,gap=0", talking())
    assert mean.first_start_ms[6] == 200_000
    # Who knows of no waits expects to wait until the timer, 1,000 s, and would lose 10 s: it starts at once.
    fresh = make_jobs([(100, 2, 100), (101, 2, 10)])
    early = run(fresh, cluster, "delay-scheduling,cost=mean,rack=1000,any=1000,gap=0", talking())
    assert early.first_start_ms[1] == 101_000


@tried(7, 20, jobs=job_lists(), cluster=clusters())
def test_with_endless_patience_it_is_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    fits = _strictly(jobs, cluster)
    endless = "delay-scheduling,rack=inf,any=inf,gap=0"
    assert_alike(fits, cluster, endless, "fifo,scan=skip", ideal())
    assert_alike(fits, cluster, f"{endless},scan=stop", "fifo", ideal())


@tried(7, 20, jobs=job_lists(), cluster=clusters())
def test_with_one_timer_it_is_a_gang_that_relaxes(jobs: Jobs, cluster: Cluster) -> None:
    fits = _strictly(jobs, cluster)
    mine = "delay-scheduling,rack=5,any=inf,links=off,gap=0"
    assert_alike(fits, cluster, mine, "fifo,scan=skip,relax=5,relax_to=rack")


@tried(7, 20, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_without_patience_it_counts_gpus(jobs: Jobs, cluster: Cluster) -> None:
    order = np.lexsort((cluster.rack, cluster.domain))
    one = replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])
    first = run(jobs, one, "delay-scheduling,rack=0,any=0,links=off,gap=0", ideal())
    second = run(jobs, one, "fifo,scan=skip,fit=count", ideal())
    assert first.end_ms.tolist() == second.end_ms.tolist()
    free = run(jobs, one, "delay-scheduling,rack=30,any=50,cost=oracle,links=off,gap=0", ideal())
    assert free.end_ms.tolist() == first.end_ms.tolist()


@tried(7, 20, jobs=job_lists(), cluster=clusters())
def test_jobs_of_one_gpu_never_wait_for_a_tier(jobs: Jobs, cluster: Cluster) -> None:
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    assert_alike(single, cluster, "delay-scheduling,gap=0", "fifo,scan=skip")
    assert_alike(single, cluster, "delay-scheduling,gap=0,rack=0,any=0,cost=mean", "fifo,scan=skip")


@tried(7, 20, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_with_every_cost_test(jobs: Jobs, cluster: Cluster) -> None:
    for cost in ("off", "mean", "oracle"):
        policy = f"delay-scheduling,rack=3,any=9,cost={cost},gap=2"
        one, two = run(jobs, cluster, policy), run(jobs, cluster, policy)
        assert one.end_ms.tolist() == two.end_ms.tolist()


def _strictly(jobs: Jobs, cluster: Cluster) -> Jobs:
    """Return the jobs without gangs that never fit the fewest nodes: those start further apart here, and not there."""
    never = run(jobs, cluster, "fifo,scan=skip").unschedulable
    return jobs.rows(np.flatnonzero(~never))
