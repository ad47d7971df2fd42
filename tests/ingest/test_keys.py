"""Records that repeat a key are found, whatever the keys look like and however they come in blocks."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest import keys as keys_module
from tracekit.ingest.csv_table import SeenKeys

NUMBERS = st.lists(st.integers(0, 9), max_size=12)
WORDS = st.lists(st.sampled_from("abcdef"), max_size=12)


def repeats(columns: dict[str, list[object]], block: int, unusable: frozenset[int] = frozenset()) -> list[int]:
    """Return the rows found, counted over all blocks."""
    frame = pl.DataFrame(columns)
    seen, found = SeenKeys(tuple(columns)), []
    for first in range(0, frame.height, block):
        part = frame.slice(first, block)
        usable = np.array([first + row not in unusable for row in range(part.height)])
        found += [first + row for row in seen.repeats(part, usable)]
    return found


def expected(columns: dict[str, list[object]], unusable: frozenset[int] = frozenset()) -> list[int]:
    met: set[tuple[object, ...]] = set()
    found = []
    for row, key in enumerate(zip(*columns.values(), strict=True)):
        if row in unusable:
            continue
        if key in met:
            found.append(row)
        met.add(key)
    return found


@pytest.mark.parametrize("block", [1, 2, 3, 100])
@pytest.mark.parametrize(
    ("numbers", "rows"),
    [([1, 2, 3, 4], []), ([1, 2, 2, 3], [2]), ([1, 3, 2, 3, 1], [3, 4]), ([2, 1, 3, 4, 5, 1], [5]), ([], [])],
)
def test_numbers_that_come_again(numbers: list[object], rows: list[int], block: int) -> None:
    assert repeats({"id": numbers}, block) == rows


@given(numbers=NUMBERS, block=st.integers(1, 5), unusable=st.frozensets(st.integers(0, 11)))
def test_single_keys(numbers: list[object], block: int, unusable: frozenset[int]) -> None:
    assert repeats({"id": numbers}, block, unusable) == expected({"id": numbers}, unusable)


@given(words=WORDS, numbers=NUMBERS, block=st.integers(1, 5))
def test_keys_of_two_columns(words: list[object], numbers: list[object], block: int) -> None:
    size = min(len(words), len(numbers))
    columns = {"word": words[:size], "number": numbers[:size]}
    assert repeats(columns, block) == expected(columns)


@given(words=WORDS, block=st.integers(1, 5))
def test_different_keys_with_one_hash_are_different(words: list[object], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys_module, "_hashes", lambda keys: [7] * keys.height)
        assert repeats({"id": words}, block) == expected({"id": words})
