"""The JSON reader gives every object of an array once, in bounded memory, and sets the rest aside."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import SourceError
from tracekit.ingest import json_array
from tracekit.ingest.json_array import json_runs

CHUNKS = (1, 2, 3, 7, 8 * 1024 * 1024)
NOT_OBJECT = "is not a JSON object"
DAMAGED = "is not valid JSON, as whoever parses it will see"

Result = tuple[list[tuple[int, dict[str, Any]]], list[tuple[int, bytes, str]]]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(alphabet='ab{}[]",:\\\n\té', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(alphabet='ab{}"\\', max_size=4), VALUES, max_size=3)


def read(content: bytes, chunk: int = 8 * 1024 * 1024) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_array, "_CHUNK", chunk)
        runs = list(json_runs(io.BytesIO(content), "log"))
    good = []
    bad = [(stray.line, stray.raw, stray.reason) for run in runs for stray in run.bad]
    for line, text in ((line, text) for run in runs for line, text in zip(run.lines.tolist(), run.texts, strict=True)):
        try:
            good.append((line, json.loads(text)))
        except ValueError:
            bad.append((line, text, DAMAGED))
    return good, sorted(bad)


def read_in_every_chunk_size(content: bytes) -> Result:
    results = [read(content, chunk) for chunk in CHUNKS]
    for result in results[1:]:
        assert result == results[0]
    return results[0]


@given(objects=st.lists(OBJECTS, max_size=5), indent=st.sampled_from([None, 0, 1, 4]), chunk=st.sampled_from(CHUNKS))
def test_any_list_of_objects_comes_back(objects: list[dict[str, Any]], indent: int | None, chunk: int) -> None:
    good, bad = read(json.dumps(objects, indent=indent, ensure_ascii=False).encode(), chunk)
    assert ([value for _, value in good], bad) == (objects, [])


def test_objects_carry_the_line_on_which_they_start() -> None:
    text = b'\n[\n{"a": 1},\n\n{"b":\n 2}, {"c": 3}\n]\n'
    assert read_in_every_chunk_size(text) == ([(3, {"a": 1}), (5, {"b": 2}), (6, {"c": 3})], [])


def test_an_empty_array_has_no_objects() -> None:
    assert read_in_every_chunk_size(b" [ ] \n") == ([], [])


def test_a_byte_order_mark_may_stand_in_front() -> None:
    assert read_in_every_chunk_size(b'\xef\xbb\xbf[{"a": 1}]') == ([(1, {"a": 1})], [])


def test_braces_and_escaped_quotes_inside_strings_are_text() -> None:
    text = rb'[{"a": "}{", "b": "\"}", "c": "\\"}, {"d": "{"}]'
    assert read_in_every_chunk_size(text) == ([(1, {"a": "}{", "b": '"}', "c": "\\"}), (1, {"d": "{"})], [])


def test_an_object_that_is_not_valid_json_stands_alone() -> None:
    assert read_in_every_chunk_size(b'[{"a": 1},\n{"b": nope},\n{"c": 3}]') == (
        [(1, {"a": 1}), (3, {"c": 3})],
        [(2, b'{"b": nope}', DAMAGED)],
    )


def test_invalid_utf8_costs_its_object_only() -> None:
    good, bad = read_in_every_chunk_size(b'[{"a": "\xff"}, {"b": 2}]')
    assert (good, [raw for _, raw, _ in bad]) == ([(1, {"b": 2})], [b'{"a": "\xff"}'])


def test_elements_that_are_not_objects_are_set_aside_under_their_line() -> None:
    text = b'[\n5,\n{"a": 1},\n"x{",\nnull, {"b": 2},\n[7]\n]'
    assert read_in_every_chunk_size(text) == (
        [(3, {"a": 1}), (5, {"b": 2})],
        [(2, b"5", NOT_OBJECT), (4, b'"x{",\nnull', NOT_OBJECT), (6, b"[7]\n", NOT_OBJECT)],
    )


def test_a_single_character_between_objects_is_not_lost() -> None:
    assert read_in_every_chunk_size(b'[{"a": 1}x{"b": 2}]') == (
        [(1, {"a": 1}), (1, {"b": 2})],
        [(1, b"x", NOT_OBJECT)],
    )


def test_an_array_without_objects_holds_one_bad_record() -> None:
    assert read_in_every_chunk_size(b'[1, "{", 2]') == ([], [(1, b'1, "{", 2', NOT_OBJECT)])


def test_a_closing_brace_too_many_costs_nothing_but_itself() -> None:
    assert read_in_every_chunk_size(b'[{"a": 1}},\n{"b": 2}}}, {"c": 3}]') == (
        [(1, {"a": 1}), (2, {"b": 2}), (2, {"c": 3})],
        [(1, b"}", NOT_OBJECT), (2, b"}}", NOT_OBJECT)],
    )


def test_text_after_the_array_is_set_aside_under_its_line() -> None:
    assert read_in_every_chunk_size(b'[{"a": 1}]\n\nend of log\n') == (
        [(1, {"a": 1})],
        [(3, b"end of log", "text after the end of the array")],
    )


def test_a_second_array_is_read_on() -> None:
    assert read_in_every_chunk_size(b'[{"a": 1}]\n[{"b": 2}]') == (
        [(1, {"a": 1}), (2, {"b": 2})],
        [(1, b"]\n[", NOT_OBJECT)],
    )


@pytest.mark.parametrize("text", [b'[{"a": 1}, {"b": ', b'[{"a": 1}', b"[", b'[{"a": "}', b'[{"a": 1},'])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_truncated_array_is_refused(text: bytes, chunk: int) -> None:
    with pytest.raises(SourceError, match=r"^log, line 1: the JSON array ends in the middle: the file is truncated"):
        read(text, chunk)


@pytest.mark.parametrize("text", [b"", b" \n "])
def test_an_empty_file_is_refused(text: bytes) -> None:
    with pytest.raises(SourceError, match=r"^log: is empty; a JSON array of job objects is needed$"):
        read(text)


def test_a_file_that_is_not_an_array_is_refused() -> None:
    with pytest.raises(SourceError, match=r"^log, line 1: is not a JSON array: it does not begin with '\['$"):
        read(b'{"a": 1}')


def test_a_record_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "MAX_RECORD", 20)
    with pytest.raises(SourceError, match=r"^log, line 2: a record is longer than 20 bytes"):
        read(b'[\n{"a": "' + b"x" * 100 + b'"}]', 4)
