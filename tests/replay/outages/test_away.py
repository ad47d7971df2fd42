"""Spares that fail in the very instant in which they are needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.builders import make_cluster
from tracekit.errors import UsageError
from tracekit.replay.outages.away import with_outages
from tracekit.replay.outages.failures import Outages

Row = tuple[int, int, int]


def outages(rows: list[Row]) -> Outages:
    node, since, until = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    return Outages(node.astype(np.int32), since, until, np.ones(len(rows), np.bool_), 1e9, "written by hand")


def test_a_node_and_its_spare_fail_together() -> None:
    """Node 2 stands by for 0 and 1. At 5 nodes 0 and 2 fail; 2 is back at 7 and takes the place of 0."""
    cluster = with_outages(make_cluster([8, 8, 8]), outages([(0, 5, 9), (2, 5, 7)]), 1)
    assert cluster.absent.tolist() == [0, 0, 1]
    assert list(cluster.effective_changes()) == [(5, 0, False), (7, 2, True)]
    # Two spares, of which the one that would come first fails too.
    cluster = with_outages(make_cluster([8, 8, 8]), outages([(0, 5, 9), (1, 5, 9)]), 2)
    assert list(cluster.effective_changes()) == [(5, 0, False), (5, 2, True)]


ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6), st.integers(1, 4)), max_size=10)


@given(rows=ROWS, spares=st.integers(0, 4))
def test_no_node_works_while_it_is_away_and_spares_fill_every_place_that_they_can(rows: list[Row], spares: int) -> None:
    away = [(node, since, since + length) for node, since, length in rows]
    cluster = with_outages(make_cluster([8] * 5), outages(away), spares)
    up = cluster.absent == 0
    changes = list(cluster.effective_changes())
    for time in range(12):
        for at, node, joins in changes:
            if at == time:
                up[node] = joins
        there = [not any(n == node and since <= time < until for n, since, until in away) for node in range(5)]
        assert not np.any(up & ~np.array(there))
        assert int(up.sum()) == min(5 - spares, sum(there))


def test_each_kind_of_node_keeps_one_that_works() -> None:
    # By proportion alone the one V100 node would be held, and who needs it would wait for ever.
    cluster = make_cluster([8] * 4, model=["A100"] * 3 + ["V100"])
    assert with_outages(cluster, outages([]), 2).absent.tolist() == [0, 1, 1, 0]
    with pytest.raises(UsageError, match=r"3 spares leave no node for jobs in one of 2 kinds .* use 2 or fewer"):
        with_outages(cluster, outages([]), 3)


@given(models=st.lists(st.sampled_from("abc"), min_size=1, max_size=12), data=st.data())
def test_spares_are_as_many_as_asked_and_never_all_of_a_kind(models: list[str], data: st.DataObject) -> None:
    spares = data.draw(st.integers(0, len(models) - len(set(models))))
    cluster = with_outages(make_cluster([8] * len(models), model=models), outages([]), spares)
    assert int(cluster.absent.sum()) == spares
    assert set(cluster.model[cluster.absent == 0].tolist()) == set(cluster.model.tolist())
