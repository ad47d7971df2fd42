from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.places import NodeMap, find_place, wants
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs


def test_groups_of_two_domains(golden: Golden) -> None:
    cluster = make_cluster(
        [8, 4, 8, 2, 8],
        domain=["a", "a", "a", "b", "b"],
        model=["V100", "A100", "V100", "V100", "V100"],
        rack=["r1", "r1", "r2", "r1", "r1"],
    )
    jobs = make_jobs([(0, 1, 1)] * 6, vc=["a", "a", "b", "c", None, "b"], model=[None, "v100", "A100", None, None, "X"])
    found = assign(jobs, cluster)
    # Sorted: a/A100/r1 (node 0), a/V100/r1 (1), a/V100/r2 (2), b/V100/r1 (3 and 4).
    assert found.group_low.tolist() == [0, 1, 2, 3]
    assert found.group_high.tolist() == [1, 2, 3, 5]
    assert found.group_domain.tolist() == [0, 0, 0, 1]
    assert found.group_model.tolist() == [0, 1, 1, 1]
    assert found.group_rack.tolist() == [0, 0, 1, 0]
    assert found.group_largest.tolist() == [4, 8, 8, 8]
    assert found.group_second.tolist() == [0, 0, 0, 2]
    assert found.group_gpus.tolist() == [4, 8, 8, 10]
    assert [found.groups_of(d) for d in range(2)] == [(0, 3), (3, 4)]
    assert found.domain.tolist() == [0, 0, 1, -1, -1, 1]
    assert found.kind_accept[found.kind].tolist() == [0b111, 0b110, 0, 0, 0, 0]
    assert found.can_ever_fit().tolist() == [True, True, False, False, False, False]
    assert found.can_ever_fit("count").tolist() == [True, True, True, False, False, True]
    golden(found.notes)


def test_jobs_without_a_domain_of_their_own_share_the_nameless_one() -> None:
    cluster = make_cluster([8, 4], domain=["a", ""])
    found = assign(make_jobs([(0, 1, 1)] * 3, vc=["a", "b", None]), cluster)
    assert found.domain.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("gpus", "strict", "group", "model"),
    [
        (8, True, True, True),  # one node
        (16, True, True, True),  # both whole nodes of rack r1
        (12, True, True, True),  # one whole, 4 of the other
        (20, True, True, True),  # both whole, 4 of the node of 4
        (21, False, False, True),  # 5 left over, but the third node of the rack has 4
        (30, False, False, True),  # both racks
        (31, False, False, False),
    ],
)
def test_gangs_on_the_empty_cluster(gpus: int, strict: bool, group: bool, model: bool) -> None:
    cluster = make_cluster([8, 8, 4, 8, 2], rack=["r1", "r1", "r1", "r2", "r2"])
    found = assign(make_jobs([(0, gpus, 1)]), cluster)
    assert found.can_ever_fit().tolist() == [strict]
    assert found.can_ever_fit(relaxed=True, scope=1).tolist() == [group]
    assert found.can_ever_fit(relaxed=True, scope=2).tolist() == [model]
    assert found.can_ever_fit("count").tolist() == [gpus <= 30]


def test_models_do_not_matter_where_the_cluster_tells_none(golden: Golden) -> None:
    found = assign(make_jobs([(0, 1, 1)], model="V100"), make_cluster([8]))
    assert found.can_ever_fit().tolist() == [True]
    golden(found.notes)


def test_a_job_may_ask_for_one_of_several_models(golden: Golden) -> None:
    jobs = make_jobs([(0, 1, 1), (0, 1, 1)], model=["V100|t4", "X|Y"])
    found = assign(jobs, make_cluster([8, 8, 8], model=["A100", "T4", "V100"]))
    assert found.kind_accept[found.kind].tolist() == [0b110, 0]
    golden(found.notes)


def test_a_node_of_unknown_model_serves_only_those_who_take_any() -> None:
    found = assign(make_jobs([(0, 8, 1), (0, 8, 1)], model=["V100", None]), make_cluster([8, 4], model=["", "V100"]))
    assert found.can_ever_fit().tolist() == [False, True]


def test_more_than_64_racks_are_merged(golden: Golden) -> None:
    racks = [f"r{i:02d}" for i in range(65)]
    cluster = make_cluster([8] * 65 + [4], rack=[*racks, "r00"], model=["V100"] * 65 + ["T4"])
    found = assign(make_jobs([(0, 16, 1)]), cluster)
    assert found.group_low.tolist() == [0, 1]
    assert found.group_high.tolist() == [1, 66]
    assert found.group_rack.tolist() == [0, -1]
    assert found.can_ever_fit().tolist() == [True]
    golden(found.notes)


