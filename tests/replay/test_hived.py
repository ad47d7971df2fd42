"""Private cells: worked cases, the guarantee, and agreement with plain Python."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.cells_oracle import cells_oracle
from tests.replay.engines import run_engine
from tests.replay.strategies import VCS, clusters, job_lists
from tests.replay.test_against_oracle import agree
from tracekit.errors import UsageError
from tracekit.policies.tenants import HiveD
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.cells.private import deal_cells
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Cells, Ordered

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

OVERHEADS = {"none": (0, 0, 0), "helios": (7_000, 30_000, 60_000)}
TIMES = ("first_start_ms", "end_ms", "run_ms", "overhead_ms", "preemptions", "migrations", "held_milli_ms")


def cells_of(cluster: Cluster, quota: dict[str, int]) -> dict[str, list[int]]:
    """Sizes of each VC's cells."""
    private = deal_cells(cluster, list(quota), np.array(list(quota.values()), np.int64)).cluster
    return {name: private.gpus[private.domain == vc].tolist() for vc, name in enumerate(quota)}


def gpus_taken(outcome: Outcome) -> dict[int, list[tuple[int, int]]]:
    """(node, GPU) of all that each job held, sorted."""
    assert outcome.log is not None
    found: dict[int, set[tuple[int, int]]] = {}
    for row in outcome.log[outcome.log["kind"] == 3]:
        found.setdefault(int(row["job"]), set()).add((int(row["node"]), int(row["gpu"])))
    return {job: sorted(places) for job, places in found.items()}


def block(node: int, first: int, gpus: int) -> list[tuple[int, int]]:
    return [(node, gpu) for gpu in range(first, first + gpus)]


# ---- dealing ----


def test_a_quota_is_whole_nodes_and_smaller_blocks() -> None:
    assert cells_of(make_cluster([8] * 3), {"a": 12, "b": 11, "c": 1}) == {"a": [8, 4], "b": [8, 2, 1], "c": [1]}


def test_each_kind_of_node_is_dealt_in_proportion() -> None:
    # 24 GPUs in nodes of 8 and 8 in nodes of 2: three quarters and one quarter of each quota.
    assert cells_of(make_cluster([8, 8, 8, 2, 2, 2, 2]), {"a": 16, "b": 16}) == {
        "a": [8, 4, 2, 2],
        "b": [8, 4, 2, 2],
    }


def test_quotas_beyond_the_cluster_are_scaled_and_what_is_left_over_is_nobodys() -> None:
    assert cells_of(make_cluster([8, 8]), {"a": 24, "b": 8}) == {"a": [8, 4], "b": [4]}
    assert cells_of(make_cluster([8, 8]), {"a": 3, "b": 0}) == {"a": [2, 1], "b": []}


def test_nodes_of_six_are_divided_into_four_and_two() -> None:
    # One node of each VC is whole. The last divides into 4 and 2, so that c cannot have a second 4: it gets 2 + 1 + 1.
    dealt = deal_cells(make_cluster([6] * 4), ["a", "b", "c"], np.array([10, 10, 4]))
    private = dealt.cluster
    assert [private.gpus[private.domain == vc].tolist() for vc in range(3)] == [[6, 4], [6, 4], [2, 2]]
    assert dealt.chain.tolist() == [0, 0, 1, 1]
    assert dealt.whole.tolist() == [True, False]


def test_a_domain_belongs_to_its_vc() -> None:
    cluster = make_cluster([8, 8, 4], domain=["a", "b", "b"])
    assert cells_of(cluster, {"a": 1, "b": 1, "c": 18}) == {"a": [8], "b": [8, 4], "c": []}


def test_a_node_too_large_to_divide_is_refused() -> None:
    with pytest.raises(UsageError, match="n0 has 65 GPUs"):
        deal_cells(make_cluster([65]), ["a"], np.array([65]))


@given(clusters(), st.lists(st.integers(0, 40), min_size=3, max_size=3))
def test_cells_are_within_nodes_and_quotas(cluster: Cluster, quota: list[int]) -> None:
    dealt = deal_cells(cluster, VCS, np.array(quota))
    private = dealt.cluster
    if cluster.domains == [""]:
        held = np.bincount(private.domain, weights=private.gpus, minlength=3)
        assert (held <= quota).all() or sum(quota) > cluster.total_gpus
        assert held.sum() == min(sum(quota), cluster.total_gpus)
    for chain in range(len(dealt.whole)):
        nodes = cluster.gpus[dealt.chain == chain]
        cells = private.gpus[private.rack == chain]
        assert cells.sum() <= nodes.sum()
        assert set(cells) <= {nodes.max(initial=0)} if dealt.whole[chain] else all(n & (n - 1) == 0 for n in cells)


