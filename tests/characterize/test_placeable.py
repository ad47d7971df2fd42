"""Whether gangs fit on nodes, on two nodes with 4 GPUs and one with 2."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.characterize.free_nodes import FreeNodes

# Free GPUs: at 0 all; from 10 on node 0 has 1; from 20 on node 1 has 3; from 30 on node 2 has 0; at 40 all again.
NODES = FreeNodes(
    node_gpus=np.array([4.0, 4.0, 2.0]),
    node=np.array([0, 0, 1, 1, 2, 2]),
    time=np.array([10, 40, 20, 40, 30, 40]),
    free=np.array([1.0, 4.0, 3.0, 4.0, 0.0, 2.0]),
)
MOMENTS = np.array([0, 10, 20, 30, 40])


@pytest.mark.parametrize(
    ("gang", "fits"),
    [
        (0.5, [1, 1, 1, 1, 1]),
        (2, [1, 1, 1, 1, 1]),
        (3, [1, 1, 1, 1, 1]),
        (4, [1, 1, 0, 0, 1]),
        # 4 on a whole node and the rest on another: from 10 on node 1 is whole, node 2 has 2 and node 0 has 1.
        (5, [1, 1, 0, 0, 1]),
        (6, [1, 1, 0, 0, 1]),
        # Besides the whole node no other has 3.
        (7, [1, 0, 0, 0, 1]),
        (8, [1, 0, 0, 0, 1]),
        (10, [1, 0, 0, 0, 1]),
        # Three whole nodes of the largest size there are not.
        (12, [0, 0, 0, 0, 0]),
    ],
)
def test_gangs_want_the_fewest_nodes(gang: float, fits: list[int]) -> None:
    assert NODES.fits(gang).at(MOMENTS).tolist() == fits


def test_the_state_at_moments() -> None:
    free, whole, whole_gpus, gang = NODES.at_moments(MOMENTS)
    assert free.tolist() == [10, 7, 6, 4, 10]
    assert whole.tolist() == [3, 2, 1, 0, 3]
    assert whole_gpus.tolist() == [10, 6, 2, 0, 10]
    assert gang.tolist() == [10, 7, 5, 3, 10]


def test_a_pool_without_nodes_takes_no_gang() -> None:
    nothing = np.empty(0)
    pool = FreeNodes(nothing, nothing.astype(np.int64), nothing.astype(np.int64), nothing)
    assert pool.fits(1).at(MOMENTS).tolist() == [0] * 5
    assert pool.at_moments(MOMENTS)[0].tolist() == [0] * 5


def test_a_node_that_holds_more_than_it_has_is_not_short_of_less_than_nothing() -> None:
    pool = FreeNodes(np.array([4.0, 4.0]), np.array([0]), np.array([10]), np.array([-2.0]))
    assert pool.at_moments(np.array([10]))[0].tolist() == [4]
