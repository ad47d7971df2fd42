from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_jobs
from tracekit.errors import UsageError
from tracekit.manifest import Capability
from tracekit.replay.api import scenario_of
from tracekit.replay.clusters.cluster import cluster_under, shares_of
from tracekit.replay.clusters.of_trace import cluster_of_trace, observed_cluster
from tracekit.replay.workload.from_trace import jobs_of_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.trace import Trace

JOBS = make_jobs([(0, 1, 1)])  # the first submission is 2020-01-01 00:00 UTC
DAY = 86_400_000


def job(number: int, **facts: Any) -> dict[str, Any]:
    facts = {"submit_time": "2020-01-01", "gpu_count": 1, "cluster": "c", **facts}
    return {"job_id": f"j{number}", **facts}


NODES = [
    {"node_id": "m3", "cluster": "c", "gpu_count": 8, "gpu_model": "V100", "vc": "b", "rack": "r2"},
    {"node_id": "m1", "cluster": "c", "gpu_count": 4, "gpu_model": "T4", "vc": "b", "cpu_count": 7.5, "memory_gib": 2},
    {"node_id": "m2", "cluster": "c", "gpu_count": 0, "vc": "b"},
    {"node_id": "m4", "cluster": "c", "gpu_count": 8, "gpu_model": "V100", "vc": "a", "rack": "r1"},
    {"node_id": "m5", "cluster": "c"},
    {"node_id": "m6", "gpu_count": 8, "gpu_model": "V100", "vc": "b", "rack": "r2"},
    {"node_id": "m7", "cluster": "other", "gpu_count": 8},
]


def test_nodes_of_the_trace(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[job(1)], nodes=NODES)
    found = cluster_of_trace(trace, JOBS)
    assert found.node_id == ["m1", "m4", "m3", "m6"]  # T4; V100 in r1; V100 in r2
    assert found.gpus.tolist() == [4, 8, 8, 8]
    assert (found.domains, found.models, found.racks) == ([""], ["T4", "V100"], ["", "r1", "r2"])
    assert found.model.tolist() == [0, 1, 1, 1]
    assert found.rack.tolist() == [0, 1, 2, 2]
    assert found.cpu_milli.tolist() == [7500, -1, -1, -1]
    assert found.memory_mib.tolist() == [2048, -1, -1, -1]
    assert found.origin == "nodes of the Trace"
    assert found.tenants == []
    divided = cluster_of_trace(trace, JOBS, partitioned=True)
    assert divided.node_id == ["m4", "m1", "m3", "m6"]
    assert divided.domains == ["a", "b"]
    assert divided.domain.tolist() == [0, 1, 1, 1]


def test_more_and_fewer_nodes(make_trace: Callable[..., Trace], golden: Golden) -> None:
    quota = [{"time": "2019-01-01", "cluster": "c", "vc": vc, "gpu_count": gpus} for vc, gpus in (("a", 15), ("b", 13))]
    trace = make_trace(jobs=[job(1)], nodes=NODES, capacity=quota)
    assert cluster_of_trace(trace, JOBS).quota.tolist() == [[15, 13]]
    fewer = cluster_of_trace(trace, JOBS, gpus=0.5)
    assert fewer.node_id == ["m1", "m4", "m3"]  # at least one of each group; of two in r2 the first
    assert fewer.quota.tolist() == [[8, 6]]  # of 14: 7.5 and 6.5, the tie to the first
    more = cluster_of_trace(trace, JOBS, gpus=1.5)
    assert more.node_id == ["m1", "m1-2", "m4", "m4-2", "m3", "m6", "m3-2"]
    assert more.quota.tolist() == [[23, 19]]  # of 42: 22.5 and 19.5
    golden(more.origin)


CAPACITY = [
    {"time": time, "cluster": "c", "vc": vc, "gpu_count": gpus}
    for time, vc, gpus in [
        ("2019-12-30", "a", 24),  # superseded before the first submission
        ("2019-12-31", "a", 16),
        ("2020-01-02", "a", 20),
        ("2020-01-03", "a", 8),
        ("2020-01-02", "b", 3),
        ("2019-12-31", "z", 0),
        ("2019-12-31", None, 999),
    ]
]


