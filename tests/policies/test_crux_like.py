"""Priority on links by intensity: by hand, and where it makes no difference."""

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
from tracekit.policies.literature.tiers import _levels, intensity
from tracekit.replay.assumptions.sections import TrafficFamily

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

FEW = settings(max_examples=15, deadline=None)


def two_families() -> Models:
    """Return models with gangs that send as long as they compute, and gangs that compute three times as long."""
    models = talking()
    families = {
        "talks": TrafficFamily(share=0.5, message_mb=93.75, compute_s=1.0),
        "computes": TrafficFamily(share=0.5, message_mb=93.75, compute_s=3.0),
    }
    return replace(models, traffic=replace(models.traffic, families=families))


def test_intensity_by_hand() -> None:
    jobs = make_jobs([(0, 2, 10), (0, 4, 10), (0, 1, 10)])
    # 125 MB over 1 Gbit/s: 1 s for 2 GPUs and 1.5 s for 4; 2 * 1 and 4 * 1 GPU s over these. One GPU sends nothing.
    assert intensity(talking(), jobs, 0).tolist() == [2.0, pytest.approx(4 / 1.5), np.inf]
    assert _levels(np.array([8.0, 7.0, 4.0, 2.1, 0.1, np.inf]), 3).tolist() == [2.0, 2.0, 1.0, 1.0, 0.0, 2.0]
    assert _levels(np.array([np.inf]), 4).tolist() == [3.0]


def seed_of(first: str) -> int:
    """Return a seed for which the first of two jobs is of one family and the second of the other."""
    from tracekit.replay.assumptions.of_jobs import traffic_families

    want = [0, 1] if first == "talks" else [1, 0]
    jobs = make_jobs([(0, 3, 10), (0, 3, 10)], name=[0, 1])
    return next(s for s in range(100) if traffic_families(two_families(), jobs, s).tolist() == want)


@pytest.mark.parametrize("levels", [0, 8])
def test_who_computes_more_keeps_its_speed(levels: int) -> None:
    # Gangs of three on nodes of two share the link of node 1. Job 0 computes 1 s and sends 1 s, job 1 computes 3 s and
    # sends 1 s. Job 1 goes first, 40 s for 40. Job 0 has 3/4 of the link: 1 + 4/3 s where it took 2; 10 s become 11.67.
    jobs = make_jobs([(0, 3, 10), (0, 3, 40)], name=[0, 1])
    found = run(jobs, make_cluster((2, 2, 2)), f"crux-like,levels={levels},gap=0", two_families(), seed_of("talks"))
    assert np.abs(found.end_ms - [11_667, 40_000]).max() <= 2
    # Shared evenly: 1 + 2 and 3 + 2 s; job 0 ends at 15 s, job 1 has done 12 of 40 s then, and ends at 43 s.
    even = run(jobs, make_cluster((2, 2, 2)), "crux-like,priority=none,gap=0", two_families(), seed_of("talks"))
    assert np.abs(even.end_ms - [15_000, 43_000]).max() <= 2


def test_what_is_left_of_a_link_is_never_nothing() -> None:
    # Both send all the time: the second keeps a twentieth of the link while the first goes on.
    only = talking(message_mb=93.75, compute_s=0.000001)
    jobs = make_jobs([(0, 3, 10), (0, 3, 10)])
    found = run(jobs, make_cluster((2, 2, 2)), "crux-like,gap=0", only)
    # 0.5 of 10 s in the first 10; then alone.
    assert np.abs(found.end_ms - [10_000, 19_500]).max() <= 2


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_without_priority_it_is_delay_scheduling(jobs: Jobs, cluster: Cluster) -> None:
    for how in ("skip", "stop"):
        other = f"delay-scheduling,rack=0,any=0,gap=0,scan={how}"
        assert_alike(jobs, cluster, f"crux-like,priority=none,gap=0,scan={how}", other, talking())
    single = replace(jobs, devices=np.ones_like(jobs.devices))
    assert_alike(single, cluster, "crux-like,gap=0", "fifo,scan=skip", talking())


@FEW
@given(jobs=job_lists(most=6))
def test_alone_on_their_links_gangs_have_no_use_for_priority(jobs: Jobs) -> None:
    # One after the other: nobody meets another.
    apart = replace(jobs, submit_ms=np.arange(len(jobs)) * 1_000_000, model=np.full_like(jobs.model, -1))
    cluster = make_cluster((4, 4, 4, 4), rack=["r0", "r0", "r1", "r1"])
    assert_alike(apart, cluster, "crux-like,gap=0", "crux-like,priority=none,gap=0", talking())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("gap=0,scan=stop", "gap=2,levels=0", "gap=0,levels=1"):
        one, two = run(jobs, cluster, f"crux-like,{options}"), run(jobs, cluster, f"crux-like,{options}")
        assert takes(one) == takes(two)
        assert one.end_ms.tolist() == two.end_ms.tolist()
