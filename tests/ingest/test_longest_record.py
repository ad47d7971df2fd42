"""A record of the longest length is read, one byte more is too long, for every reader of text."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.test_json_array import read as read_array
from tests.ingest.test_records import read
from tracekit.errors import SourceError
from tracekit.ingest import json_array, records
from tracekit.ingest.mapping import blocks
from tracekit.ingest.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

LIMIT = 12


@pytest.fixture(autouse=True)
def short_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (records, json_array, blocks):
        monkeypatch.setattr(module, "MAX_RECORD", LIMIT)


@pytest.mark.parametrize("chunk", [1, 5, 13, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("longest", [b"cccccccccc,d", b'"cccccccc",d', b"c\xc3\xa9ccccccc,d"])
def test_a_line(monkeypatch: pytest.MonkeyPatch, longest: bytes, end: bytes, chunk: int) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    good, bad = read(b"a,b" + end + longest + end + b"e,f" + end, 2)
    assert ([raw for _, raw in good], bad) == ([b"a,b", longest, b"e,f"], [])
    good, bad = read(b"a,b" + end + longest + b"d" + end + b"e,f" + end, 2)
    assert [raw for _, raw in good] == [b"a,b", b"e,f"]
    assert [(line, reason) for line, _, reason in bad] == [(2, "longer than 12 bytes")]


@pytest.mark.parametrize("chunk", [1, 5, 13, 1000])
def test_a_record_over_two_lines(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    assert read(b'a,b\n"c\nc,c",dddd\ne,f\n', 2) == ([(1, b"a,b"), (2, b'"c\nc,c",dddd'), (4, b"e,f")], [])
    good, bad = read(b'a,b\n"c\nc,c",ddddd\ne,f\n', 2)
    assert (2, b'"c\nc,c",ddddd') not in good
    assert bad[0][0] == 2


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_a_header_of_the_longest_length_is_one_line(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(records, "_CHUNK", chunk)
    reader = RecordReader(io.BytesIO(b"cccccccccc,d\na,b\n"))
    assert reader.first_line() == b"cccccccccc,d"
    assert [line for block, _ in reader.blocks(2) for line in block.lines] == [2]


@pytest.mark.parametrize("chunk", [1, 1000])
def test_an_array_of_objects(chunk: int) -> None:
    assert read_array(b'[\n{"a": "bcd"}\n]', chunk) == ([(2, {"a": "bcd"})], [])


def test_an_object_that_goes_on_is_refused() -> None:
    with pytest.raises(SourceError, match=r"^log, line 2: a record is longer than 12 bytes"):
        read_array(b'[\n{"a": "bcde"}\n]', 1)


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_json_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ingest: Callable[..., Trace], chunk: int) -> None:
    monkeypatch.setattr(records, "_LINE_CHUNK", chunk)
    mapping = tmp_path / "map.toml"
    mapping.write_text("[jobs]\nfiles = 'jobs.jsonl'\n[jobs.columns]\njob_id = 'a'\n")
    lines = '{"a":"1234"}\n{"a":"12345"}\n{"a":"5678"}\n{"a":"9999"} '
    options: dict[str, Any] = {"options": {"map": str(mapping)}, "max_reject_share": 0.9}
    trace = ingest({"jobs.jsonl": lines}, format_name="csv", **options)
    assert trace.scan("jobs").collect()["job_id"].to_list() == ["1234", "5678"]
    (account,) = trace.manifest.files
    assert (account.records, account.kept, account.rejected) == (4, 2, 2)