def test_nodes_of_quotas_that_change(make_trace: Callable[..., Trace], golden: Golden) -> None:
    found = cluster_of_trace(make_trace(jobs=[job(1)], capacity=CAPACITY), JOBS, partitioned=True)
    assert found.domains == ["a", "b"]
    assert found.tenants == ["a", "b", "z"]
    # What b owns before its first row is unknown: its first row is the best guess.
    assert found.quota_ms.tolist() == [-DAY, DAY, 2 * DAY]
    assert found.quota.tolist() == [[16, 3, 0], [20, 3, 0], [8, 3, 0]]
    assert found.node_id == ["a-0000", "a-0001", "a-rest-4", "b-rest-3"]
    assert found.gpus.tolist() == [8, 8, 4, 3]
    assert found.absent.tolist() == [0, 0, 1, 0]
    assert found.change_ms.tolist() == [DAY, 2 * DAY, 2 * DAY]
    assert found.change_node.tolist() == [2, 1, 2]
    assert found.change_up.tolist() == [1, 0, 0]
    golden(found.origin)
    assert not found.lendable  # the user divides them, not the source


def test_nodes_of_quotas_are_shared_unless_the_source_divides_them(
    make_trace: Callable[..., Trace], golden: Golden
) -> None:
    quotas = [row for row in CAPACITY if row["vc"] is not None]
    shared = cluster_of_trace(make_trace(jobs=[job(1)], capacity=quotas), JOBS)
    assert (shared.domains, shared.tenants, shared.lendable) == ([""], ["a", "b", "z"], False)
    trace = make_trace(jobs=[job(1)], capacity=quotas, manifest_overrides={"format": "helios"})
    divided = cluster_of_trace(trace, JOBS)
    assert (divided.domains, divided.lendable) == (["a", "b"], True)
    golden(divided.origin)
    assert not cluster_of_trace(trace, JOBS, partitioned=True).lendable
    assert cluster_of_trace(trace, JOBS, partitioned=False).domains == [""]


def test_a_policy_that_lends_uses_the_nodes_of_all_vcs(make_trace: Callable[..., Trace], golden: Golden) -> None:
    quotas = [row for row in CAPACITY if row["vc"] is not None]
    trace = make_trace(jobs=[job(1)], capacity=quotas, manifest_overrides={"format": "helios"})
    divided = cluster_of_trace(trace, JOBS)
    assert cluster_under(divided, lends=False) is divided
    pooled = cluster_under(divided, lends=True)
    assert (pooled.domains, pooled.node_id, pooled.total_gpus) == ([""], divided.node_id, divided.total_gpus)
    assert list(pooled.effective_changes()) == list(divided.effective_changes())
    golden(pooled.origin)
    asked = cluster_of_trace(trace, JOBS, partitioned=True)
    assert cluster_under(asked, lends=True) is asked


def test_pooled_nodes_stay_in_order_of_model_and_rack(make_trace: Callable[..., Trace]) -> None:
    made = cluster_of_trace(make_trace(jobs=[job(1)], nodes=NODES), JOBS, partitioned=True)
    assert made.node_id == ["m4", "m1", "m3", "m6"]
    changing = replace(
        made,
        lendable=True,
        change_ms=np.array([5]),
        change_node=np.array([1], np.int32),
        change_up=np.array([0], np.int8),
    )
    pooled = cluster_under(changing, lends=True)
    whole = cluster_of_trace(make_trace(jobs=[job(1)], nodes=NODES), JOBS)
    assert pooled.node_id == whole.node_id == ["m1", "m4", "m3", "m6"]
    for column in ("gpus", "model", "rack", "domain", "cpu_milli", "memory_mib"):
        assert getattr(pooled, column).tolist() == getattr(whole, column).tolist()
    assert pooled.change_node.tolist() == [0]  # still m1


