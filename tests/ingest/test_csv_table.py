"""Tables whose lines have too few or too many fields: proving records whole by their parse loses and invents none.

Records that repeat a key are found, whatever the keys look like and however they come in blocks.
"""

from __future__ import annotations

import csv
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit.ingest import csv_table, records
from tracekit.ingest.csv_table import SeenKeys, read_table
from tracekit.schema import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

SPEC = TableSchema(
    name="table",
    title="",
    description="",
    columns=(Column("a", "string", ""), Column("n", "integer", "", key=True), Column("z", "string", "")),
)
# Fields of every kind that may hide a missing one: empty, blank, numbers, words.
FIELD = st.sampled_from(["", " ", "x", "7", "-1", "1.5", "yy"])
LINE = st.lists(FIELD, min_size=0, max_size=5).map(",".join)


class Sink:
    """Stands in for the sink: opens bytes, and keeps what is set aside."""

    def __init__(self, content: bytes) -> None:
        self._stream = io.BytesIO(content)
        self.path = "table.csv"
        self.records = 0
        self.rejects: list[int] = []

    @contextmanager
    def opened(self, _file: object) -> Iterator[Sink]:
        yield self

    @property
    def stream(self) -> io.BytesIO:
        return self._stream

    def count(self, number: int) -> None:
        self.records += number

    def reject(self, line: int, column: str | None, reason: str, raw: bytes) -> None:
        assert reason
        assert raw
        assert column in (None, "n")
        self.rejects.append(line)

    def note(self, text: str) -> None:
        raise AssertionError(text)


def read(lines: list[str], chunk: int) -> tuple[list[tuple[Any, ...]], list[int], int]:
    sink = Sink("\n".join(["a,n,z", *lines]).encode() + b"\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_CHUNK", chunk)
        frames = list(read_table(sink, "table.csv", SPEC))  # type: ignore[arg-type]  # stand-ins for sink and file
    return [row for frame in frames for row in frame.select("line", "a", "n", "z").rows()], sink.rejects, sink.records


def expected(lines: list[str]) -> tuple[list[tuple[Any, ...]], list[int], int]:
    """Read line by line with the standard library."""
    kept: list[tuple[Any, ...]] = []
    rejects: list[int] = []
    total = 0
    for number, line in enumerate(lines, start=2):
        if not line:
            continue
        total += 1
        fields = next(csv.reader([line]))
        if len(fields) != 3 or fields[1].strip() not in ("", "7", "-1"):
            rejects.append(number)
        else:
            a, n, z = fields
            kept.append((number, a or None, int(n) if n.strip() else None, z or None))
    return kept, rejects, total


@settings(max_examples=examples(300))
@given(lines=st.lists(LINE, max_size=8), chunk=st.sampled_from([1, 7, 1 << 20]))
@example(lines=["x,7", "x,7,x,x"], chunk=1 << 20)  # one field short and one too long: the sum is right
@example(lines=["x,7,x,x", "x,7"], chunk=1 << 20)
@example(lines=["x,7,", "x,7,x"], chunk=1 << 20)
@example(lines=["", "x,7,x,,,"], chunk=1 << 20)
def test_any_lines_are_kept_or_set_aside_as_one_by_one(lines: list[str], chunk: int) -> None:
    kept, rejects, total = read(lines, chunk)
    want_kept, want_rejects, want_total = expected(lines)
    assert (kept, sorted(rejects), total) == (want_kept, want_rejects, want_total)


def test_regular_lines_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records.RecordReader, "_examine", lambda *_: pytest.fail("examined"))
    assert read(["x,7,y", "y,,z"], 1 << 20) == ([(2, "x", 7, "y"), (3, "y", None, "z")], [], 2)


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


def repeats_by_hand(columns: dict[str, list[object]], unusable: frozenset[int] = frozenset()) -> list[int]:
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
    assert repeats({"id": numbers}, block, unusable) == repeats_by_hand({"id": numbers}, unusable)


@given(words=WORDS, numbers=NUMBERS, block=st.integers(1, 5))
def test_keys_of_two_columns(words: list[object], numbers: list[object], block: int) -> None:
    size = min(len(words), len(numbers))
    columns = {"word": words[:size], "number": numbers[:size]}
    assert repeats(columns, block) == repeats_by_hand(columns)


@given(words=WORDS, block=st.integers(1, 5))
def test_different_keys_with_one_hash_are_different(words: list[object], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_table, "_hashes", lambda keys: [7] * keys.height)
        assert repeats({"id": words}, block) == repeats_by_hand({"id": words})
