"""Placement in buddy blocks: worked cases, and agreement with the plain-Python rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.oracle import Rule
from tests.replay.places import _free_blocks
from tests.replay.strategies import clusters, job_lists
from tests.replay.test_against_oracle import agree, ordered_rules, run_both
from tracekit.errors import UsageError
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.kernel import free_levels, lowest_block
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Backfill, Ordered

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism
    from tracekit.replay.outcome import Outcome


def run(jobs: Jobs, cluster: Cluster, mechanism: Mechanism | None = None) -> Outcome:
    return simulate(
        jobs, cluster, assign(jobs, cluster), mechanism or Ordered(by_arrival, scan="skip"), rule="buddy", log=True
    )


def gpus_taken(outcome: Outcome) -> dict[int, list[tuple[int, int]]]:
    """Return (node, GPU) of each job's first start."""
    assert outcome.log is not None
    found: dict[int, list[tuple[int, int]]] = {}
    for row in outcome.log[outcome.log["kind"] == 3]:
        found.setdefault(int(row["job"]), []).append((int(row["node"]), int(row["gpu"])))
    return {job: sorted(places) for job, places in found.items()}


def test_a_gang_is_rounded_up_to_an_aligned_block() -> None:
    jobs = make_jobs([(0, 1, 100), (1, 3, 100), (2, 2, 100), (3, 1, 100)])
    outcome = run(jobs, make_cluster([8]))
    # The 1 splits 8 into 4 + 2 + 1 + 1; 3 is rounded to the block 4-7; 2 has 2-3; the last has the 1 left beside job 0.
    assert gpus_taken(outcome) == {
        0: [(0, 0)],
        1: [(0, 4), (0, 5), (0, 6), (0, 7)],
        2: [(0, 2), (0, 3)],
        3: [(0, 1)],
    }
    assert outcome.held_milli_ms.tolist() == [100_000_000, 400_000_000, 200_000_000, 100_000_000]


def test_free_gpus_that_form_no_block_do_not_help() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 1, 100), (0, 1, 10), (0, 1, 100), (20, 2, 5)])
    # GPUs 0 and 2 are free from 10 s on, but 0-1 and 2-3 are each half in use.
    assert run(jobs, make_cluster([4])).first_start_ms.tolist() == [0, 0, 0, 0, 100_000]


def test_the_smallest_block_comes_before_the_lowest_node() -> None:
    jobs = make_jobs([(0, 8, 9), (0, 1, 100), (10, 2, 100)])
    outcome = run(jobs, make_cluster([8, 8]))
    # At 10 s node 0 is free as a whole; node 1 has the blocks 1, 2-3 and 4-7.
    assert gpus_taken(outcome)[2] == [(1, 2), (1, 3)]


def test_gangs_larger_than_a_node_hold_whole_nodes() -> None:
    jobs = make_jobs([(0, 1, 10), (0, 9, 10), (0, 5, 10)])
    outcome = run(jobs, make_cluster([6, 6, 6, 6]))
    # 5 is rounded to 8, more than a node has: it takes one node of 6.
    assert gpus_taken(outcome)[1] == [(node, gpu) for node in (1, 2) for gpu in range(6)]
    assert gpus_taken(outcome)[2] == [(3, gpu) for gpu in range(6)]
    assert outcome.nodes_spanned.tolist() == [1, 2, 1]
    assert outcome.held_milli_ms.tolist() == [10_000_000, 120_000_000, 60_000_000]


def test_what_fits_no_block_and_no_nodes_is_rejected() -> None:
    jobs = make_jobs([(0, 5, 10), (0, 12, 10), (0, 13, 10), (0, 4, 10)])
    outcome = run(jobs, make_cluster([6, 6, 2]))
    assert outcome.unschedulable.tolist() == [False, False, True, False]


def check(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    """Assert that the engine places and ends jobs as the rule in plain Python does."""
    rule = replace(rule, placement="buddy", fit="place", relax_ms=())
    engine, truth = run_both(jobs, cluster, rule)
    agree(engine, truth)
    assert engine.held_milli_ms.tolist() == truth.held_milli_ms
    assert engine.nodes_spanned.tolist() == truth.nodes_spanned
    assert engine.log is not None
    assert audit(jobs, cluster, engine.log, engine, gang="rounded") == []


@settings(max_examples=40, deadline=None)
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_engine_and_oracle_agree(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


@pytest.mark.thorough
@settings(max_examples=examples(250), deadline=None)
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_engine_and_oracle_agree_in_more_cases(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    check(jobs, cluster, rule)


@settings(max_examples=30, deadline=None)
@given(job_lists(parted=True), clusters(parted=True), ordered_rules())
def test_blocks_do_not_relax_and_counts_know_none(jobs: Jobs, cluster: Cluster, rule: Rule) -> None:
    agree(*run_both(jobs, cluster, replace(rule, placement="buddy")))


ORDERS = ("fifo", "srtf", "las")


@pytest.mark.parametrize(
    ("order", "count"),
    [*((o, 300) for o in ORDERS), *(pytest.param(o, 1200, marks=pytest.mark.thorough) for o in ORDERS)],
)
def test_a_long_run_agrees_too(order: str, count: int) -> None:
    random = np.random.default_rng(11)
    sizes = random.choice([1, 2, 3, 4, 5, 8, 12, 16, 20], count, p=[0.5, 0.1, 0.1, 0.1, 0.05, 0.1, 0.02, 0.02, 0.01])
    starts = np.sort(random.integers(0, 5 * count, count))
    rows = [(float(t), int(g), float(random.integers(1, 400))) for t, g in zip(starts, sizes, strict=True)]
    rule = Rule(
        order=order,
        mode="list" if order == "fifo" else "preemptive",
        scan="skip",
        placement="buddy",
        thresholds=(100_000, 600_000),
        overhead_ms=(700, 1500, 3000),
    )
    agree(*run_both(make_jobs(rows), make_cluster([8] * 12 + [16] * 4 + [6] * 3, model="A100"), rule))


@settings(max_examples=examples(300), deadline=None)
@given(
    st.integers(1, 64), st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 6).map(lambda k: 1 << 9 * k), st.just(0))
)
def test_free_blocks_are_found_by_bits(gpus: int, busy: int) -> None:
    cells = [bool(busy >> gpu & 1) for gpu in range(gpus)]
    blocks = _free_blocks(cells, 0, 64)
    expected = sorted({length.bit_length() - 1 for _, length in blocks})
    taken = busy & (2**gpus - 1)
    levels = free_levels(taken, gpus)
    assert [k for k in range(8) if levels >> k & 1] == expected
    for k in expected:
        assert lowest_block(taken, gpus, k) == min(at for at, length in blocks if length == 2**k)


def test_buddy_placement_is_refused_where_it_means_nothing() -> None:
    jobs = make_jobs([(0, 1, 1)])
    wide = make_cluster([8, 65])
    with pytest.raises(UsageError, match="n1 has 65 GPUs"):
        run(jobs, wide)
    small = make_cluster([8])
    with pytest.raises(UsageError, match="'buddy' does not work with"):
        run(jobs, small, Backfill(Ordered(by_arrival)))