def test_64_groups_have_64_bits() -> None:
    cluster = make_cluster([8] * 64, rack=[f"r{i:02d}" for i in range(64)])
    found = assign(make_jobs([(0, 9, 1)]), cluster)
    assert int(found.kind_accept[found.kind[0]]) == 2**64 - 1
    assert found.can_ever_fit().tolist() == [False]
    assert found.can_ever_fit(relaxed=True).tolist() == [True]


def test_more_than_64_models_are_an_error() -> None:
    cluster = make_cluster([8] * 65, model=[f"m{i}" for i in range(65)])
    with pytest.raises(UsageError, match="the cluster has 65 GPU models, more than 64"):
        assign(make_jobs([(0, 1, 1)]), cluster)


def test_no_jobs() -> None:
    found = assign(make_jobs([]), make_cluster([8]))
    assert found.can_ever_fit().tolist() == []


def test_enormous_gangs() -> None:
    found = assign(make_jobs([(0, 2_000_000_000, 1), (0, 1, 1)]), make_cluster([8]))
    assert found.can_ever_fit().tolist() == [False, True]
    assert found.kind.tolist() == [1, 0]


@given(st.data())
def test_the_empty_cluster_is_judged_as_placement_does(data: st.DataObject) -> None:
    cluster: Cluster = data.draw(clusters(parted=True))
    jobs: Jobs = data.draw(job_lists(parted=True))
    found = assign(jobs, cluster)
    empty = NodeMap(cluster)
    empty.up = [True] * len(empty.up)
    for fit in ("place", "count"):
        for scope in (0, 1, 2):
            fits = found.can_ever_fit(fit, relaxed=scope > 0, scope=2 if scope == 2 else 1)
            for job, want in enumerate(wants(jobs, cluster)):
                place = find_place(empty, want, "consolidate", fit, scope)
                assert bool(fits[job]) == (place is not None)


@given(job_lists(parted=True), clusters(parted=True))
def test_kinds_tell_what_their_jobs_have_in_common(jobs: Jobs, cluster: Cluster) -> None:
    found = assign(jobs, cluster)
    assert np.array_equal(found.kind_devices[found.kind], jobs.devices)
    assert np.array_equal(found.kind_model[found.kind], jobs.model)
    assert np.array_equal(found.kind_domain[found.kind], found.domain)
    queue = found.kind_queue[found.kind].tolist()
    kinds = set(zip(jobs.devices.tolist(), jobs.model.tolist(), found.domain.tolist(), queue, strict=True))
    assert len(found.kind_devices) == len(kinds)


PARTS = [("gpu",), ("gpu", "rush"), ("gpu",), ("rush",)]


def test_groups_of_partitions() -> None:
    cluster = make_cluster([8, 8, 4, 8], partitions=PARTS)
    assert cluster.partition_sets == [("gpu",), ("rush",), ("gpu", "rush")]
    jobs = make_jobs([(0, 16, 1)] * 5, partition=["gpu", "rush", "gpu,rush", None, "gone"])
    found = assign(jobs, cluster)
    # Sorted: gpu (nodes of 8 and 4), rush (8), both (8). All are siblings.
    assert found.group_first.tolist() == [0, 0, 0]
    assert found.kind_accept[found.kind].tolist() == [0b101, 0b110, 0b111, 0b111, 0b111]
    assert found.kind_queue[found.kind].tolist() == [1, 0, 2, 2, 2]
    assert found.notes == ("no node is known to belong to the partition 'gone', so its 1 job may use every node",)
    # Gangs may use several siblings: 8 + 8 + 4 GPUs of gpu, and 8 + 8 of rush.
    sizes = [20, 21, 16, 17]
    parts = ["gpu", "gpu", "rush", "rush"]
    fits = assign(make_jobs([(0, size, 1) for size in sizes], partition=parts), cluster).can_ever_fit()
    assert fits.tolist() == [True, False, True, False]


def test_partitions_are_ignored_if_they_are_too_many() -> None:
    names = [(f"p{k:02}",) for k in range(65)]
    cluster = make_cluster([8] * 65, partitions=names)
    found = assign(make_jobs([(0, 8, 1)], partition="p03"), cluster)
    assert len(found.group_low) == 1
    assert found.notes[-1] == "partitions are ignored in the cluster: 65 groups of nodes are more than 64"
    assert found.can_ever_fit().tolist() == [True]
