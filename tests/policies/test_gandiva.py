"""Gandiva: turns, pairs, moves and growth by hand, and the laws on random cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.engines import run_engine
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

PLAIN = "gandiva,pack=off,overhead=none"


def run(jobs: Jobs, cluster: Cluster, policy: str) -> Outcome:
    outcome = run_engine(jobs, cluster, policy)
    assert outcome.log is not None
    assert audit(jobs, cluster, outcome.log, outcome, gang="elastic", residents=2) == []
    return outcome


def test_three_jobs_take_turns_on_one_gpu() -> None:
    # Slices of 60 s: 0 1 2 0 1 2, and each needs two.
    outcome = run(make_jobs([(0, 1, 120)] * 3), make_cluster((1,)), PLAIN)
    assert outcome.first_start_ms.tolist() == [0, 60_000, 120_000]
    assert outcome.end_ms.tolist() == [240_000, 300_000, 360_000]


def test_a_turn_costs_what_the_preset_says() -> None:
    # Each is stopped once, and comes back a second late: 0 until 60, 1 until 120, 0 for 1 + 60, 1 for 1 + 60 after it.
    outcome = run(make_jobs([(0, 1, 120)] * 2), make_cluster((1,)), "gandiva,pack=off,quantum=60,depth=2")
    # At 180 s job 0 has a second left and goes to the end; 1 runs from 180 to 240 with a second left; 0 ends, then 1.
    assert outcome.preemptions.tolist() == [2, 2]
    # At 240: 0 pays again 1 s and works 1 s, until 242; 1 pays 1 s and works 1 s, until 244.
    assert outcome.end_ms.tolist() == [242_000, 244_000]


def test_a_gang_waits_for_its_turn_and_gets_all_gpus_at_once() -> None:
    # Jobs 0 and 1 hold the GPUs when the gang comes at 10 s; at 60 s it is first in the circle, and ends at 110 s.
    outcome = run(make_jobs([(0, 1, 120), (0, 1, 120), (10, 2, 50)]), make_cluster((2,)), PLAIN)
    assert outcome.first_start_ms.tolist() == [0, 0, 60_000]
    assert outcome.end_ms.tolist() == [170_000, 170_000, 110_000]


def test_two_with_little_use_share_a_gpu_and_part_when_there_is_room() -> None:
    jobs = make_jobs([(0, 1, 120), (0, 1, 120)], utilization=0.5)
    # Beside each other 1 - 0.5 * 0.5 * 0.5 = 0.875: 120 / 0.875 = 137.143 s.
    assert run(jobs, make_cluster((1,)), "gandiva").end_ms.tolist() == [137_143, 137_143]
    # With a job that ends at 30 s on the second GPU: until then 26.25 s done, then each alone, with 93.75 s left; the
    # one who moves pays a second.
    jobs = make_jobs([(0, 1, 30), (0, 1, 120), (0, 1, 120)], utilization=[1.0, 0.5, 0.5])
    outcome = run(jobs, make_cluster((2,)), "gandiva")
    assert sorted(outcome.end_ms.tolist()) == [30_000, 123_750, 124_750]
    assert outcome.migrations.sum() == 1


def test_a_job_that_waits_for_its_turn_moves_to_gpus_that_became_free() -> None:
    rows = [(0, 1, 20), (0, 1, 100), (0, 1, 100)]
    # Job 2 shares the first node with job 0, whose GPU is its own from 20 s on; with two nodes either way.
    assert run(make_jobs(rows), make_cluster((1, 1)), PLAIN).end_ms.tolist() == [20_000, 100_000, 120_000]
    # Here job 2 lives with job 0 of 200 s, and moves when job 1 ends on the other node.
    rows = [(0, 1, 200), (0, 1, 20), (0, 1, 100)]
    assert run(make_jobs(rows), make_cluster((1, 1)), PLAIN).end_ms.tolist() == [200_000, 20_000, 120_000]
    stays = run(make_jobs(rows), make_cluster((1, 1)), f"{PLAIN},migrate=off")
    # 0: 0-60, 120-180, 220-300; 2: 60-120, 180-220.
    assert stays.end_ms.tolist() == [300_000, 20_000, 220_000]


def test_a_job_grows_into_its_node_and_gives_back() -> None:
    models = load_models()
    models = replace(models, elastic=replace(models.elastic, sigma=0.0))
    jobs, cluster = make_jobs([(0, 1, 100), (20, 1, 10)]), make_cluster((2,))
    outcome = Scenario.make(jobs, cluster, models=models).run(f"{PLAIN},grow=on,resize=0", log=True).outcome
    # Twice as fast until 20 s, alone on one GPU until 30 s: 50 s are left, which take 25.
    assert outcome.end_ms.tolist() == [55_000, 30_000]


def test_a_node_takes_no_more_than_its_depth() -> None:
    # Two may live on the GPU; the third comes when the first has ended at 60 s, and has its turn at 120 s.
    outcome = run(make_jobs([(0, 1, 60)] * 3), make_cluster((1,)), f"{PLAIN},depth=2")
    assert outcome.first_start_ms.tolist() == [0, 60_000, 120_000]


def test_numbers_out_of_range_are_refused() -> None:
    for text in ("depth=0.5", "quantum=0"):
        with pytest.raises(UsageError):
            run_engine(make_jobs([(0, 1, 1)]), make_cluster((1,)), f"gandiva,{text}")


def test_a_gang_wider_than_the_cluster_is_not_accepted() -> None:
    outcome = run(make_jobs([(0, 9, 10), (0, 1, 10), (0, 8, 10)]), make_cluster((4, 4)), "gandiva")
    assert outcome.unschedulable.tolist() == [1, 0, 0]


@tried(5, 15, jobs=job_lists(typed=False), size=st.integers(1, 8))
def test_on_one_node_without_slices_it_is_fifo(jobs: Jobs, size: int) -> None:
    cluster = make_cluster((size,))
    plain = run(jobs, cluster, f"{PLAIN},slices=off")
    assert plain.end_ms.tolist() == run_engine(jobs, cluster, "fifo,scan=skip").end_ms.tolist()


@settings(max_examples=10, deadline=None)
@given(size=st.sampled_from([1, 2, 4]), count=st.integers(1, 12), slices=st.integers(1, 6))
def test_equal_jobs_have_equal_times_to_a_slice(size: int, count: int, slices: int) -> None:
    outcome = run(make_jobs([(0, size, 60 * slices)] * count), make_cluster((4,)), f"{PLAIN},depth=20")
    seats = 4 // size
    assert outcome.makespan_ms == max(slices, -(-count * slices // seats)) * 60_000
    assert outcome.end_ms.max() - outcome.end_ms.min() <= -(-count // seats) * 60_000


@settings(max_examples=10, deadline=None)
@given(jobs=job_lists(typed=False), cluster=clusters(changing=False))
def test_jobs_that_do_not_fit_together_are_never_packed(jobs: Jobs, cluster: Cluster) -> None:
    models = load_models()
    models = replace(models, memory=replace(models.memory, level="single"))
    ends = [
        Scenario.make(jobs, cluster, models=models).run(f"gandiva,quantum=5,pack={pack}").outcome.end_ms.tolist()
        for pack in ("on", "off")
    ]
    assert ends[0] == ends[1]


@tried(9, 25, jobs=job_lists(), cluster=clusters(), grow=st.sampled_from(["on", "off"]))
def test_the_laws_hold_and_all_ends_that_can(jobs: Jobs, cluster: Cluster, grow: str) -> None:
    outcome = run(jobs, cluster, f"gandiva,quantum=5,depth=3,grow={grow}")
    assert run(jobs, cluster, f"gandiva,quantum=5,depth=3,grow={grow}").end_ms.tolist() == outcome.end_ms.tolist()
