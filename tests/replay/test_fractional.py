"""Replay of jobs that share GPUs: hand-worked cases, laws of the log, agreement with the whole-GPU engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.oracle import Rule, oracle
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.fractions.supply import RULES
from tracekit.replay.keys import by_arrival, shortest
from tracekit.replay.mechanisms import Fractional, Ordered

if TYPE_CHECKING:
    from tests.replay.oracle import Scan
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome


def run(jobs: Jobs, cluster: Cluster, rule: str = "bestfit", scan: Scan = "stop", key: Any = by_arrival) -> Outcome:
    ordered = Ordered(key, scan=scan, drift="none", by_arrival=key is by_arrival)
    mechanism = Fractional(ordered, rule, seed=3)
    return simulate(jobs, cluster, assign(jobs, cluster), mechanism, log=True)


def takes(outcome: Outcome) -> list[tuple[int, int, int, int]]:
    """(job, node, GPU, milli) of every take row."""
    assert outcome.log is not None
    rows = outcome.log[outcome.log["kind"] == 3]
    return [(int(r["job"]), int(r["node"]), int(r["gpu"]), int(r["value"])) for r in rows]


def test_two_halves_share_a_gpu_and_a_third_waits() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 20), (1, 1, 5), (2, 1, 1)], milli=[600, 400, 500, 500])
    outcome = run(jobs, make_cluster([1]))
    # 600 + 400 fill the GPU; at 10 s 600 come free: 500 start; the last 500 fit beside nothing until 15 s.
    assert outcome.first_start_ms.tolist() == [0, 0, 10_000, 15_000]
    assert outcome.end_ms.tolist() == [10_000, 20_000, 15_000, 16_000]
    assert takes(outcome) == [(0, 0, 0, 600), (1, 0, 0, 400), (2, 0, 0, 500), (3, 0, 0, 500)]
    assert outcome.held_milli_ms.tolist() == [6_000_000, 8_000_000, 2_500_000, 500_000]
    assert outcome.busy_milli_ms == 17_000_000
    assert outcome.free_milli_ms == 20_000 * 1000 - 17_000_000
    # The node is always in use, so that what is free is on a partly used node.
    assert outcome.fragmented_milli_ms == outcome.free_milli_ms


def test_cpu_and_memory_hold_a_job_back_where_they_are_known() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 10)], cpu_milli=[6000, 6000], memory_mib=[10, 10])
    assert run(jobs, make_cluster([2], cpu_milli=8000, memory_mib=100)).end_ms.tolist() == [10_000, 20_000]
    assert run(jobs, make_cluster([2], cpu_milli=12_000, memory_mib=15)).end_ms.tolist() == [10_000, 20_000]
    assert run(jobs, make_cluster([2], cpu_milli=12_000, memory_mib=20)).end_ms.tolist() == [10_000, 10_000]
    assert run(jobs, make_cluster([2], cpu_milli=-1, memory_mib=100)).end_ms.tolist() == [10_000, 10_000]


def test_a_gang_too_large_for_a_node_is_cut_into_parts() -> None:
    # 10 GPUs with 50 cores on nodes of 4: 4 + 4 + 2, with 20, 20 and 10 cores.
    jobs = make_jobs([(0, 10, 5), (1, 1, 1), (1, 2, 1)], cpu_milli=[50_000, 31_000, 0])
    outcome = run(jobs, make_cluster([4, 4, 4], cpu_milli=40_000), scan="skip")
    held = [take for take in takes(outcome) if take[0] == 0]
    assert sorted(held) == [(0, n, g, 1000) for n, gpus in ((0, 4), (1, 4), (2, 2)) for g in range(gpus)]
    assert outcome.nodes_spanned.tolist() == [3, 1, 1]
    # The second job finds 30 cores beside the rest; the third asks for none.
    assert outcome.first_start_ms.tolist() == [0, 5000, 1000]


def test_parts_are_smaller_where_cpu_is_short_and_a_gang_without_nodes_enough_is_rejected() -> None:
    jobs = make_jobs([(0, 4, 5), (0, 6, 5)], cpu_milli=[40_000, 120_000])
    outcome = run(jobs, make_cluster([4, 4], cpu_milli=30_000))
    # Of the first, 3 GPUs with 30 cores on a node; of the second 1 GPU with 20 cores each: 6 nodes are not there.
    assert outcome.nodes_spanned.tolist() == [2, 0]
    assert outcome.unschedulable.tolist() == [False, True]
    assert sorted((node, gpu) for _, node, gpu, _ in takes(outcome)) == [(0, 0), (0, 1), (0, 2), (1, 0)]


def test_one_of_several_models_and_the_domain_are_respected() -> None:
    cluster = make_cluster([1, 1, 1], model=["a", "b", "c"])
    jobs = make_jobs([(0, 1, 5), (0, 1, 5), (0, 1, 5)], model=["B|c", "b|C", "b"])
    outcome = run(jobs, cluster)
    assert [node for _, node, _, _ in takes(outcome)] == [1, 2, 1]
    assert outcome.first_start_ms.tolist() == [0, 0, 5000]
    divided = make_cluster([1, 1], domain=["x", "y"])
    outcome = run(make_jobs([(0, 1, 5), (0, 1, 5), (0, 1, 5)], vc=["y", "y", "z"]), divided)
    assert [node for _, node, _, _ in takes(outcome)] == [1, 1]
    assert outcome.unschedulable.tolist() == [False, False, True]


def test_a_node_that_leaves_takes_no_more_jobs() -> None:
    cluster = make_cluster([1, 1], changes=[(1, 0, False), (20, 0, True)])
    jobs = make_jobs([(0, 1, 10), (0, 1, 12), (2, 1, 5), (2, 1, 5), (2, 1, 9)])
    outcome = run(jobs, cluster)
    # Node 0 ends its job at 10 s but is gone until 20 s.
    assert [node for _, node, _, _ in takes(outcome)] == [0, 1, 1, 1, 0]
    assert outcome.first_start_ms.tolist() == [0, 0, 12_000, 17_000, 20_000]
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome) == []


def test_an_unknown_rule_is_reported() -> None:
    with pytest.raises(UsageError, match="no placement rule 'best'"):
        run(make_jobs([(0, 1, 1)]), make_cluster([1]), "best")


@tried(
    5,
    25,
    job_lists(sizes=st.just(1), typed=False),
    st.lists(st.integers(1, 8), min_size=1, max_size=5),
    st.sampled_from(["stop", "skip"]),
)
@pytest.mark.parametrize("rule", RULES)
def test_with_jobs_of_one_whole_gpu_every_rule_is_fifo(rule: str, jobs: Jobs, nodes: list[int], scan: Scan) -> None:
    cluster = make_cluster(nodes)
    outcome = run(jobs, cluster, rule, scan)
    plain = simulate(jobs, cluster, assign(jobs, cluster), Ordered(by_arrival, scan=scan))
    for name in ("first_start_ms", "end_ms", "run_ms", "held_milli_ms", "nodes_spanned", "unschedulable"):
        assert getattr(outcome, name).tolist() == getattr(plain, name).tolist(), name
    assert outcome.busy_milli_ms == plain.busy_milli_ms
    assert outcome.free_milli_ms == plain.free_milli_ms


@given(job_lists(sizes=st.sampled_from([1, 2, 3, 4])), st.integers(1, 4), st.sampled_from(["stop", "skip"]))
def test_by_the_shortest_first_the_order_is_that_of_the_oracle(jobs: Jobs, nodes: int, scan: Scan) -> None:
    # On nodes of one GPU each part of a gang has a node: only numbers matter.
    jobs = make_jobs([(s / 1000, 1, w / 1000) for s, w in zip(jobs.submit_ms, jobs.work_ms, strict=True)])
    cluster = make_cluster([1] * nodes)
    outcome = run(jobs, cluster, "fgd", scan, key=shortest)
    truth = oracle(jobs, cluster, Rule(order="sjf", mode="list", scan=scan))
    assert outcome.end_ms.tolist() == truth.end_ms


@given(st.data(), job_lists(), clusters(), st.sampled_from(RULES), st.sampled_from(["stop", "skip"]))
def test_the_laws_hold_on_random_cases(
    data: st.DataObject, jobs: Jobs, cluster: Cluster, rule: str, scan: Scan
) -> None:
    shares = data.draw(st.lists(st.sampled_from([1000, 1000, 500, 250, 370]), min_size=len(jobs), max_size=len(jobs)))
    cores = data.draw(st.lists(st.integers(0, 20), min_size=len(jobs), max_size=len(jobs)))
    jobs.milli[:] = shares
    jobs.cpu_milli[:] = np.array(cores) * jobs.devices
    cluster.cpu_milli[:] = 20 * cluster.gpus
    outcome = run(jobs, cluster, rule, scan)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, scan=scan) == []
    assert _cpu_is_kept(jobs, cluster, outcome)


def _cpu_is_kept(jobs: Jobs, cluster: Cluster, outcome: Outcome) -> bool:
    """Follow the log: on no node do the jobs have more CPU than it has (parts round up to a milli-core)."""
    assert outcome.log is not None
    left = cluster.cpu_milli.astype(float) + len(jobs)
    held: dict[int, list[int]] = {}
    for row in outcome.log:
        job, node = int(row["job"]), int(row["node"])
        if row["kind"] == 3:
            left[node] -= jobs.cpu_milli[job] / jobs.devices[job]
            held.setdefault(job, []).append(node)
        elif row["kind"] == 5:
            for each in held.pop(job):
                left[each] += jobs.cpu_milli[job] / jobs.devices[job]
        if left.min() < -1e-6:
            return False
    return True
