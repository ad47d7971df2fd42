"""The placement rules on nodes small enough to score by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.replay.divided import a_state, place, score, take
from tracekit.replay.fractions.supply import RULES, Fractions

if TYPE_CHECKING:
    from tests.replay.divided import Task

LARGE, SMALL = (128_000, 1, 8, ""), (64_000, 1, 4, "")
ONE, TWO, HALF, CPU_ONLY = (0, 0, 1, 1000, ""), (0, 0, 2, 1000, ""), (0, 0, 1, 500, ""), (1000, 0, 0, 0, "")


def _scores(state: Fractions, shape: int) -> list[int]:
    return [score(state, shape, node) for node in range(len(state.nodes))]


def _with(rule: str, nodes: list[tuple[int, int, int, str]], tasks: list[Task], *taken: tuple[int, ...]) -> Fractions:
    """Nodes after tasks were taken, each told as (index of the task, node, GPUs...)."""
    state = a_state(rule, nodes, tasks)
    for shape, node, *gpus in taken:
        take(state, shape, node, np.array(gpus, dtype=np.int32))
    return state


def test_dotproduct_prefers_the_node_with_less_left_of_what_is_asked() -> None:
    state = _with("dotproduct", [LARGE, SMALL], [(32_000, 0, 2, 1000, "")])
    # 1 * 0.25 for CPU and for GPU, against 0.5 * 0.25: 75 and 87.5, cut to 87.
    assert _scores(state, 0) == [75, 87]


def test_bestfit_prefers_the_node_that_stays_fullest() -> None:
    state = _with("bestfit", [LARGE, SMALL], [(32_000, 0, 2, 1000, "")])
    # 3/4 of CPU and GPU stay free, against 1/4 of the largest node's.
    assert _scores(state, 0) == [25, 75]


def test_clustering_prefers_company_of_the_same_size_and_then_fuller_nodes() -> None:
    nodes = [LARGE] * 5
    state = _with(
        "clustering",
        nodes,
        [ONE, TWO, HALF, CPU_ONLY],
        (0, 1, 0),  # node 1: one task of one GPU
        (0, 2, 0),  # node 2: the same, and half a GPU
        (2, 2, 1),
        (1, 3, 0, 1),  # node 3: one task of two GPUs
        (3, 4),  # node 4: a task without GPU is no company
    )
    # Fullness in steps of 25/8000: 1000 milli give 3, 1500 give 4, 2000 give 6.
    assert _scores(state, 0) == [25, 75 + 3, 50 + 4, 6, 25]
    assert _scores(state, 1) == [25, 3, 4, 75 + 6, 25]
    assert _scores(state, 2) == [25, 3, 50 + 4, 6, 25]
    assert _scores(state, 3) == [0, 0, 0, 0, 0]


def test_packing_prefers_used_gpus_then_used_nodes_then_small_nodes() -> None:
    quarter, most = (0, 0, 1, 250, ""), (0, 0, 1, 900, "")
    state = _with(
        "packing", [LARGE, SMALL, SMALL, SMALL], [ONE, TWO, HALF, CPU_ONLY, quarter, most], (4, 2, 0), (5, 3, 1)
    )
    # Unused: 33 less the GPUs. Node 2 has a GPU with 75 % free, node 3 one with 10 % free.
    assert _scores(state, 0) == [25, 29, 49, 49]
    assert _scores(state, 1) == [25, 29, 48, 48]
    assert _scores(state, 2) == [25, 29, 100 - 7, 49]
    assert _scores(state, 4) == [25, 29, 100 - 7, 49]
    assert _scores(state, 3) == [0, 0, 0, 0]


def test_packing_takes_the_used_gpus_and_only_then_a_whole_one() -> None:
    third = (0, 0, 2, 300, "")
    state = _with("packing", [SMALL, SMALL], [third, HALF], (1, 0, 0), (1, 1, 1), (1, 1, 2))
    # Node 0 has one used GPU and needs a whole one besides; node 1 has two at 50 % free.
    assert _scores(state, 0) == [49, 100 - (50 + 50) // 10]
    gpus = np.zeros(8, dtype=np.int32)
    assert place(state, 0, gpus) == 1
    assert gpus[:2].tolist() == [1, 2]


def test_fgd_scores_the_published_test_vector() -> None:
    state = a_state("fgd", [(0, 0, 2, "")], [HALF], [(0, 0, 1, 600, ""), ONE])
    take(state, 0, 0, np.array([1], dtype=np.int32))
    gpus = np.zeros(8, dtype=np.int32)
    # On the used GPU the fragment falls by 0.5 GPU (62.2), on the whole one it rises by 0.5 (37.8).
    assert score(state, 0, 0) == 62
    assert place(state, 0, gpus) == 0
    assert gpus[0] == 1
    take(state, 0, 0, np.array([1], dtype=np.int32))
    # Now only the whole GPU is left: the fragment rises from 0 to 0.5 GPU.
    assert score(state, 0, 0) == 37


def test_fgd_scores_50_everywhere_where_nothing_is_ever_wasted() -> None:
    state = _with("fgd", [LARGE, SMALL], [ONE], (0, 0, 0), (0, 1, 0))
    assert _scores(state, 0) == [50, 50]


def test_fgd_fills_used_nodes_first_where_every_task_wants_a_whole_node() -> None:
    state = _with("fgd", [SMALL, SMALL], [(0, 0, 4, 1000, ""), ONE], (1, 1, 0))
    state.expected["weight"] = [1, 0]  # the task of four GPUs alone
    gpus = np.zeros(8, dtype=np.int32)
    assert place(state, 1, gpus) == 1
    assert gpus[0] == 1


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "random"])
def test_equal_nodes_are_taken_by_rank_and_equal_gpus_by_index(rule: str) -> None:
    state = a_state(rule, [SMALL] * 3, [HALF])
    gpus = np.full(8, -1, dtype=np.int32)
    assert place(state, 0, gpus) == 0
    assert gpus[0] == 0


@pytest.mark.parametrize("rule", ["dotproduct", "clustering", "packing", "bestfit"])
def test_a_part_of_a_gpu_comes_from_the_one_with_least_left(rule: str) -> None:
    quarter = (0, 0, 1, 250, "")
    state = _with(rule, [SMALL], [HALF, quarter], (0, 0, 1), (0, 0, 3), (1, 0, 3))
    gpus = np.zeros(8, dtype=np.int32)
    assert place(state, 0, gpus) == 0
    assert gpus[0] == 1  # GPU 3 has too little
    assert place(state, 1, gpus) == 0
    assert gpus[0] == 3


def test_random_draws_every_node_and_gpu_that_fits_equally_often() -> None:
    state = _with("random", [SMALL, (0, 0, 4, ""), SMALL], [(1000, 0, 1, 600, ""), HALF], (1, 0, 2))
    gpus = np.zeros(8, dtype=np.int32)
    drawn = np.zeros((3, 4), dtype=int)
    for _ in range(7000):
        drawn[place(state, 0, gpus), gpus[0]] += 1
    # Node 1 has no CPU; GPU 2 of node 0 has too little. 3500 a node, by 3 and by 4 GPUs.
    assert drawn[1].tolist() == [0, 0, 0, 0]
    assert drawn[0, 2] == 0
    expected = np.array([3500 / 3] * 3 + [3500 / 4] * 4)
    seen = np.concatenate([drawn[0, [0, 1, 3]], drawn[2]])
    # Chi-squared of 7 cells: above 22.5 in one case of a thousand.
    assert ((seen - expected) ** 2 / expected).sum() < 22.5


@pytest.mark.parametrize("rule", RULES)
def test_a_task_that_fits_nowhere_has_no_node(rule: str) -> None:
    state = a_state(rule, [SMALL, LARGE], [(0, 0, 9, 1000, "")])
    assert place(state, 0, np.zeros(9, dtype=np.int32)) == -1
