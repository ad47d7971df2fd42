"""The cheapest placement or waiting: by hand, and where there is nothing to choose."""

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


@pytest.mark.parametrize(
    ("first", "wait", "start"),
    [
        # Gangs of three on nodes of two share the link of node 1: 1 + 2 s of an iteration in place of 1 + 1. Job 1 of
        # 10 s costs 15 there and delays the other by half of what it has left. Job 0 ends in 2 s: 5 + 1 + 10 is more
        # than 2 + 10.
        (3, "on", 3_000),
        # It has 20 s left and is delayed by 10: 15 + 10 are more than 10, but less than 20 + 10.
        (21, "on", 1_000),
        (3, "off", 1_000),
    ],
)
def test_a_gang_waits_where_that_is_cheaper(first: float, wait: str, start: int) -> None:
    jobs = make_jobs([(0, 3, first), (1, 3, 10)])
    found = run(jobs, make_cluster((2, 2, 2)), f"contention-greedy,wait={wait},gap=0", talking(message_mb=93.75))
    assert found.first_start_ms.tolist() == [0, start]


def test_the_quiet_placement_is_taken_where_it_is_cheaper() -> None:
    # Job 1 of three: nodes 2 and 3 are quiet; most room alone would say the same, so job 0 leaves 1 GPU of node 1 and
    # nodes 2 to 4 have one each, where any nodes begin with node 1.
    jobs = make_jobs([(0, 3, 100), (1, 2, 10)])
    cluster = make_cluster((2, 2, 1, 1))
    found = run(jobs, cluster, "contention-greedy,gap=0", talking())
    assert {row[2] for row in takes(found) if row[1] == 1} == {2, 3}
    near = run(jobs, cluster, "delay-scheduling,rack=0,any=0,gap=0", talking())
    assert {row[2] for row in takes(near) if row[1] == 1} == {1, 2}
    assert found.end_ms.sum() < near.end_ms.sum()


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_single_gpus_have_no_choice(jobs: Jobs, cluster: Cluster) -> None:
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    assert_alike(single, cluster, "contention-greedy,gap=0", "fifo,scan=skip", talking())
    assert_alike(single, cluster, "contention-greedy,order=shortest,gap=0", "sjf,scan=skip", talking())


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_where_links_slow_nobody_nobody_waits(jobs: Jobs, cluster: Cluster) -> None:
    order = np.lexsort((cluster.rack, cluster.domain))
    one = replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])
    mine = run(jobs, one, "contention-greedy,gap=0", ideal())
    other = run(jobs, one, "delay-scheduling,rack=0,any=0,gap=0", ideal())
    assert mine.end_ms.tolist() == other.end_ms.tolist()


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("gap=0", "gap=2,look=1,order=shortest", "wait=off,gap=0"):
        one = run(jobs, cluster, f"contention-greedy,{options}", talking())
        two = run(jobs, cluster, f"contention-greedy,{options}", talking())
        assert takes(one) == takes(two)
        assert one.end_ms.tolist() == two.end_ms.tolist()
        # Nobody waits for ever: who waits does so for an end that comes, unless a node left that does not come back.
        assert ((one.end_ms >= 0) | one.unschedulable | (cluster.change_up == 0).any() | cluster.absent.any()).all()
