"""Smallest gang first, packed or on quiet links: by hand, and where the choice makes no difference."""

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


def test_the_smallest_is_first() -> None:
    jobs = make_jobs([(0, 4, 10), (1, 3, 10), (2, 2, 10), (3, 1, 10), (4, 1, 10)])
    found = run(jobs, make_cluster((4,)), "sjf-bco-like,gap=0", talking())
    # At 10 s the jobs of 1, 1 and 2 GPUs start, though that of 3 came before them.
    assert found.first_start_ms.tolist() == [0, 20_000, 10_000, 10_000, 10_000]


@pytest.mark.parametrize(
    ("place", "nodes"),
    [
        # Job 0 of 3 GPUs has nodes 0 and 1 and leaves one GPU of node 1; job 1 of 3 needs two nodes as well.
        # Packed it has that GPU and two of node 2; quiet, nodes 2 and 3.
        ("packed", {1, 2}),
        ("quiet", {2, 3}),
        ("best", {2, 3}),
        ("kappa", {1, 2}),
    ],
)
def test_packed_and_quiet(place: str, nodes: set[int]) -> None:
    jobs = make_jobs([(0, 3, 100), (1, 3, 10)])
    found = run(jobs, make_cluster((2, 2, 2, 2)), f"sjf-bco-like,gap=0,place={place}", talking(message_mb=93.75))
    assert {row[2] for row in takes(found) if row[1] == 1} == nodes
    # Quiet it is at its best, 10 s; packed it takes 1 + 2 s where it took 1 + 1.
    assert abs(int(found.end_ms[1]) - (11_000 if nodes == {2, 3} else 16_000)) <= 1


def test_the_cheaper_placement_may_be_the_packed_one() -> None:
    # Node 2 of another rack is quiet, but a gang over the spine computes 1 s and sends 2, one that shares node 1's
    # link sends 2 as well; a gang of three that sends little is slowed by neither, and takes the first, the quiet one.
    jobs = make_jobs([(0, 3, 100), (1, 2, 10)])
    cluster = make_cluster((2, 2, 1, 1), rack=["r0", "r0", "r0", "r1"])
    near = run(jobs, cluster, "sjf-bco-like,gap=0", talking(message_mb=125.0, sharing="duty"))
    # Quiet: nodes 2 and 3, 1 + 2 s, so 30 s and nobody delayed. Packed: nodes 1 and 2, beside a gang that sends
    # 4/3 of 2 s: 10 s become 1 + 1 * 1.57, and job 0 of 100 s is delayed by more than 4 s: quiet.
    assert {row[2] for row in takes(near) if row[1] == 1} == {2, 3}
    short = make_jobs([(0, 3, 5), (1, 2, 10)])
    found = run(short, cluster, "sjf-bco-like,gap=0", talking(message_mb=125.0, sharing="duty"))
    # Job 0 has 4 s left: it is delayed by 4/7 * 1/2 of that, less than the 4 s that job 1 gains.
    assert {row[2] for row in takes(found) if row[1] == 1} == {1, 2}


def _one_model(cluster: Cluster) -> Cluster:
    order = np.lexsort((cluster.rack, cluster.domain))
    return replace(cluster, model=np.zeros_like(cluster.model), rack=cluster.rack[order], gpus=cluster.gpus[order])


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters())
def test_single_gpus_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    single, one = replace(jobs, devices=np.ones_like(jobs.devices)), _one_model(cluster)
    mine = run(single, one, "sjf-bco-like,gap=0")
    assert mine.end_ms.tolist() == run(single, one, "fifo,scan=skip").end_ms.tolist()


@tried(5, 15, jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_where_links_slow_nobody_the_choice_makes_no_difference(jobs: Jobs, cluster: Cluster) -> None:
    one = _one_model(cluster)
    ends = [
        run(jobs, one, f"sjf-bco-like,gap=0,place={place}", ideal()).end_ms.tolist()
        for place in ("best", "packed", "quiet")
    ]
    assert ends[0] == ends[1] == ends[2]


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_kappa_lies_between_packed_and_quiet(jobs: Jobs, cluster: Cluster) -> None:
    assert_alike(jobs, cluster, "sjf-bco-like,place=kappa,kappa=99", "sjf-bco-like,place=packed", talking())
    assert_alike(jobs, cluster, "sjf-bco-like,place=kappa,kappa=0", "sjf-bco-like,place=quiet", talking())


@tried(5, 15, jobs=job_lists(), cluster=clusters())
def test_the_laws_hold_and_the_same_comes_out_again(jobs: Jobs, cluster: Cluster) -> None:
    for options in ("gap=0", "gap=2,noise=1"):
        one, two = run(jobs, cluster, f"sjf-bco-like,{options}"), run(jobs, cluster, f"sjf-bco-like,{options}")
        assert takes(one) == takes(two)
        assert one.end_ms.tolist() == two.end_ms.tolist()
