"""Nodes with divided GPUs: what fits, what is wasted, and that what is taken comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.divided import (
    Node,
    a_state,
    a_supply,
    a_workload,
    feasible,
    fragment,
    place,
    plain_score,
    release,
    score,
    take,
    wasted_milli,
)
from tracekit.errors import UsageError
from tracekit.replay.fractions import supply as module
from tracekit.replay.fractions.supply import RULES, Fractions, fractions
from tracekit.replay.fractions.tasks import expected_workload
from tracekit.replay.kernel import MILLI_LEFT, WASTED, WEIGHT

if TYPE_CHECKING:
    from tests.replay.divided import Task

FREE = (0, 0, 1, 1000, "")


def _take(state: Fractions, shape: int, node: int, *gpus: int) -> None:
    take(state, shape, node, np.array(gpus, dtype=np.int32))


def test_the_published_test_vector_of_the_measure() -> None:
    # GPUs of 0.5 and 1.0; half the tasks want 0.6 of a GPU, half a whole one; CPU does not matter.
    half, expected = (0, 0, 1, 500, ""), [(0, 0, 1, 600, ""), FREE]
    state = a_state("fgd", [(0, 0, 2, "")], [half], expected)
    _take(state, 0, 0, 0)
    assert state.gpu_left.tolist() == [[500, 1000]]
    assert wasted_milli(state, 0) == 2 * 500  # F = 0.5 GPUs, two expected tasks
    _take(state, 0, 0, 0)
    assert wasted_milli(state, 0) == 0
    release(state, 0, 0, np.array([0], dtype=np.int32))
    _take(state, 0, 0, 1)
    assert wasted_milli(state, 0) == 2 * 1000


@pytest.mark.parametrize(
    ("expected", "wasted"),
    [
        ((1, 0, 0, 0, ""), 2300),  # asks for no GPU: all is wasted, though it fits
        ((9000, 0, 1, 100, ""), 2300),  # too little CPU
        ((0, 0, 1, 100, "P100"), 2300),  # another model
        ((0, 0, 3, 1000, ""), 2300),  # two whole GPUs are not three
        ((0, 0, 2, 1000, ""), 300),  # the rest of the used GPU
        ((0, 0, 1, 300, "V100|P100"), 0),
        ((0, 999, 1, 301, ""), 300),  # memory is not looked at
    ],
)
def test_what_a_shape_cannot_use_of_a_node_is_wasted(expected: Task, wasted: int) -> None:
    state = a_state("fgd", [(8000, 64, 3, "V100"), (8000, 64, 3, "P100")], [(0, 0, 1, 700, "")], [expected])
    _take(state, 0, 1, 0)  # nodes are V100 (0) and P100 (1); the index of models is sorted
    _take(state, 0, 0, 0)
    assert wasted_milli(state, 0) == wasted
    assert state.nodes["wasted"][0] == wasted


@pytest.mark.parametrize(
    ("task", "fits"),
    [
        ((8000, 64, 0, 0, ""), True),
        ((8001, 64, 0, 0, ""), False),
        ((8000, 65, 0, 0, ""), False),
        ((0, 0, 0, 0, "P100"), True),  # a model matters only with a GPU
        ((0, 0, 1, 300, "P100"), False),
        ((0, 0, 3, 300, "P100|V100"), True),
        ((0, 0, 3, 301, ""), False),
        ((0, 0, 2, 1000, ""), True),
        ((0, 0, 3, 1000, ""), False),
    ],
)
def test_a_task_fits_where_all_that_it_asks_is_left_on_one_node(task: Task, fits: bool) -> None:
    state = a_state("bestfit", [(8000, 64, 3, "V100")], [(0, 0, 1, 700, ""), task])
    _take(state, 0, 0, 0)
    assert feasible(state, 1, 0) is fits
    assert (score(state, 1, 0) >= 0) is fits


def test_the_order_of_rank_is_the_order_of_the_nodes() -> None:
    tasks = a_workload(FREE)
    supply = a_supply((1, 10, 1, "A"), (2, 20, 2, "B"), (3, 30, 4, "A"))
    state = fractions(supply, tasks, expected_workload(tasks), "fgd", rank=np.array([2, 0, 1]))
    assert state.nodes["gpus"].tolist() == [4, 1, 2]
    assert state.nodes["cpu_left"].tolist() == [3, 1, 2]
    assert state.nodes["memory_left"].tolist() == [30, 10, 20]
    assert state.nodes["model"].tolist() == [0, 0, 1]
    assert state.gpu_left.tolist() == [[1000] * 4, [1000, 0, 0, 0], [1000, 1000, 0, 0]]
    assert state.totals[MILLI_LEFT] == 7000


def test_an_unknown_rule_names_the_nearest() -> None:
    tasks = a_workload(FREE)
    with pytest.raises(UsageError, match="no placement rule 'fdg'; did you mean 'fgd'"):
        fractions(a_supply((1, 1, 1, "")), tasks, expected_workload(tasks), "fdg")


def test_without_tasks_or_nodes_nothing_is_placed() -> None:
    gpus = np.zeros(8, dtype=np.int32)
    tasks = a_workload(FREE)
    empty = fractions(a_supply(), tasks, expected_workload(tasks), "fgd")
    assert place(empty, 0, gpus) == -1
    nothing_expected = fractions(a_supply((0, 0, 1, "")), tasks, expected_workload(a_workload()), "fgd")
    assert nothing_expected.totals[WEIGHT] == 0
    assert place(nothing_expected, 0, gpus) == 0


_TASKS = st.tuples(
    st.sampled_from([0, 500, 2000, 8000]),
    st.sampled_from([0, 16, 64]),
    st.sampled_from([0, 1, 1, 1, 2, 4]),
    st.sampled_from([1000, 1000, 100, 250, 333, 700, 999]),
    st.sampled_from(["", "", "A", "A|B", "C"]),
).map(lambda task: task if task[2] else (*task[:3], 0, task[4]))
_NODES = st.tuples(
    st.sampled_from([4000, 16000, 128000]),
    st.sampled_from([64, 256]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["A", "B"]),
)


@given(
    rule=st.sampled_from(RULES),
    nodes=st.lists(_NODES, min_size=1, max_size=5),
    tasks=st.lists(_TASKS, min_size=1, max_size=6, unique=True),
    expected=st.lists(_TASKS, min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=60),
    rows=st.integers(1, 6),
)
def test_every_placement_is_the_plain_rules_and_every_end_gives_back_what_was_taken(
    rule: str,
    nodes: list[tuple[int, int, int, str]],
    tasks: list[Task],
    expected: list[Task],
    steps: list[tuple[int, bool]],
    rows: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:  # few rows: shapes push each other out of the memory of scores
        patch.setattr(module, "_CELLS", rows * len(nodes))
        state = a_state(rule, nodes, tasks, expected)
    weights = [(task, expected.count(task)) for task in sorted(set(expected))]
    plain = [Node(cpu, memory, [1000] * gpus, model) for cpu, memory, gpus, model in nodes]
    scales = max(node[0] for node in nodes), 1000 * max(node[2] for node in nodes)
    gpus = np.zeros(8, dtype=np.int32)
    running: list[tuple[int, int, list[int]]] = []
    fields = [name for name in state.nodes.dtype.names or () if name != "changed"]
    at_first = [state.nodes[name].tolist() for name in fields]

    for number, leaves in steps:
        if leaves and running:
            shape, node, held = running.pop(number % len(running))
            release(state, shape, node, np.array(held, dtype=np.int32))
            plain[node].change(tasks[shape], held, -1)
        else:
            shape = number % len(tasks)
            answers = [plain_score(rule, node, tasks[shape], weights, *scales) for node in plain]
            best = max(points for points, _ in answers)
            node = place(state, shape, gpus)
            row = state.scores[shape % len(state.scored_shape)].tolist()
            assert row == [points for points, _ in answers]  # as remembered
            assert row == [score(state, shape, other) for other in range(len(nodes))]  # as computed anew
            held = gpus[: tasks[shape][2]].tolist()
            if best < 0:
                assert node == -1
                continue
            if rule == "random":
                assert plain[node].fits(tasks[shape])
                assert all(plain[node].gpus[gpu] >= tasks[shape][3] for gpu in held)
            else:
                assert node == [points for points, _ in answers].index(best)
                assert held == answers[node][1]
            take(state, shape, node, gpus)
            plain[node].change(tasks[shape], held, 1)
            running.append((shape, node, held))
        assert [state.gpu_left[i, : len(node.gpus)].tolist() for i, node in enumerate(plain)] == [
            node.gpus for node in plain
        ]
        assert state.nodes["cpu_left"].tolist() == [node.cpu for node in plain]
        assert state.nodes["memory_left"].tolist() == [node.memory for node in plain]
        assert state.nodes["wasted"].tolist() == [fragment(node, weights) for node in plain]
        assert state.nodes["whole"].tolist() == [node.gpus.count(1000) for node in plain]
        assert state.totals[WASTED] == state.nodes["wasted"].sum()
        assert state.totals[MILLI_LEFT] == state.nodes["milli_left"].sum() == sum(sum(n.gpus) for n in plain)

    for shape, node, held in running:
        release(state, shape, node, np.array(held, dtype=np.int32))
    assert [state.nodes[name].tolist() for name in fields] == at_first
    assert not state.holders.any()


def test_a_kept_score_is_not_computed_again() -> None:
    state = a_state("fgd", [(0, 0, 4, "")] * 4, [FREE, (0, 0, 1, 500, "")])
    gpus = np.zeros(4, dtype=np.int32)
    place(state, 0, gpus)
    assert (state.scores[0] >= 0).all()
    # Marks in place of the scores: those of nodes that do not change stay.
    state.scores[0] = -7
    _take(state, 1, 2, 0)
    _take(state, 1, 2, 1)
    _take(state, 1, 1, 0)
    place(state, 0, gpus)
    assert [int(score) == -7 for score in state.scores[0]] == [True, False, False, True]
