"""Shapes of tasks, the expected workload, and both from the jobs and nodes of a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.divided import a_workload
from tracekit.replay.fractions.tasks import Tasks, expected_workload, supply_of, tasks_of_jobs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _rows(shapes: NDArray[np.void]) -> list[tuple[int, ...]]:
    return [tuple(row) for row in shapes.tolist()]


def test_tasks_of_one_shape_share_a_row() -> None:
    tasks = a_workload((4000, 8, 1, 500, ""), (2000, 8, 0, 0, ""), (4000, 8, 1, 500, ""), (4000, 8, 1, 500, "T4|A10"))
    assert _rows(tasks.shapes) == [
        (4000, 8, 1, 500, 0, 2),
        (2000, 8, 0, 0, 0, 1),
        (4000, 8, 1, 500, 1, 1),
    ]
    assert tasks.shape.tolist() == [0, 1, 0, 2]
    assert tasks.model_sets == ["", "T4|A10"]
    assert len(tasks) == 4


def test_the_expected_workload_holds_the_most_frequent_shapes_without_memory() -> None:
    # 10 tasks: 5 of one shape in two sizes of memory, 3 of a second, 1 of a third and 1 of a fourth.
    tasks = a_workload(
        *[(1000, memory, 1, 1000, "") for memory in (1, 1, 1, 2, 2)],
        *[(500, 1, 0, 0, "")] * 3,
        (300, 1, 1, 200, ""),
        (400, 1, 1, 200, ""),
    )
    first, second, third, fourth = (
        (1000, 0, 1, 1000, 0, 5),
        (500, 0, 0, 0, 0, 3),
        (400, 0, 1, 200, 0, 1),  # as frequent as the next, but larger
        (300, 0, 1, 200, 0, 1),
    )
    assert _rows(expected_workload(tasks, popularity=0.5).shapes) == [first]
    assert _rows(expected_workload(tasks, popularity=0.51).shapes) == [first, second]
    assert _rows(expected_workload(tasks, popularity=0.9).shapes) == [first, second, third]
    assert _rows(expected_workload(tasks).shapes) == [first, second, third, fourth]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 2)), min_size=1), st.floats(0.01, 1))
def test_the_expected_workload_is_the_shortest_that_covers_the_share(
    tasks: list[tuple[int, int, int]], popularity: float
) -> None:
    rows = a_workload(*[(1000 * cpu, 1, count, 1000 * min(count, 1), "") for cpu, count, _ in tasks])
    weights = expected_workload(rows, popularity).shapes["weight"].tolist()
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) >= popularity * len(tasks)
    assert sum(weights[:-1]) < popularity * len(tasks)


def test_jobs_become_shapes_and_what_is_unknown_is_not_asked() -> None:
    jobs = make_jobs(
        [(0, 2, 10), (1, 1, 10), (2, 1, 10)],
        milli=[1000, 250, 250],
        model=["V100|P100", None, None],
        cpu_milli=[8000, -1, -1],
        memory_mib=[-1, 512, 512],
    )
    tasks = tasks_of_jobs(jobs)
    assert _rows(tasks.shapes) == [(8000, 0, 2, 1000, 0, 1), (0, 512, 1, 250, 1, 2)]
    assert tasks.model_sets == ["V100|P100", ""]
    assert tasks.shape.tolist() == [0, 1, 1]
    assert _rows(tasks_of_jobs(jobs, cpu=False, memory=False).shapes) == [(0, 0, 2, 1000, 0, 1), (0, 0, 1, 250, 1, 2)]


def test_no_jobs_have_no_shapes() -> None:
    tasks = tasks_of_jobs(make_jobs([]))
    assert len(tasks) == len(tasks.shapes) == 0
    assert isinstance(tasks, Tasks)


def test_nodes_that_join_later_are_left_out_and_unknown_resources_are_not_modelled() -> None:
    cluster = make_cluster(
        [2, 4, 8], model=["A", "A", "B"], cpu_milli=[8000, 16000, -1], memory_mib=[64, 128, 256], absent=[1]
    )
    supply, knows_cpu, knows_memory = supply_of(cluster)
    assert (knows_cpu, knows_memory) == (False, True)
    assert supply.cpu_milli.tolist() == [0, 0]
    assert supply.memory_mib.tolist() == [64, 256]
    assert supply.gpus.tolist() == [2, 8]
    assert supply.model.tolist() == [0, 1]
    assert supply.models == ["A", "B"]