@pytest.mark.parametrize(
    ("policy", "starts_at_once"),
    [
        ("fifo", False),
        ("kueue,cohort=off", False),
        ("limits", False),
        ("hived", False),
        ("kueue", True),
        ("limits,lend=idle", True),
        ("limits,lend=reclaim", True),
        ("philly", True),
    ],
)
def test_lending_gains_where_the_nodes_belong_to_vcs(
    policy: str, starts_at_once: bool, make_trace: Callable[..., Trace]
) -> None:
    """a and b have a node of 8 GPUs each; two jobs of 8 GPUs and an hour come in a, none in b."""
    day = "2020-01-01 "
    times = {"submit_time": day + "00:00", "start_time": day + "00:00", "end_time": day + "01:00", "run_s": 3600}
    jobs = [job(n, vc="a", gpu_count=8, status="completed", **times) for n in (1, 2)]
    quotas = [{"time": "2019-12-31", "cluster": "c", "vc": vc, "gpu_count": 8} for vc in "ab"]
    trace = make_trace(jobs=jobs, capacity=quotas, manifest_overrides={"format": "helios"})
    waits = sorted(scenario_of(trace).run(policy).outcome.first_start_ms.tolist())
    assert waits == [0, 0 if starts_at_once else 3_600_000]
    alone = sorted(scenario_of(trace, partitioned=True).run(policy).outcome.first_start_ms.tolist())
    assert alone == [0, 3_600_000]


def test_nodes_of_the_sum_of_quotas(make_trace: Callable[..., Trace], golden: Golden) -> None:
    quotas = [row for row in CAPACITY if row["vc"] is not None]
    found = cluster_of_trace(make_trace(jobs=[job(1)], capacity=quotas), JOBS)
    # 19, 23 and 11 GPUs.
    assert found.domains == [""]
    assert found.gpus.tolist() == [8, 8, 3, 7]
    assert found.absent.tolist() == [0, 0, 0, 1]
    moves = zip(found.change_ms.tolist(), found.change_node.tolist(), found.change_up.tolist(), strict=True)
    assert list(moves) == [(DAY, 2, 0), (DAY, 3, 1), (2 * DAY, 1, 0), (2 * DAY, 2, 1), (2 * DAY, 3, 0)]
    assert found.quota.tolist() == [[16, 3, 0], [20, 3, 0], [8, 3, 0]]
    # Quotas are no machines: a total that the source states goes before their sum.
    total = cluster_of_trace(make_trace(jobs=[job(1)], capacity=CAPACITY), JOBS)
    assert (total.total_gpus, total.domains) == (999, [""])
    assert total.quota.tolist() == found.quota.tolist()
    golden([found.origin, total.origin])


