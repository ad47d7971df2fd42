"""Other numbers of nodes, by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.replay.builders import make_cluster
from tracekit.capacity_plan.nodes import NodeAxis, resized, settled_nodes
from tracekit.errors import UsageError
from tracekit.replay.clusters.cluster import QuotaTable
from tracekit.replay.clusters.cluster import make_cluster as cluster_of_nodes


def test_as_many_nodes_as_there_are_is_the_same_cluster() -> None:
    cluster = make_cluster(
        (8, 4, 8),
        model=["A", "A", "B"],
        rack=["r", "s", "r"],
        quota={"a": 12, "b": 8},
        changes=[(5, 1, False), (9, 1, True)],
    )
    same = resized(cluster, (2, 1))
    for name in (
        "gpus",
        "model",
        "rack",
        "domain",
        "quota",
        "quota_ms",
        "change_ms",
        "change_node",
        "change_up",
        "absent",
    ):
        assert np.array_equal(getattr(same, name), getattr(cluster, name)), name
    assert (same.node_id, same.models, same.racks) == (cluster.node_id, cluster.models, cluster.racks)


def test_nodes_more_are_shared_out_over_racks_and_vcs_in_whole_nodes() -> None:
    # Three nodes of a and one of b: seven are five and two, by largest remainder 5.25 and 1.75.
    cluster = make_cluster((8, 8, 8, 8), domain=["a", "a", "a", "b"], quota={"a": 24, "b": 8})
    grown = resized(cluster, (7,))
    assert Counter(grown.domain.tolist()) == {0: 5, 1: 2}
    assert len(set(grown.node_id)) == 7
    assert grown.total_gpus == 56
    assert grown.quota.tolist() == [[42, 14]]
    assert Counter(resized(cluster, (2,)).domain.tolist()) == {0: 1, 1: 1}  # not 2 and 0: b's jobs need one
    assert Counter(resized(cluster, (1,)).domain.tolist()) == {0: 1}


def test_quotas_and_changes_move_with_the_start_of_the_window() -> None:
    cluster = make_cluster((8,), quota={"a": [(0, 8), (60, 4)]}, changes=[(5, 0, False), (9, 0, True)])
    later = resized(cluster, (2,), 86_400_000)
    assert later.change_ms.tolist() == [86_405_000, 86_405_000, 86_409_000, 86_409_000]
    assert later.change_node.tolist() == [0, 1, 0, 1]
    assert later.quota_ms.tolist() == [86_400_000, 86_460_000]
    assert later.quota.tolist() == [[16], [8]]


def test_no_node_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one node"):
        resized(make_cluster((8,)), (0,))


def test_nodes_that_join_late_or_leave_for_good_are_there_all_the_time() -> None:
    cluster = make_cluster(
        (8, 8, 8, 8, 8),
        changes=[
            (5, 0, True),  # joins late
            (6, 1, False),  # leaves for good
            (7, 2, False),  # is away for a while
            (8, 2, True),
            (9, 2, False),
        ],
        absent=[0, 3],  # the fourth never comes
    )
    settled, changed = settled_nodes(cluster)
    assert changed == 4
    assert settled.node_id == ["n0", "n1", "n2", "n4"]
    assert settled.absent.tolist() == [0, 0, 0, 0]
    assert settled.change_ms.tolist() == [7000, 8000]
    assert settled.change_node.tolist() == [2, 2]
    assert settled.change_up.tolist() == [0, 1]


def test_a_cluster_whose_nodes_stay_is_left_as_it_is() -> None:
    cluster = make_cluster((8, 8), changes=[(7, 1, False), (8, 1, True)])
    assert settled_nodes(cluster) == (cluster, 0)
    assert cluster_of_nodes(cluster.as_nodes(), QuotaTable.none(), "").node_id == cluster.node_id
    with pytest.raises(UsageError, match="no node of the cluster is ever available"):
        settled_nodes(make_cluster((8,), absent=[0]))


def test_an_axis_varies_all_models_or_one() -> None:
    cluster = make_cluster((8, 8, 8, 4), model=["A", "A", "A", "B"])
    every = NodeAxis.of(cluster)
    assert (every.now, every.at(4), every.at(8)) == (4, (3, 1), (6, 2))
    one = NodeAxis.of(cluster, "B")
    assert (one.now, one.at(5)) == (1, (3, 5))
    with pytest.raises(UsageError, match="no GPU model 'C'; choose one of: A, B"):
        NodeAxis.of(cluster, "C")
