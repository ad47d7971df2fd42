"""Samples that repeat are found, and files without repeats are recognized without keeping their samples."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.checks import RepeatProof

NOON = dt.datetime(2017, 10, 3, 12)

Row = tuple[int, str]
BY_TIME: list[Row] = [(0, "m1"), (0, "m2"), (1, "m1"), (1, "m2"), (2, "m1")]
BY_MACHINE: list[Row] = [(0, "m1"), (1, "m1"), (2, "m1"), (0, "m2"), (1, "m2")]


def proof(rows: list[Row], block: int) -> bool:
    found = RepeatProof()
    for first in range(0, len(rows), block):
        part = rows[first : first + block]
        found.add(
            pl.DataFrame(
                {"time": [NOON + dt.timedelta(minutes=m) for m, _ in part], "node_id": [node for _, node in part]}
            )
        )
    return found.holds


@pytest.mark.parametrize("rows", [BY_TIME, BY_MACHINE], ids=["by time", "by machine"])
@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_files_in_either_order_are_known_to_repeat_nothing(rows: list[Row], block: int) -> None:
    assert proof(rows, block)


@pytest.mark.parametrize("block", [1, 2, 6])
def test_a_repeated_sample_is_never_overlooked(block: int) -> None:
    assert not proof([*BY_TIME, (1, "m2")], block)


def test_times_that_go_back_between_blocks_leave_the_question_open() -> None:
    assert not proof([(5, "m1"), (4, "m1")], 1)
    assert proof([(5, "m1"), (4, "m1")], 2)


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["m1", "m2"])), max_size=8), block=st.integers(1, 4))
def test_the_proof_never_holds_where_a_sample_repeats(rows: list[Row], block: int) -> None:
    if proof(rows, block):
        assert len(set(rows)) == len(rows)
