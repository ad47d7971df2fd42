"""FfDL's optimizer: worked by hand, the best of all divisions, and the knapsack behind it."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.policies.resized import assert_lawful, elastic, run, same, takes
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.policies.literature.optimal import take_chains

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

CHAINS = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=4), min_size=1, max_size=4
)


def test_gpus_go_where_each_adds_most() -> None:
    jobs = make_jobs([(0, 4, 100), (0, 1, 100)])
    outcome = run(jobs, make_cluster((5,)), "ffdl-optimizer", elastic(sigma=0.03))
    # One each; a second adds the same to both, and the earlier has it, then job 1 its second and last; a third is left.
    assert takes(outcome)[:2] == [(0, 0, 3), (0, 1, 2)]


def test_a_minimum_that_does_not_fit_makes_room_elsewhere() -> None:
    # Minima 2, 3 and 3 of 8, 9 and 9 on 9 GPUs, speed linear: all GPUs count alike. 2 and 3 and 3 leave one, for job 0.
    jobs = make_jobs([(0, 8, 100), (0, 9, 100), (0, 9, 100)])
    outcome = run(jobs, make_cluster((9,)), "ffdl-optimizer")
    assert sum(n for at, _, n in takes(outcome) if at == 0) == 9


def test_as_many_jobs_as_gpus_take_part() -> None:
    jobs = make_jobs([(0, 1, 100)] * 3)
    outcome = run(jobs, make_cluster((2,)), "ffdl-optimizer")
    assert outcome.first_start_ms.tolist() == [0, 0, 100_000]


@settings(max_examples=25, deadline=None)
@given(chains=CHAINS, capacity=st.integers(0, 16))
def test_no_choice_of_steps_gains_more(chains: list[list[tuple[int, int]]], capacity: int) -> None:
    # Gain for the size falls inside a chain.
    rows = [sorted(chain, key=lambda s: -s[1] / s[0]) for chain in chains]
    row = np.repeat(np.arange(len(rows)), [len(chain) for chain in rows])
    size = np.array([s for chain in rows for s, _ in chain])
    gain = np.array([float(g) for chain in rows for _, g in chain])

    def worth(taken: list[int]) -> float:
        if sum(s for chain, n in zip(rows, taken, strict=True) for s, _ in chain[:n]) > capacity:
            return -1.0
        return float(sum(g for chain, n in zip(rows, taken, strict=True) for _, g in chain[:n]))

    best = max(worth(list(taken)) for taken in product(*(range(len(chain) + 1) for chain in rows)))
    exact = take_chains(row, size, gain, capacity, rows=len(rows), core=len(rows))
    assert worth(exact.tolist()) == best
    greedy = take_chains(row, size, gain, capacity, rows=len(rows), core=0)
    assert 0 <= worth(greedy.tolist()) <= best


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 5, 8]), min_size=1, max_size=4),
    gpus=st.integers(8, 12),
    sigma=st.sampled_from([0.0, 0.03, 0.3]),
)
def test_no_division_is_faster_in_sum(sizes: list[int], gpus: int, sigma: float) -> None:
    jobs = make_jobs([(0, g, 100) for g in sizes])
    outcome = run(jobs, make_cluster((gpus,)), "ffdl-optimizer", elastic(sigma=sigma))
    given_gpus = [n for at, _, n in takes(outcome) if at == 0]

    def speed(n: int) -> float:
        return n / (1 + sigma * (n - 1)) if n else 0.0

    ranges = [[0, *range(max(-(-g // 4), 1), 2 * g + 1)] for g in sizes]
    best = max(sum(map(speed, division)) for division in product(*ranges) if sum(division) <= gpus)
    assert sum(map(speed, given_gpus)) == pytest.approx(best)


@settings(max_examples=12, deadline=None)
@given(jobs=job_lists(typed=False, sizes=st.just(1)), cluster=clusters(changing=False))
def test_jobs_of_one_gpu_are_first_in_first_out(jobs: Jobs, cluster: Cluster) -> None:
    rigid = elastic(rigid=True)
    same(run(jobs, cluster, "ffdl-optimizer,gap=0,fit=count", rigid), run(jobs, cluster, "fifo,fit=count", rigid))


def test_with_room_for_all_everyone_has_the_most() -> None:
    jobs = make_jobs([(0, 1, 60), (60, 2, 60), (60, 4, 60)])
    outcome = run(jobs, make_cluster((8, 8)), "ffdl-optimizer")
    assert sorted((j, n) for _, j, n in takes(outcome)) == [(0, 2), (1, 4), (2, 8)]


@settings(max_examples=12, deadline=None)
@given(jobs=job_lists(), cluster=clusters())
def test_the_laws_hold(jobs: Jobs, cluster: Cluster) -> None:
    assert_lawful(jobs, cluster, run(jobs, cluster, "ffdl-optimizer,gap=1"))