# ---- worked cases ----


def test_a_vc_finds_its_cell_whatever_the_others_do() -> None:
    # By quota alone b's jobs of 1 GPU could stand on both nodes when a's job of 8 comes.
    jobs = make_jobs([(0, 1, 100), (0, 8, 1), (0, 1, 100), (2, 1, 100), (3, 8, 5)], vc=["b", "a", "b", "b", "a"])
    outcome = run_engine(jobs, make_cluster([8, 8], quota={"a": 8, "b": 8}), "hived")
    assert outcome.first_start_ms.tolist() == [0, 0, 0, 2000, 3000]
    assert gpus_taken(outcome) == {
        0: block(0, 0, 1),
        1: block(1, 0, 8),
        2: block(0, 1, 1),
        3: block(0, 2, 1),
        4: block(1, 0, 8),
    }


def test_a_vc_does_not_use_what_another_leaves_idle() -> None:
    jobs = make_jobs([(0, 8, 10), (0, 8, 10), (0, 1, 10)], vc=["a", "a", "b"])
    outcome = run_engine(jobs, make_cluster([8, 8], quota={"a": 8, "b": 8}), "hived")
    assert outcome.first_start_ms.tolist() == [0, 10_000, 0]


def test_who_has_no_guarantee_runs_on_idle_cells_and_makes_way() -> None:
    jobs = make_jobs(
        [(0, 8, 100), (0, 4, 100), (10, 4, 20), (20, 8, 20)], vc=["b", "b", "a", "a"], preemptible=[1, 1, 0, 0]
    )
    cluster = make_cluster([8, 8], quota={"a": 8, "b": 8})
    outcome = run_engine(jobs, cluster, "hived,opportunistic=preemptible,overhead=helios")
    # 10 s: a's cell goes to node 1, where 4 GPUs are idle, and its job to its first half, where job 1 stands: that
    # one moves to the other half. 20 s: job 3 waits for the cell, which is empty at 30 s; job 1 must go, and finds
    # no place before 50 s, when it has served 10 s, then 20 s of its 30 s of overhead.
    assert outcome.first_start_ms.tolist() == [0, 0, 10_000, 30_000]
    assert outcome.end_ms.tolist() == [100_000, 180_000, 30_000, 50_000]
    assert outcome.migrations.tolist() == [0, 1, 0, 0]
    assert outcome.preemptions.tolist() == [0, 1, 0, 0]
    assert outcome.columns["guaranteed"].tolist() == [0, 0, 1, 1]


def test_a_job_larger_than_its_vc_is_opportunistic_or_rejected() -> None:
    jobs = make_jobs([(0, 16, 10), (0, 8, 10), (0, 1, 10)], vc=["a", "b", None])
    cluster = make_cluster([8, 8], quota={"a": 8, "b": 8})
    assert run_engine(jobs, cluster, "hived").first_start_ms.tolist() == [10_000, 0, 0]
    outcome = run_engine(jobs, cluster, "hived,oversize=reject")
    assert outcome.unschedulable.tolist() == [True, False, True]


def test_priorities_tell_who_is_guaranteed() -> None:
    jobs = make_jobs([(0, 8, 10), (1, 8, 10)], vc="a", priority=[0, 1])
    cluster = make_cluster([8], quota={"a": 8})
    outcome = run_engine(jobs, cluster, "hived,opportunistic=priority,guaranteed_from=1,overhead=none")
    assert outcome.first_start_ms.tolist() == [0, 1000]
    assert outcome.end_ms.tolist() == [20_000, 11_000]


def test_a_cell_on_a_node_that_left_takes_no_new_job() -> None:
    jobs = make_jobs([(0, 4, 20), (5, 4, 10), (6, 8, 1), (30, 4, 1)], vc=["a", "a", "b", "a"])
    cluster = make_cluster([8, 8], quota={"a": 8, "b": 8}, changes=[(2, 0, False), (50, 0, True)])
    outcome = run_engine(jobs, cluster, "hived")
    # a's cell stays on node 0 until its job ends at 20 s; then b's is idle, and a's is bound to node 1.
    assert outcome.first_start_ms.tolist() == [0, 20_000, 6_000, 30_000]
    assert gpus_taken(outcome)[1] == block(1, 0, 4)


