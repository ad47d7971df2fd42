"""Waits for tiers, timers that tune themselves and moves, by hand; and the settings in which it is delay scheduling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.effort import tried
from tests.policies.networks import assert_alike, ideal, run, takes, talking
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.gangs import Waits

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FIXED = "tune=off,migrate=off,gap=0"


def test_waits_by_hand() -> None:
    waits = Waits(3)
    for wait in (100.0, 2.0, 4.0, 6.0):
        waits.add((0, 1), wait)
    assert waits.mean((0, 1), 3, -1.0) == 4.0
    # Deviations -2, 0, 2.
    assert waits.upper((0, 1), 3, -1.0) == pytest.approx(4 + (8 / 3) ** 0.5)
    assert waits.mean((0, 1), 4, -1.0) == waits.upper((9,), 1, -1.0) == -1.0


def test_a_gang_takes_tier_after_tier() -> None:
    # Job 0 leaves one GPU on each of nodes 0 and 1; a gang of two waits 10 s for a node, then has one rack.
    jobs = make_jobs([(0, 2, 500), (1, 2, 10)])
    near = make_cluster((3, 1))
    found = run(jobs, near, f"dally-like,node=10,rack=20,{FIXED}", talking())
    # At half the speed: 1 s computes, 1 s sends.
    assert [found.first_start_ms[1], found.end_ms[1]] == [11_000, 31_000]
    # The nodes in two racks: 30 s, then at a third of the speed.
    far = make_cluster((3, 1), rack=["r0", "r1"])
    found = run(jobs, far, f"dally-like,node=10,rack=20,{FIXED}", talking())
    assert [found.first_start_ms[1], found.end_ms[1]] == [31_000, 61_001]


def test_who_talks_little_waits_little() -> None:
    # A ring of 0.15 s on 1 s slows by 15 %, half of the reference: half of 10 s; 1.15 times 10 s [ppm].
    jobs = make_jobs([(0, 2, 500), (1, 2, 10)])
    found = run(jobs, make_cluster((3, 1)), f"dally-like,node=10,{FIXED}", talking(message_mb=18.75))
    assert [found.first_start_ms[1], found.end_ms[1]] == [6_000, 17_501]


def test_timers_follow_the_waits_of_others() -> None:
    # Five gangs got a node at once: the sixth does not wait for one.
    jobs = make_jobs([*((0.1 * i, 2, 0.05) for i in range(5)), (1, 2, 500), (2, 2, 10)])
    tuned = run(jobs, make_cluster((3, 1)), "dally-like,node=10,migrate=off,gap=0", talking())
    assert tuned.first_start_ms[6] == 2_000
    fixed = run(jobs, make_cluster((3, 1)), f"dally-like,node=10,{FIXED}", talking())
    assert fixed.first_start_ms[6] == 12_000


@pytest.mark.parametrize(
    ("run_s", "end", "moves"),
    [
        # Spread from 1 s on; at 11 s job 0 ends, 5 of 30 s of work are done, 25 would take 50: it moves, 10 s.
        (30, 46_000, 1),
        # 5 of 12 are done; 7 would take 14, 7 more than on a node, where the move takes 10.
        (12, 25_000, 0),
    ],
)
def test_a_gang_moves_where_that_pays(run_s: int, end: int, moves: int) -> None:
    jobs = make_jobs([(0, 2, 11), (1, 2, run_s)])
    found = run(jobs, make_cluster((3, 1)), "dally-like,node=0,rack=0,tune=off,gap=0", talking())
    assert found.migrations.tolist() == [0, moves]
    assert found.end_ms[1] == end
    if moves:
        assert takes(found)[-1] == (11_000, 1, 0, 2)


@pytest.mark.parametrize(("quantum", "moves"), [(0, 2), (5, 2), (8, 1)])
def test_who_moved_stays_for_a_while(quantum: int, moves: int) -> None:
    # Job 2 has nodes of two racks at 1 s, two of one at 5 s when job 1 ends, and one node at 11 s when job 0 does.
    jobs = make_jobs([(0, 2, 11), (0, 1, 5), (1, 2, 100)])
    policy = f"dally-like,node=0,rack=0,tune=off,gap=0,quantum={quantum}"
    found = run(jobs, make_cluster((3, 1, 1), rack=["r0", "r0", "r1"]), policy, talking())
    assert found.migrations.tolist() == [0, 0, moves]


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_without_patience_it_is_delay_scheduling(jobs: Jobs, cluster: Cluster) -> None:
    other = "delay-scheduling,rack=0,any=0,gap=0"
    assert_alike(jobs, cluster, f"dally-like,node=0,rack=0,{FIXED}", other, talking())
    assert_alike(jobs, cluster, "dally-like,gap=0", other, ideal())
    assert_alike(jobs, cluster, "dally-like,gap=0,links=off", f"{other},links=off", ideal())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_with_endless_patience_gangs_have_a_node(jobs: Jobs, cluster: Cluster) -> None:
    least = int(cluster.gpus.min())
    small = replace(jobs, devices=np.minimum(jobs.devices, least))
    endless = f"dally-like,node=inf,{FIXED}"
    assert_alike(small, cluster, endless, "delay-scheduling,rack=inf,any=inf,gap=0", talking())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for links in ("on", "off"):
        policy = f"dally-like,node=3,rack=5,quantum=2,overhead=none,gap=1,links={links}"
        one, two = run(jobs, cluster, policy), run(jobs, cluster, policy)
        assert one.log is not None
        assert two.log is not None
        assert one.log.tobytes() == two.log.tobytes()