def test_quotas_with_more_nodes_and_load(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[job(1)], capacity=[row for row in CAPACITY if row["vc"] is not None])
    found = cluster_of_trace(trace, JOBS, gpus=1.5, load=2, partitioned=True)
    # Whole nodes times 1.5, halves up (2 to 3, 1 to 2); remainders stay.
    assert found.quota.tolist() == [[24, 3, 0], [28, 3, 0], [16, 3, 0]]
    assert found.quota_ms.tolist() == [-DAY // 2, DAY // 2, DAY]
    together = cluster_of_trace(trace, JOBS, gpus=1.5, partitioned=False)
    assert together.quota.sum(axis=1).tolist() == [27, 31, 19]  # 19, 23 and 11 GPUs before


def test_a_total_without_vcs(make_trace: Callable[..., Trace], golden: Golden) -> None:
    trace = make_trace(jobs=[job(1)], capacity=CAPACITY[-1:])
    found = cluster_of_trace(trace, JOBS)
    assert found.domains == [""]
    assert found.total_gpus == 999
    golden(found.origin)
    with pytest.raises(UsageError, match="the capacity of the Trace has no VC"):
        cluster_of_trace(trace, JOBS, partitioned=True)


def held(number: int, vc: str, start: str, end: str, gpus: float, nodes: int | None = None) -> dict[str, Any]:
    day = "2020-01-01 "
    facts = {"vc": vc, "start_time": day + start, "end_time": day + end, "gpu_count": gpus, "node_count": nodes}
    return job(number, **facts)


USE = [
    held(1, "a", "00:00", "10:00", 4),
    held(2, "a", "00:00", "00:30", 40),  # 5 % of the time exactly: above the 95th percentile
    held(3, "b", "02:00", "05:00", 2.5),
    held(4, "b", "05:00", "10:00", 1),
]


def without_retries(make_trace: Callable[..., Trace], **tables: Any) -> Trace:
    off = {"capabilities": {"retries": Capability(available=False, coverage=0.0)}}
    return make_trace(manifest_overrides=off, **tables)


def test_quotas_estimated_from_use(make_trace: Callable[..., Trace]) -> None:
    node = {"node_id": "m", "cluster": "c", "gpu_count": 12}
    found = cluster_of_trace(without_retries(make_trace, jobs=USE, nodes=[node]), JOBS)
    # a: 4 in 95 % of the time; b: 2.5 for the last 30 %. 12 GPUs in these proportions are 7.38 and 4.62.
    assert found.tenants == ["a", "b"]
    assert found.quota.tolist() == [[7, 5]]
    assert "quotas estimated" in found.origin


def test_the_observed_cluster(make_trace: Callable[..., Trace], golden: Golden) -> None:
    found = cluster_of_trace(without_retries(make_trace, jobs=USE), JOBS)
    assert found.gpus.tolist() == [8] * 6  # 44 GPUs at 00:00
    golden(found.origin)
    assert found.quota.sum() == 48
    divided = observed_cluster(without_retries(make_trace, jobs=USE), JOBS, partitioned=True)
    assert divided.domains == ["a", "b"]
    assert np.bincount(divided.domain).tolist() == [6, 1]
    sized = [*USE, held(5, "b", "09:00", "10:00", 24, 2)]  # 12 a node; 29 GPUs at 09:00 are fewer than 44
    assert cluster_of_trace(without_retries(make_trace, jobs=sized), JOBS).gpus.tolist() == [12] * 4
    assert cluster_of_trace(without_retries(make_trace, jobs=sized), JOBS, gpus=0.5).gpus.tolist() == [12] * 2


def test_attempts_tell_what_was_held(make_trace: Callable[..., Trace]) -> None:
    tries = [
        {"job_id": "j2", "attempt": 0, "start_time": "2020-01-01 00:00", "end_time": "2020-01-01 00:10", "gpu_count": 9}
    ]
    found = cluster_of_trace(make_trace(jobs=USE, attempts=tries), JOBS)
    assert found.gpus.tolist() == [8, 8]


def test_jobs_that_tell_no_interval(make_trace: Callable[..., Trace]) -> None:
    found = cluster_of_trace(make_trace(jobs=[job(1)]), make_jobs([(0, 9, 1)]))
    assert found.gpus.tolist() == [8, 8]


def test_a_log_without_gpus_has_the_cluster_of_its_largest_gang(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("swf")
    assert cluster_of_trace(trace, make_jobs([(0, 3, 1)])).gpus.tolist() == [8]
    with pytest.raises(UsageError, match="neither the tables nor the jobs of the Trace list any GPU"):
        cluster_of_trace(trace, make_jobs([]))


def test_mistakes_are_one_line(make_trace: Callable[..., Trace]) -> None:
    two = make_trace(jobs=[job(1), job(2, cluster="d")])
    with pytest.raises(UsageError, match="the Trace has several clusters; choose one of: c, d"):
        cluster_of_trace(two, JOBS)
    with pytest.raises(UsageError, match="no cluster 'e'; choose one of: c, d"):
        cluster_of_trace(two, JOBS, cluster="e")
    bare = make_trace(jobs=[job(1)], nodes=[{"node_id": "m", "cluster": "c", "gpu_count": 8}])
    with pytest.raises(UsageError, match="the nodes of the Trace belong to no VC"):
        cluster_of_trace(bare, JOBS, partitioned=True)
    with pytest.raises(UsageError, match="no VC of the Trace has GPUs"):
        observed_cluster(bare, JOBS, partitioned=True)
    for factor in (0.0, -1.0, float("nan"), float("inf"), 1001.0):
        with pytest.raises(UsageError, match="the GPU factor must be above 0"):
            cluster_of_trace(bare, JOBS, gpus=factor)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), st.integers(0, 10**6))
