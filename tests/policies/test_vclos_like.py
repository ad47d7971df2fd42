"""Links allocated with GPUs: by hand, no gang is ever slowed, and without isolation it is delay scheduling."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from tests.effort import tried
from tests.policies.networks import assert_alike, run, takes, talking
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FEW = settings(max_examples=15, deadline=None)


@pytest.mark.parametrize(("isolate", "start", "ends"), [("on", 10, (10_000, 20_000)), ("off", 1, (14_500, 15_500))])
def test_a_node_has_one_gang_on_its_link(isolate: str, start: int, ends: tuple[int, int]) -> None:
    # Gangs of three on nodes of two: job 0 has nodes 0 and 1, job 1 would share the link of node 1. Alone an
    # iteration computes 1 s and sends 1 s; together both take 1.5 times as long. Job 2 of one GPU needs no link.
    jobs = make_jobs([(0, 3, 10), (1, 3, 10), (2, 1, 5)])
    cluster = make_cluster((2, 2, 2))
    found = run(jobs, cluster, f"vclos-like,isolate={isolate},gap=0", talking(message_mb=93.75))
    assert found.first_start_ms[1] == start * 1000
    # Shared: job 0 has 9 of 10 s left at 1 s, 13.5 together; job 1 then has 1 left.
    assert np.abs(found.end_ms[:2] - ends).max() <= 2
    # Isolated, job 2 takes the GPU that is left on node 1 at once.
    assert found.first_start_ms[2] == (2_000 if isolate == "on" else 14_500)


def test_a_rack_has_as_many_gangs_as_links() -> None:
    # Racks of two nodes have one link to the spine. Job 0 spans the racks by nodes 1 and 2; so would job 1.
    racks = make_cluster((1, 2, 2, 1), rack=["r0", "r0", "r1", "r1"])
    jobs = make_jobs([(0, 4, 10), (1, 2, 10)])
    found = run(jobs, racks, "vclos-like,gap=0", talking())
    assert takes(found)[:2] == [(0, 0, 1, 2), (0, 0, 2, 2)]
    assert found.first_start_ms.tolist() == [0, 10_000]
    # With links of half the bandwidth in parallel, two of each rack, both find one.
    twice = talking()
    twice = replace(twice, links=replace(twice.links, oversubscription=2.0))
    assert run(jobs, racks, "vclos-like,gap=0", twice).first_start_ms.tolist() == [0, 1_000]


def test_who_waits_for_links_holds_up_others_where_told() -> None:
    jobs = make_jobs([(0, 3, 10), (1, 3, 10), (2, 1, 5)])
    found = run(jobs, make_cluster((2, 2, 2)), "vclos-like,scan=stop,gap=0", talking())
    assert found.first_start_ms.tolist() == [0, 10_000, 10_000]


@FEW
@given(jobs=job_lists(), cluster=clusters())
def test_nobody_is_ever_slowed(jobs: Jobs, cluster: Cluster) -> None:
    found = run(jobs, cluster, "vclos-like,gap=0", talking(extra=1.0))
    assert found.log is not None
    assert not (found.log["kind"] == LOG_KINDS["rate"]).any()


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_without_isolation_it_is_delay_scheduling(jobs: Jobs, cluster: Cluster) -> None:
    for how in ("skip", "stop"):
        other = f"delay-scheduling,rack=0,any=0,gap=0,scan={how}"
        assert_alike(jobs, cluster, f"vclos-like,isolate=off,gap=0,scan={how}", other, talking())
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    assert_alike(single, cluster, "vclos-like,gap=0", "fifo,scan=skip", talking())


@tried(5, 15, jobs=job_lists(sizes=None, typed=False))
def test_on_one_node_nothing_is_allocated(jobs: Jobs) -> None:
    node = make_cluster((20,))
    assert_alike(jobs, node, "vclos-like,gap=0", "vclos-like,isolate=off,gap=0", talking())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("gap=0,scan=stop", "gap=2"):
        one, two = run(jobs, cluster, f"vclos-like,{options}"), run(jobs, cluster, f"vclos-like,{options}")
        assert takes(one) == takes(two)
        # Whoever fits the cluster ends: idle, it has every link.
        assert ((one.end_ms >= 0) | one.unschedulable | (cluster.change_up == 0).any()).all()
