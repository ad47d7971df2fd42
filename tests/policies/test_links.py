"""Places by tier, and speeds of gangs by tier and by traffic on links, by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.networks import talking
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.places import NodeMap, find_place, wants
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.network_tiers import ANYWHERE, FEWEST, NODE, RACK, RACKS, SPINE, Network, Places, Spot
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.of_jobs import ring_s, traffic_families

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

LINGJUN = Path("/work/shared/data/alibaba_lingjun/topo.csv")
RACKS_OF_TWO = make_cluster((2, 2, 2, 2), rack=["r0", "r0", "r1", "r1"])


def network(jobs: Jobs, cluster: Cluster, models: Models, **options: np.ndarray) -> Network:
    return Network(jobs, cluster, models, 0, Places(jobs, cluster), **options)


def test_a_ring_sends_its_message_almost_twice() -> None:
    # 2 * (g - 1) / g times 125 MB = 1 Gbit over 1 Gbit/s; one GPU sends nothing.
    assert ring_s(125.0, [1, 2, 4], 1.0).tolist() == [0.0, 1.0, 1.5]
    assert ring_s(125.0, 2, 0.5) == 2.0


def test_families_are_drawn_once_per_name() -> None:
    jobs = make_jobs([(0, 2, 10)] * 400, name=[i % 100 for i in range(400)])
    drawn = traffic_families(talking(), jobs, 3)
    assert (drawn == 0).all()
    four = traffic_families(load_models(), jobs, 3)
    assert (four[:100] == four[100:200]).all()
    # 100 names, 40 % of them of the first family: 40 +- 5 standard deviations of 4.9.
    assert 15 <= (four[:100] == 0).sum() <= 65


def test_speeds_by_tier() -> None:
    # An iteration of 2 GPUs takes 1 s on a node, 1 + 1 s in a rack and 1 + 2 s over the spine.
    jobs = make_jobs([(0, 2, 10)])
    net = network(jobs, RACKS_OF_TWO, talking())
    assert [net.tier_of(nodes) for nodes in ([0], [0, 1], [1, 2])] == [NODE, RACKS, SPINE]
    assert [net.speed_alone(0, nodes) for nodes in ([0], [0, 1], [1, 2])] == [1_000_000, 500_000, 333_333]
    net.enter(0, [1, 2])
    assert net.speed(0) == 333_333
    assert net.links_of([1, 2]).tolist() == [1, 2, 4, 5]


def test_a_gang_wider_than_a_tier_has_its_recorded_speed_where_it_must_be() -> None:
    # 4 GPUs need two nodes, 8 need both racks: that is where their run times are from.
    jobs = make_jobs([(0, 4, 10), (0, 8, 10)])
    net = network(jobs, RACKS_OF_TWO, talking())
    assert net.speed_alone(0, [0, 1]) == 1_000_000
    # 1 + 1.5 s in a rack, 1 + 3 s over the spine.
    assert net.speed_alone(0, [1, 2]) == 625_000
    assert net.speed_alone(1, [0, 1, 2, 3]) == 1_000_000


def test_without_known_racks_there_is_one() -> None:
    net = network(make_jobs([(0, 2, 10)]), make_cluster((1, 1, 1)), talking())
    assert net.tier_of([0, 2]) == RACKS
    assert net.links_of([0, 2]).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("sharing", "extra", "speed"),
    [
        # 1 s computes; the ring takes 1 s alone, 2 s beside another, 2.5 s with half of the other's share on top.
        ("always", 0.0, 666_667),
        ("always", 0.5, 571_429),
        # The other sends half of the time: 1.5 s.
        ("duty", 0.0, 800_000),
    ],
)
def test_two_gangs_on_a_link(sharing: str, extra: float, speed: int) -> None:
    cluster = make_cluster((1, 2, 1))
    jobs = make_jobs([(0, 2, 10), (0, 2, 10), (0, 3, 10)])
    net = network(jobs, cluster, talking(sharing=sharing, extra=extra))
    net.enter(0, [0, 1])
    assert net.speed(0) == 500_000
    # Of two iterations' lengths 2 and 3 s the speeds are 1/2 and 1/3 of one on a node; here relative to a rack's 2 s.
    assert round(net.speeds_with(1, [1, 2])[0] / 0.5) == pytest.approx(speed, abs=2)
    assert net.neighbours([1, 2]) == {0}
    assert net.speed(0) == 500_000
    net.take_changed()
    net.enter(1, [1, 2])
    assert net.take_changed() == [0, 1]
    net.leave(1)
    assert net.take_changed() == [0]
    assert net.speed(0) == 500_000


def test_links_in_parallel_share_less() -> None:
    # 8 nodes of 1 Gbit/s over 4 and links of 0.5 Gbit/s: 4 in parallel, so that each other gang costs a quarter.
    cluster = make_cluster((2,) * 16, rack=["r0"] * 8 + ["r1"] * 8)
    jobs = make_jobs([(0, 2, 10), (0, 2, 10)])
    net = network(jobs, cluster, talking())
    assert net.lanes.tolist() == [1.0] * 16 + [4.0, 4.0]
    net.enter(0, [0, 8])
    net.enter(1, [1, 9])
    # 1 s and 2 s * 1.25.
    assert net.speed(0) == round(1_000_000 / 3.5)


def test_the_higher_priority_has_its_part_of_a_link_first() -> None:
    cluster = make_cluster((1, 2, 1))
    jobs = make_jobs([(0, 2, 10), (0, 2, 10)])
    net = network(jobs, cluster, talking(), priority=np.array([1.0, 2.0]))
    net.enter(0, [0, 1])
    net.enter(1, [1, 2])
    # Job 1 sends half of its 2 s; the other has half the link, 1 + 2 s.
    assert [net.speed(1), net.speed(0)] == [500_000, 333_333]


@pytest.mark.parametrize("sharing", ["always", "duty"])
def test_speeds_of_many_are_those_of_each(sharing: str) -> None:
    random = np.random.default_rng(5)
    cluster = make_cluster((4,) * 12, rack=["r0"] * 4 + ["r1"] * 8)
    sizes = random.integers(2, 9, 30)
    jobs = make_jobs([(0, int(size), 10) for size in sizes], name=list(range(30)))
    net = network(jobs, cluster, replace(load_models(), contention=talking(sharing=sharing, extra=0.3).contention))
    for job in range(30):
        net.enter(job, random.choice(12, int(random.integers(2, sizes[job] + 1)), replace=False).tolist())
    assert net.speeds(list(range(30))) == [net.speed(job) for job in range(30)]
    assert len({net.speed(job) for job in range(30)}) > 10


@settings(max_examples=30, deadline=None)
@given(jobs=job_lists(most=4), cluster=clusters(changing=False), data=st.data())
def test_places_are_those_of_the_rules(jobs: Jobs, cluster: Cluster, data: st.DataObject) -> None:
    places = Places(jobs, cluster)
    taken = [data.draw(st.integers(0, int(gpus))) for gpus in cluster.gpus]
    nodes = NodeMap(cluster)
    nodes.used = list(taken)
    free = cluster.gpus.astype(np.int64) - np.array(taken)
    places.renew(free)
    for job, want in enumerate(wants(jobs, cluster)):
        if want.domain < 0:
            continue
        found = places.find(job, FEWEST)
        told = find_place(nodes, want, "consolidate")
        assert (None if found is None else sorted(zip(*found, strict=True))) == (
            None if told is None else sorted((n, g) for n, _, g in told)
        )
        for tier, level in ((RACK, 1), (ANYWHERE, 2)):
            found = places.find(job, tier)
            fits = find_place(nodes, want, "consolidate", level=level) is not None
            assert (found is not None) >= (fits and told is None)
            if found is not None:
                assert sum(found.gpus) == want.gpus
                assert all(0 < g <= free[n] for n, g in zip(*found, strict=True))
                assert len(set(cluster.model[found.nodes].tolist())) == 1
                assert tier == ANYWHERE or len(set(cluster.rack[found.nodes].tolist())) == 1
            assert places.found(job, tier, free) == found


def test_what_is_taken_and_given_back() -> None:
    jobs = make_jobs([(0, 2, 10), (0, 3, 10)])
    places = Places(jobs, make_cluster((2, 2)))
    places.renew(np.array([2, 2]))
    assert places.find(0, FEWEST) == Spot([0], [2])
    places.take(Spot([0], [2]))
    assert places.room == [2]
    assert places.find(1, RACK) is None
    places.give(Spot([0], [2]))
    assert places.find(1, RACK) == Spot([0, 1], [2, 1])


@pytest.mark.skipif(not LINGJUN.exists(), reason="needs the released topology of Lingjun")
def test_a_real_topology() -> None:
    with LINGJUN.open(encoding="utf-8") as file:
        hosts = [row for row in csv.DictReader(file) if row["ASW"] != "ASW"]
    racks = [f"{row['PSW']}/{row['ASW']}" for row in hosts]
    cluster = make_cluster((8,) * len(hosts), rack=racks)
    jobs = make_jobs([(0, 8, 10), (0, 64, 10), (0, 512, 10)])
    places = Places(jobs, cluster)
    # Racks of up to 8 hosts: 64 GPUs fit one, 512 none.
    assert places.nearest == [FEWEST, FEWEST, ANYWHERE]
    net = Network(jobs, cluster, talking(), 0, places)
    assert len(net.lanes) == len(hosts) + len(set(racks))
    wide = places.find(2, ANYWHERE)
    assert wide is not None
    assert net.tier_of(wide.nodes) == SPINE
    assert net.speed_alone(2, wide.nodes) == 1_000_000