def test_shares_sum_exactly_and_differ_less_than_one_from_the_proportion(weights: list[int], total: int) -> None:
    shares = shares_of(np.array(weights, dtype=np.int64), total)
    assert shares.sum() == total
    whole = sum(weights)
    for share, weight in zip(shares.tolist(), weights, strict=True):
        exact = total * weight / whole if whole else total / len(weights)
        assert abs(share - exact) < 1 + 1e-9


@pytest.mark.parametrize(
    ("sample", "cluster", "nodes", "gpus"),
    [
        ("alibaba-pai", None, 88, None),
        ("philly", None, 30, 138),
        ("slurm", None, None, None),
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in (
                ("alibaba-openb", None, 110, None),
                ("alibaba-spot", None, 47, None),
                ("helios", "Earth", None, None),
                ("helios", "Venus", None, None),
                ("acme", "Seren", None, None),
                ("acme", "Kalos", None, None),
                ("alibaba-dlrm", None, None, None),
            )
        ),
    ],
)
def test_every_sample_trace_has_a_cluster(
    sample: str,
    cluster: str | None,
    nodes: int | None,
    gpus: int | None,
    sample_trace: Callable[[str], Trace],
) -> None:
    trace = sample_trace(sample)
    jobs = jobs_of_trace(trace, cluster=cluster)
    found = cluster_of_trace(trace, jobs, cluster=cluster)
    assert found.total_gpus >= 1
    assert found.gpus.min() >= 1
    assert nodes is None or found.nodes == nodes
    assert gpus is None or found.total_gpus == gpus
    assert (np.diff(found.quota_ms) > 0).all()
    if not trace.has("capacity") and found.tenants:
        assert found.quota.sum() == found.total_gpus


def quota_through_time(found: Cluster) -> dict[int, list[int]]:
    """GPUs of the nodes that are there, by domain, at each time of the quotas, as the changes say."""
    there = found.absent == 0
    at = {}
    for time in found.quota_ms.tolist():
        for row in np.flatnonzero(found.change_ms == time).tolist():
            assert there[found.change_node[row]] != bool(found.change_up[row])
            there[found.change_node[row]] = bool(found.change_up[row])
        sums = np.bincount(found.domain[there], found.gpus[there], len(found.domains))
        at[time] = sums.astype(int).tolist()
    return at


def test_released_quotas_of_earth(real_data: Callable[[str], Path], make_trace: Callable[..., Trace]) -> None:
    with real_data("helios/Earth_cluster_gpu_number.csv").open() as file:
        header, *days = list(csv.reader(file))
    vcs = [name for name in header[1:] if name != "total"]
    capacity = [
        {"time": day[0], "cluster": "Earth", "vc": vc, "gpu_count": float(day[header.index(vc)])}
        for day in days
        for vc in vcs
    ]
    earth = make_trace(jobs=[job(1, cluster="Earth")], capacity=capacity, manifest_overrides={"format": "helios"})
    found = cluster_of_trace(earth, JOBS)
    assert found.tenants == sorted(vcs)
    for time, sums in quota_through_time(found).items():
        day = days[(time - int(found.quota_ms[0])) // DAY]
        stated = {vc: int(float(day[header.index(vc)])) for vc in vcs}
        assert dict(zip(found.domains, sums, strict=True)) == {vc: stated[vc] for vc in found.domains}
        assert found.quota[found.quota_ms == time].tolist() == [[stated[vc] for vc in found.tenants]]
    together = cluster_of_trace(make_trace(jobs=[job(1, cluster="Earth")], capacity=capacity), JOBS, partitioned=False)
    for (_, sums), row in zip(quota_through_time(together).items(), together.quota, strict=True):
        assert sums == [row.sum()]
