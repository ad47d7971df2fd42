"""Where the engine puts gangs, by hand: each job's nodes and GPUs, rule by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.replay.clusters.cluster import Cluster

    Place = dict[int, int]

LONG = 1000.0
TAKE = 3


def places(
    cluster: Cluster,
    gangs: Sequence[int | tuple[float, int, float]],
    rule: str = "consolidate",
    *,
    model: Any = None,
    vc: Any = "vc",
    **order: Any,
) -> list[Place]:
    """Return the GPUs of each node that each gang takes: {} where it does not start.

    A gang is its GPUs, submitted one second after the other and held for long, or (submission, GPUs, run time) [s].
    """
    rows = [(float(i), gang, LONG) if isinstance(gang, int) else gang for i, gang in enumerate(gangs)]
    jobs = make_jobs(rows, model=model, vc=vc)
    mechanism = Ordered(by_arrival, **({"scan": "skip"} | order))
    outcome = simulate(jobs, cluster, assign(jobs, cluster), mechanism, rule=rule, log=True)
    assert outcome.log is not None
    found: list[Place] = [{} for _ in rows]
    for row in outcome.log:
        if row["kind"] == TAKE and row["time_ms"] < LONG * 1000:
            found[row["job"]][int(row["node"])] = int(row["value"]) // 1000
    return found


# Nodes of 8, 8 and 4 GPUs. The first gang of 5 leaves 3, 8, 4 with the fullest and the first node first, so that the
# gang of 2 goes to the 3, the 8, or the first with room.
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("consolidate", [{0: 5}, {0: 2}, {2: 3}, {0: 1}, {2: 1}, {1: 8}]),
        ("best-fit", [{0: 5}, {0: 2}, {2: 3}, {0: 1}, {2: 1}, {1: 8}]),
        ("worst-fit", [{0: 5}, {1: 2}, {1: 3}, {2: 1}, {0: 1}, {}]),
        ("spread", [{0: 5}, {1: 2}, {1: 3}, {2: 1}, {0: 1}, {}]),
        ("first-fit", [{0: 5}, {0: 2}, {1: 3}, {0: 1}, {1: 1}, {}]),
    ],
)
def test_the_node_of_a_gang_that_fits_into_one(rule: str, expected: list[Place]) -> None:
    assert places(make_cluster((8, 8, 4)), [5, 2, 3, 1, 1, 8], rule) == expected


@pytest.mark.parametrize("rule", ["consolidate", "worst-fit", "first-fit"])
def test_of_equal_nodes_the_first_is_taken(rule: str) -> None:
    assert places(make_cluster((4, 4, 4)), [4, 4, 4], rule) == [{0: 4}, {1: 4}, {2: 4}]


# Racks a (nodes 0 and 1), b (node 2) and c (node 3). Of the racks' nodes best fit takes the fullest, worst fit the
# emptiest, first fit the first; of equal ones that of the first rack.
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("consolidate", [{2: 2}, {0: 4}, {1: 3}, {1: 1}, {3: 8}]),
        ("worst-fit", [{3: 2}, {3: 4}, {0: 3}, {1: 1}, {}]),
        ("first-fit", [{0: 2}, {1: 4}, {3: 3}, {0: 1}, {}]),
    ],
)
def test_the_node_over_several_racks(rule: str, expected: list[Place]) -> None:
    cluster = make_cluster((4, 4, 2, 8), rack=["a", "a", "b", "c"])
    assert places(cluster, [2, 4, 3, 1, 8], rule) == expected


def test_a_gang_larger_than_a_node_takes_whole_nodes_and_the_emptiest_for_the_rest() -> None:
    # The gang of 11 takes node 0 and, for 3, node 1, which is emptier than node 3; then 12 need one whole node and 4:
    # node 2, and node 1 has 5 left. Nothing whole is left for 9.
    assert places(make_cluster((8, 8, 8, 4)), [(0, 2, LONG), 11, 12, 9]) == [
        {3: 2},
        {0: 8, 1: 3},
        {2: 8, 1: 4},
        {},
    ]


def test_a_remainder_may_take_a_whole_node_and_needs_one_beside_those_taken() -> None:
    assert places(make_cluster((4, 4)), [5, 3]) == [{0: 4, 1: 1}, {1: 3}]
    assert places(make_cluster((4, 4)), [8]) == [{0: 4, 1: 4}]
    # Node 1 has 2 left: enough for a remainder of 2, and not of 3.
    assert places(make_cluster((4, 4)), [(0, 2, LONG), 6, 1]) == [{0: 2}, {1: 4, 0: 2}, {}]
    assert places(make_cluster((4, 4)), [(0, 2, LONG), 7, 1]) == [{0: 2}, {}, {0: 1}]
    # Of the nodes with enough the emptiest takes it: nodes 0 and 1 have 1 and 2 left.
    assert places(make_cluster((4, 4, 4, 4)), [3, 2, 9], "worst-fit") == [{0: 3}, {1: 2}, {2: 4, 3: 4, 1: 1}]


def test_whole_nodes_are_found_beyond_the_first_word_of_a_map() -> None:
    cluster = make_cluster((2,) * 130)
    first, second, third = places(cluster, [200, 58, 3])
    assert first == dict.fromkeys(range(100), 2)
    assert second == dict.fromkeys(range(100, 129), 2)
    assert third == {}
    assert places(cluster, [257, 3, 2]) == [{**dict.fromkeys(range(128), 2), 128: 1}, {129: 2, 128: 1}, {}]


def test_whole_nodes_are_of_one_rack() -> None:
    cluster = make_cluster((4, 4, 4, 4), rack=["a", "b", "b", "c"])
    assert places(cluster, [8, 5]) == [{1: 4, 2: 4}, {}]


# Nodes 0 and 1 are in rack a, 2 and 3 in rack b; the last gang waits until it is relaxed after 5 s.
@pytest.mark.parametrize(
    ("scope", "taken", "gang", "expected"),
    [
        # 3, 2, 1, 1 are left. In one rack there are 5 of rack a; anywhere, 6 take 3, 2 and the first node with 1.
        (1, (1, 2, 3, 3), 4, {0: 3, 1: 1}),
        (1, (1, 2, 3, 3), 5, {0: 3, 1: 2}),
        (1, (1, 2, 3, 3), 6, {}),
        (1, (3, 3, 1, 2), 5, {2: 3, 3: 2}),
        (2, (1, 2, 3, 3), 6, {0: 3, 1: 2, 2: 1}),
        (2, (1, 2, 3, 3), 7, {0: 3, 1: 2, 2: 1, 3: 1}),
        (2, (1, 2, 3, 3), 8, {}),
        (2, (3, 1, 3, 2), 5, {1: 3, 3: 2}),
        (2, (3, 1, 3, 2), 4, {1: 3, 3: 1}),
        (0, (1, 2, 3, 3), 4, {}),
    ],
)
def test_a_relaxed_gang_takes_the_emptiest_nodes_first(
    scope: int, taken: tuple[int, ...], gang: int, expected: Place
) -> None:
    # Each node is filled by a gang of its own that no other node can hold: the order is that of worst fit.
    cluster = make_cluster((4, 4, 4, 4), rack=["a", "a", "b", "b"])
    relaxed = {"relax_after_ms": 5000, "relax_scope": scope} if scope else {}
    found = places(cluster, [*((0.0, gpus, LONG) for gpus in taken), (1.0, gang, LONG)], "worst-fit", **relaxed)
    assert found[:4] == [{node: gpus} for node, gpus in enumerate(taken)]
    assert found[4] == expected


def test_a_gang_never_mixes_models_however_relaxed() -> None:
    cluster = make_cluster((4, 4, 4, 4), model=["a100", "a100", "v100", "v100"])
    fill = [(0.0, gpus, LONG) for gpus in (2, 2, 1, 1)]
    names = ["a100", "a100", "v100", "v100"]
    for gang, model, expected in (
        (4, "a100", {0: 2, 1: 2}),
        (4, "v100", {2: 3, 3: 1}),
        (5, "a100", {}),
        (5, "v100", {2: 3, 3: 2}),
        (5, None, {2: 3, 3: 2}),
        (4, None, {0: 2, 1: 2}),
        (7, None, {}),
    ):
        found = places(
            cluster,
            [*fill, (1.0, gang, LONG)],
            "worst-fit",
            model=[*names, model],
            relax_after_ms=5000,
            relax_scope=2,
        )
        assert found[:4] == [{0: 2}, {1: 2}, {2: 1}, {3: 1}]
        assert found[4] == expected, (gang, model)


def test_a_gang_takes_its_own_model_and_tenants_nodes_only() -> None:
    cluster = make_cluster((8, 4, 4, 8), model=["v100", "a100", "a100", "v100"], domain=["x", "x", "y", "y"])
    # Sorted: 0 is x's a100, 1 x's v100, 2 y's a100, 3 y's v100.
    names = ["v100", "a100", None, "v100", "a100"]
    assert places(cluster, [2, 2, 5, 9, 4], model=names, vc=["x", "y", "y", "x", "y"]) == [
        {1: 2},
        {2: 2},
        {3: 5},
        {},
        {},
    ]


def test_a_gang_too_large_for_a_node_keeps_to_what_it_accepts() -> None:
    # One of the two nodes of v100 is taken in part.
    cluster = make_cluster((4, 4, 4, 4), model=["a100", "a100", "v100", "v100"])
    assert places(cluster, [1, 8, 8], model=["v100", "v100", "a100"]) == [{2: 1}, {}, {0: 4, 1: 4}]


def test_a_relaxed_gang_looks_at_every_model_and_every_rack_of_it() -> None:
    cluster = make_cluster((4, 4, 4, 4), model=["a100", "a100", "v100", "v100"], rack=["x", "y", "x", "x"])
    fill = [(0.0, gpus, LONG) for gpus in (2, 2, 1, 1)]
    names = ["a100", "a100", "v100", "v100"]
    for gang, expected in ((4, {0: 2, 1: 2}), (5, {2: 3, 3: 2}), (7, {})):
        found = places(
            cluster, [*fill, (1.0, gang, LONG)], "worst-fit", model=[*names, None], relax_after_ms=5000, relax_scope=2
        )
        assert found[4] == expected


@pytest.mark.parametrize("scope", [1, 2])
def test_a_relaxed_gang_counts_nodes_beyond_the_first_word_of_a_map(scope: int) -> None:
    # One GPU of each of 70 nodes is taken.
    fill = [(0.0, 1, LONG)] * 70
    found = places(make_cluster((2,) * 70), [*fill, (1.0, 70, LONG)], "worst-fit", relax_after_ms=1, relax_scope=scope)
    assert found[70] == dict.fromkeys(range(70), 1)
    found = places(make_cluster((2,) * 70), [*fill, (1.0, 71, LONG)], "worst-fit", relax_after_ms=1, relax_scope=scope)
    assert found[70] == {}
    # Only the nodes of the second word have room: of 70 nodes the first 64 are full.
    fill = [(0.0, 128, LONG), *[(0.0, 1, LONG)] * 6]
    found = places(make_cluster((2,) * 70), [*fill, (1.0, 6, LONG)], "worst-fit", relax_after_ms=1, relax_scope=scope)
    assert found[7] == dict.fromkeys(range(64, 70), 1)


@pytest.mark.parametrize(
    ("gangs", "took_s"),
    [
        # As few nodes as would do: full speed.
        ((4,), 1),
        ((7,), 1),
        ((8,), 1),
        ((9,), 1),
        ((1, 2, 3, 3), 1),
        # 3, 2 and 1 GPUs are left, or 2, 1 and 1: relaxed, the last gang has two or three nodes where one would do.
        ((1, 2, 3, 4), 12),
        ((2, 3, 3, 4), 13),
    ],
)
def test_the_speed_of_a_gang_is_that_of_the_nodes_it_has(gangs: tuple[int, ...], took_s: int) -> None:
    # Where k0 nodes would do and it has k, a gang takes 10 k0 + k times as long.
    spread = np.full((4, 4), 1_000_000, np.int32)
    for least in range(1, 4):
        for held in range(1, 4):
            spread[least, held] = 1_000_000 // (10 * least + held)
    jobs = make_jobs([*((0.0, gpus, LONG) for gpus in gangs[:-1]), (1.0, gangs[-1], 1.0)])
    cluster = make_cluster((4, 4, 4))
    order = Ordered(by_arrival, scan="skip", relax_after_ms=5000)
    found = simulate(jobs, cluster, assign(jobs, cluster), order, rule="worst-fit", spread=spread)
    assert round((found.end_ms[-1] - found.first_start_ms[-1]) / 1000) == took_s


def test_what_is_free_in_another_rack_does_not_count() -> None:
    # Node 0 has 2 left, too few for a remainder of 3; 10 GPUs are free in all.
    assert places(make_cluster((4, 4, 4), rack=["a", "a", "b"]), [2, 7]) == [{0: 2}, {}]
    # Of rack a six nodes have 1 left, all in the second word of its map, of rack b two: 8 in no rack, and 6 in one.
    cluster = make_cluster((2,) * 72, rack=["a"] * 70 + ["b"] * 2)
    fill = [(0.0, 128, LONG), *[(0.0, 1, LONG)] * 8]
    for gang, expected in ((8, {}), (7, {}), (6, dict.fromkeys(range(64, 70), 1))):
        found = places(cluster, [*fill, (1.0, gang, LONG)], "worst-fit", relax_after_ms=1, relax_scope=1)
        assert found[9] == expected


@pytest.mark.parametrize(
    ("models", "racks", "domains", "vc", "asks", "expected"),
    [
        # The model of the first group is also that of the domain before.
        (["A"] * 3, ["r"] * 3, ["v", "w", "w"], "w", None, {1: 1, 2: 1}),
        # Of three groups the last two are racks of one model, which the gang needs together.
        (["A", "B", "B"], ["r", "r", "s"], ["v"] * 3, "v", "B", {1: 1, 2: 1}),
        # The model of a domain's second group is that of the group two before it, in another domain.
        (["B", "A", "B", "B"], ["r"] * 4, ["v", "w", "w", "w"], "w", "B", {2: 1, 3: 1}),
    ],
)
def test_a_relaxed_gang_finds_its_model_whatever_group_stands_before(
    models: list[str], racks: list[str], domains: list[str], vc: str, asks: str | None, expected: Place
) -> None:
    """Each node has 2 GPUs; two jobs leave one on each of two nodes, which the gang of 2 gets once it is relaxed."""
    cluster = make_cluster([2] * len(models), model=models, rack=racks, domain=domains)
    gangs = [(0.0, 1, LONG), (0.5, 1, LONG), (1.0, 2, LONG)]
    found = places(cluster, gangs, "worst-fit", model=asks, vc=[vc] * 3, relax_after_ms=1, relax_scope=2)
    assert found[2] == expected
