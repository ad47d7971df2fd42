"""The record reader gives every record once, whole, under its line, or says why not; items made ahead come in order."""

from __future__ import annotations

import csv
import io
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest import records
from tracekit.ingest.records import RecordReader, prefetch

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS = st.sampled_from([1, 2, 3, 7, 64, 8 * 1024 * 1024])
CELLS = st.text(alphabet='ab,"\n\r é', max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    width = draw(st.integers(2, 4))
    return draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=8))


def read(
    content: bytes, fields: int, *, trailing: bool = False, delimiter: bytes = b","
) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes, str]]]:
    good: list[tuple[int, bytes]] = []
    bad: list[tuple[int, bytes, str]] = []
    for block, set_aside in RecordReader(io.BytesIO(content), delimiter).blocks(fields, trailing=trailing):
        good += [(int(line), block.raw(row)) for row, line in enumerate(block.lines)]
        bad += [(record.line, record.raw, record.reason) for record in set_aside]
    return good, bad


def python_records(text: str) -> list[tuple[int, list[str]]]:
    """Return the records of `text` with their first line, by Python's csv module."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    found = []
    before = 0
    for row in reader:
        if row:
            found.append((before + 1, row))
        before = reader.line_num
    return found


def parsed(raw: bytes) -> list[str]:
    (row,) = csv.reader(io.StringIO(raw.decode(), newline=""), strict=True)
    return row


@given(rows=tables(), end=st.sampled_from(["\n", "\r\n"]), quote_all=st.booleans(), chunk=CHUNKS, final=st.booleans())
def test_well_formed_text_gives_the_records_that_pythons_csv_module_gives(
    rows: list[list[str]], end: str, quote_all: bool, chunk: int, final: bool
) -> None:
    # A lone carriage return is a line break for Python's csv module and not for us.
    rows = [[cell.replace("\r", "\r\n") for cell in row] for row in rows]
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerows(rows)
    text = out.getvalue() if final else out.getvalue().removesuffix(end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_CHUNK", chunk)
        good, bad = read(text.encode(), len(rows[0]))
    assert [(line, parsed(raw)) for line, raw in good] == python_records(text)
    assert bad == []


@given(
    lines=st.lists(st.text(alphabet='ab,"\0é', max_size=8), max_size=12),
    chunk=CHUNKS,
    fields=st.integers(1, 3),
)
def test_whatever_the_text_no_line_is_lost_or_reported_twice(lines: list[str], chunk: int, fields: int) -> None:
    content = "\n".join(lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "_CHUNK", chunk)
        good, bad = read(content, fields)
    pieces = sorted([(line, raw) for line, raw in good] + [(line, raw) for line, raw, _ in bad])
    pieces_found = [(line + i, part) for line, raw in pieces for i, part in enumerate(raw.split(b"\n"))]
    expected = [(number, line.encode()) for number, line in enumerate(lines, 1)]
    # An empty line counts only inside a quoted field.
    assert [t for t in pieces_found if t[1]] == [e for e in expected if e[1]]
    assert len({number for number, _ in pieces_found}) == len(pieces_found)


@given(lines=st.lists(st.text(alphabet='ab,"\0é', max_size=8), max_size=12), fields=st.integers(1, 3))
def test_the_chunk_size_changes_nothing(lines: list[str], fields: int) -> None:
    content = "\n".join(lines).encode()
    results = []
    for chunk in (1, 5, 8 * 1024 * 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(records, "_CHUNK", chunk)
            results.append(read(content, fields))
    assert results[0] == results[1] == results[2]


def test_plain_lines_are_records() -> None:
    assert read(b"a,b\nc,d\n", 2) == ([(1, b"a,b"), (2, b"c,d")], [])


def test_another_delimiter_may_stand_between_fields() -> None:
    assert read(b"a|b,c\n", 2, delimiter=b"|") == ([(1, b"a|b,c")], [])


def test_a_missing_final_newline_loses_nothing() -> None:
    assert read(b"a,b\nc,d", 2) == ([(1, b"a,b"), (2, b"c,d")], [])


def test_a_carriage_return_at_the_line_end_is_not_a_part_of_the_record() -> None:
    assert read(b"a,b\r\nc,d\r\n", 2) == ([(1, b"a,b"), (2, b"c,d")], [])


def test_blank_lines_are_skipped_and_counted_as_lines() -> None:
    assert read(b"a,b\n\n\r\nc,d\n\n", 2) == ([(1, b"a,b"), (4, b"c,d")], [])


def test_blank_lines_are_not_records_of_a_table_with_one_column() -> None:
    assert read(b"a\n\nb\n", 1) == ([(1, b"a"), (3, b"b")], [])


def test_a_wrong_number_of_fields_is_set_aside_with_its_line() -> None:
    assert read(b"a,b\nc\nd,e,f\ng,h\n", 2) == (
        [(1, b"a,b"), (4, b"g,h")],
        [(2, b"c", "expected 2 fields, found 1"), (3, b"d,e,f", "expected 2 fields, found 3")],
    )


def test_fields_that_make_up_for_each_other_are_still_wrong() -> None:
    # 1 + 3 fields are as many as 2 + 2.
    assert read(b"a\nb,c,d\n", 2) == (
        [],
        [(1, b"a", "expected 2 fields, found 1"), (2, b"b,c,d", "expected 2 fields, found 3")],
    )


def test_a_final_delimiter_may_be_allowed() -> None:
    assert read(b"a,b,\nc,d\ne,f,g\n", 2, trailing=True) == (
        [(1, b"a,b,"), (2, b"c,d")],
        [(3, b"e,f,g", "expected 2 fields, found 3")],
    )


def test_where_a_delimiter_ends_every_record_no_further_field_passes_for_it() -> None:
    assert read(b"a,b,\nc,d,\r\n", 2, trailing=True) == ([(1, b"a,b,"), (2, b"c,d,")], [])
    assert read(b"a,b,\nc,d,e\n", 2, trailing=True) == (
        [(1, b"a,b,")],
        [(2, b"c,d,e", "expected 2 fields, found 3")],
    )


def test_a_stray_quote_costs_its_own_line_only() -> None:
    assert read(b'a,b\nc,"d\ne,f\n', 2) == ([(1, b"a,b"), (3, b"e,f")], [(2, b'c,"d', "a quote is not closed")])


def test_two_stray_quotes_that_join_to_no_record_cost_two_lines() -> None:
    assert read(b'a,"b\nc,d\ne",f,g\nh,i\n', 2) == (
        [(2, b"c,d"), (4, b"h,i")],
        [(1, b'a,"b', "a quote is not closed"), (3, b'e",f,g', "a quote is not closed")],
    )


def test_a_nul_byte_is_set_aside() -> None:
    assert read(b"a,b\nc\0,d\n", 2) == ([(1, b"a,b")], [(2, b"c\0,d", "contains a NUL byte")])


def test_invalid_utf8_is_set_aside_and_valid_utf8_is_not() -> None:
    assert read(b"\xc3\xa9,b\n\xff,d\n", 2) == ([(1, b"\xc3\xa9,b")], [(2, b"\xff,d", "is not valid UTF-8")])


def test_a_quoted_field_may_hold_line_breaks_and_delimiters() -> None:
    assert read(b'a,"b\nb,""b"\nc,d\n', 2) == ([(1, b'a,"b\nb,""b"'), (3, b"c,d")], [])


@pytest.mark.parametrize("chunk", range(1, 20))
def test_a_quoted_newline_may_fall_on_any_chunk_border(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    assert read(b'a,b\nc,"d\nd\nd"\ne,f\n', 2) == ([(1, b"a,b"), (2, b'c,"d\nd\nd"'), (5, b"e,f")], [])


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_a_record_beyond_the_limit_is_set_aside_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    monkeypatch.setattr(records, "MAX_RECORD", 10)
    good, bad = read(b"a,b\n" + b"c" * 50 + b",d\ne,f\n", 2)
    assert good == [(1, b"a,b"), (3, b"e,f")]
    assert [(line, raw[:10], reason) for line, raw, reason in bad] == [(2, b"c" * 10, "longer than 10 bytes")]


def test_an_open_quote_does_not_swallow_more_than_a_record_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_CHUNK", 4)
    monkeypatch.setattr(records, "MAX_RECORD", 10)
    assert read(b'a,"b\nc,d\ne,f\ng,h\ni,j\n', 2) == (
        [(2, b"c,d"), (3, b"e,f"), (4, b"g,h"), (5, b"i,j")],
        [(1, b'a,"b', "a quote is not closed")],
    )


@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_the_first_line_comes_without_byte_order_mark_and_line_end(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    reader = RecordReader(io.BytesIO(b"\xef\xbb\xbfx,y\r\na,b\n"))
    assert reader.first_line() == b"x,y"
    ((block, bad),) = [found for found in reader.blocks(2) if len(found[0].lines) or found[1]]
    assert ([(int(line), block.raw(row)) for row, line in enumerate(block.lines)], bad) == ([(2, b"a,b")], [])


def test_a_first_line_that_was_a_record_can_be_put_back() -> None:
    reader = RecordReader(io.BytesIO(b"a,b\nc,d\n"))
    line = reader.first_line()
    assert line == b"a,b"
    reader.put_back(line)
    ((block, bad),) = reader.blocks(2)
    assert ([(int(at), block.raw(row)) for row, at in enumerate(block.lines)], bad) == ([(1, b"a,b"), (2, b"c,d")], [])


def test_an_empty_file_has_no_first_line_and_no_records() -> None:
    reader = RecordReader(io.BytesIO(b""))
    assert reader.first_line() is None
    assert list(reader.blocks(2)) == []


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("tracekit-prefetch")]


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_all_items_come_in_their_order(count: int) -> None:
    assert list(prefetch(iter(range(count)))) == list(range(count))
    assert threads() == []


def test_none_is_an_item_like_any_other() -> None:
    assert list(prefetch(iter([None, 1, None]))) == [None, 1, None]


def test_an_exception_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    items = prefetch(broken())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(items)
    assert threads() == []


def test_who_stops_early_leaves_no_thread_behind() -> None:
    items = prefetch(iter(range(100)))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]  # a generator has it
    assert threads() == []