# ---- laws ----


@st.composite
def cases(draw: st.DrawFn, /, **options: Any) -> tuple[Jobs, Cluster, str]:
    jobs = draw(job_lists())
    n = len(jobs)
    flags = draw(st.lists(st.sampled_from([0, 1, -1]), min_size=n, max_size=n))
    jobs = replace(jobs, preemptible=np.array(flags, np.int8), priority=np.array(flags, np.int32))
    chosen = [
        "hived",
        draw(st.sampled_from(["opportunistic=none", "opportunistic=preemptible", "opportunistic=priority"])),
        draw(st.sampled_from(["scan=skip", "scan=stop"])),
        draw(st.sampled_from(["overhead=none", "overhead=helios"])),
        draw(st.sampled_from(["oversize=opportunistic", "oversize=reject"])),
    ]
    return jobs, draw(clusters(**options)), ",".join(chosen)


def mechanism_of(jobs: Jobs, cluster: Cluster, policy: str) -> Cells:
    given_ = dict(item.split("=") for item in policy.split(",")[1:])
    return HiveD(**given_).mechanism(jobs, cluster, load_models(None), 0)


@tried(70, 200, cases())
def test_engine_and_oracle_agree(case: tuple[Jobs, Cluster, str]) -> None:
    jobs, cluster, policy = case
    mechanism = mechanism_of(jobs, cluster, policy)
    engine = simulate(jobs, cluster, assign(jobs, cluster), mechanism, log=True)
    truth = cells_oracle(jobs, cluster, mechanism, OVERHEADS["helios" if "helios" in policy else "none"])
    agree(engine, truth)
    assert engine.held_milli_ms.tolist() == truth.held_milli_ms
    assert engine.nodes_spanned.tolist() == truth.nodes_spanned
    assert engine.log is not None
    assert audit(jobs, cluster, engine.log, engine, gang="rounded") == []


@tried(23, 66, cases(changing=False))
def test_guaranteed_jobs_run_as_in_a_cluster_of_their_own(case: tuple[Jobs, Cluster, str]) -> None:
    jobs, cluster, policy = case
    mechanism = mechanism_of(jobs, cluster, policy)
    outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism)
    own = np.flatnonzero(mechanism.guaranteed)
    arrays: dict[str, Any] = {name: value[own] for name, value in vars(jobs).items() if isinstance(value, np.ndarray)}
    few = replace(jobs, job_id=jobs.job_id.gather(own), **arrays)
    private = mechanism.cells.cluster
    order = Ordered(by_arrival, scan=mechanism.order.scan, drift="none", by_arrival=True)
    alone = simulate(few, private, assign(few, private), order, rule="buddy")
    for name in TIMES:
        assert getattr(outcome, name)[own].tolist() == getattr(alone, name).tolist(), name


@tried(
    21,
    60,
    job_lists(typed=False),
    st.integers(1, 5),
    st.sampled_from([1, 2, 4, 8, 6, 3]),
    st.sampled_from(["skip", "stop"]),
)
def test_one_vc_that_owns_all_is_fifo_in_blocks(jobs: Jobs, nodes: int, size: int, scan: str) -> None:
    jobs = replace(jobs, tenant=np.zeros(len(jobs), np.int32))
    cluster = make_cluster([size] * nodes, quota={"a": nodes * size})
    one = run_engine(jobs, cluster, f"hived,oversize=reject,scan={scan}")
    two = run_engine(jobs, cluster, f"fifo,scan={scan}", "buddy")
    for name in (*TIMES, "nodes_spanned", "unschedulable"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name


@tried(21, 60, job_lists(), clusters(), st.sampled_from(["skip", "stop"]))
def test_without_guarantees_it_is_fifo_in_blocks(jobs: Jobs, cluster: Cluster, scan: str) -> None:
    jobs = replace(jobs, preemptible=np.ones(len(jobs), np.int8))
    one = run_engine(jobs, cluster, f"hived,opportunistic=preemptible,scan={scan}")
    two = run_engine(jobs, cluster, f"fifo,scan={scan}", "buddy")
    for name in (*TIMES, "nodes_spanned", "unschedulable"):
        assert getattr(one, name).tolist() == getattr(two, name).tolist(), name
