"""Read a JSON array of objects in runs, in bounded memory, and set damaged objects aside.

The ends of objects are found by counting braces outside strings. A run of objects that all have the expected shape
becomes a table at once; any other is parsed object by object.
"""

from __future__ import annotations

import gc
import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from tracekit.errors import SourceError
from tracekit.ingest.ahead import ahead
from tracekit.ingest.records import MAX_RECORD, BadRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from tracekit.ingest.records import Readable

__all__ = ["JsonObject", "JsonRun", "json_runs"]

_CHUNK = 8 * 1024 * 1024
_UTF8_BOM = b"\xef\xbb\xbf"
_BETWEEN = b" \t\r\n,"
# A string that the data end in runs to their end: its braces are text.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}]', re.DOTALL)
_QUOTE, _OPEN, _CLOSE, _NEWLINE = 34, 123, 125, 10


@dataclass(frozen=True)
class JsonObject:
    """One object of the array.

    Attributes
    ----------
    row : int
        Its number in the run, from 0; damaged objects count.
    line : int
        Line on which it starts, from 1.
    value : dict
        What it holds.
    raw : bytes
        Its text.
    """

    row: int
    line: int
    value: dict[str, Any]
    raw: bytes


class _Found(NamedTuple):
    """Where objects are in a piece of the file."""

    text: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    line: int
    """Line on which `text` begins, from 1."""
    stray: tuple[BadRecord, ...] = ()
    """What follows the array and should not."""


class JsonRun:
    """Objects of the array that follow each other.

    Parameters
    ----------
    found : _Found
        Where they are.
    shape : pyarrow.Schema, optional
        What the objects should look like.

    Attributes
    ----------
    bad : list of BadRecord
        What stands between the objects and should not.
    table : pyarrow.Table or None
        The objects as rows, when each of them fits `shape`: a field that it does not name is a deviation, one that
        is absent is NULL.
    """

    def __init__(self, found: _Found, shape: pa.Schema | None = None) -> None:
        self._found = found
        self.bad = [*_between(found.text, found.starts, found.ends, found.line), *found.stray]
        self.table = None if shape is None else self._as_table(shape)

    def __len__(self) -> int:
        return len(self._found.starts)

    @cached_property
    def _lines(self) -> NDArray[np.int64]:
        text, starts, _, line, _ = self._found
        newlines = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == _NEWLINE)
        return line + np.searchsorted(newlines, starts)

    @cached_property
    def _pieces(self) -> list[bytes]:
        text, starts, ends, _, _ = self._found
        return [text[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def line(self, row: int) -> int:
        """Return the line on which an object starts, from 1."""
        return int(self._lines[row])

    def raw(self, row: int) -> bytes:
        """Return the text of an object."""
        return self._pieces[row]

    def _as_table(self, shape: pa.Schema) -> pa.Table | None:
        import pyarrow as pa
        import pyarrow.json

        text = self._without_commas()
        try:
            if not self._found.text.isascii():
                bytes(text).decode("utf-8")  # Arrow does not look at it
            found = pyarrow.json.read_json(
                pa.BufferReader(text),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=shape, newlines_in_values=True, unexpected_field_behavior="error"
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        return found if found.num_rows == len(self) else None

    def _without_commas(self) -> bytes | NDArray[np.uint8]:
        """Return the objects with nothing but blanks between them."""
        text, starts, ends, _, _ = self._found
        array = np.frombuffer(text, dtype=np.uint8)
        # As logs are written, one comma follows each object, and nothing but blanks stands between it and the next.
        if len(ends) and not self.bad and (array[ends[:-1]] == ord(",")).all():
            rest = b"".join(text[a + 1 : b] for a, b in zip(ends[:-1].tolist(), starts[1:].tolist(), strict=True))
            if b"," not in rest:
                spaced = array[starts[0] : ends[-1]].copy()
                spaced[ends[:-1] - starts[0]] = ord(" ")
                return spaced
        return b"\n".join(self._pieces)

    def objects(self) -> tuple[list[JsonObject], list[BadRecord]]:
        """Return the objects one by one, and those that are damaged."""
        try:
            with _no_gc():
                values = orjson.loads(b"[" + b",".join(self._pieces) + b"]")
        except orjson.JSONDecodeError:
            values = [_one(piece) for piece in self._pieces]
        good, bad = [], []
        for row, (at, value, piece) in enumerate(zip(self._lines.tolist(), values, self._pieces, strict=True)):
            if isinstance(value, dict):
                good.append(JsonObject(row, at, value, piece))
            else:
                bad.append(BadRecord(at, piece, value if isinstance(value, str) else "is not an object"))
        return good, bad


def json_runs(stream: Readable, path: str, shape: pa.Schema | None = None) -> Iterator[JsonRun]:
    """Return the objects of a JSON array in runs, with what stands between them and should not.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file's content.
    path : str
        For messages.
    shape : pyarrow.Schema, optional
        What the objects should look like; those that do can be had as a table.

    Raises
    ------
    SourceError
        The file is no JSON array, or ends inside a record.
    """
    # One thread finds the objects, another makes tables of them.
    return ahead(JsonRun(found, shape) for found in ahead(_found(stream, path)))


def _found(stream: Readable, path: str) -> Iterator[_Found]:
    carry = _after_bracket(stream, path)
    line = 1 + carry[0].count(b"\n")
    rest = carry[1]
    while True:
        chunk = stream.read(_CHUNK)
        rest += chunk
        starts, ends = _objects(rest)
        if len(ends):
            yield _Found(rest, starts, ends, line)
            stop = int(ends[-1])
            line += rest.count(b"\n", 0, stop)
            rest = rest[stop:]
        if not chunk:
            break
        if len(rest) > MAX_RECORD:
            line += rest.count(b"\n", 0, len(rest) - len(rest.lstrip(_BETWEEN)))
            raise SourceError(
                f"a record is longer than {MAX_RECORD} bytes", where=path, line=line, hint="is this the job log?"
            )
    yield from _tail(rest, line, path)


def _after_bracket(stream: Readable, path: str) -> tuple[bytes, bytes]:
    """Return what stands before and after the opening bracket."""
    head = b""
    while chunk := stream.read(_CHUNK):
        head += chunk
        text = head.removeprefix(_UTF8_BOM).lstrip()
        if text and not _UTF8_BOM.startswith(head):
            if not text.startswith(b"["):
                raise SourceError("is not a JSON array: it does not begin with '['", where=path, line=1)
            cut = head.index(b"[") + 1
            return head[:cut], head[cut:]
        if len(head) > MAX_RECORD:
            break
    raise SourceError("is empty", where=path, hint="a JSON array of job objects is due")


def _tail(rest: bytes, line: int, path: str) -> Iterator[_Found]:
    text = rest.lstrip(_BETWEEN)
    line += rest[: len(rest) - len(text)].count(b"\n")
    if text.startswith(b"]"):
        after = text[1:].lstrip()
        if after:
            line += text[: len(text) - len(after)].count(b"\n")
            yield _no_objects(BadRecord(line, after.rstrip(), "text after the end of the array"))
        return
    if text.rstrip().endswith(b"]") and not (_braces_of(text)[1] > 0).any():
        yield _no_objects(BadRecord(line, text.rstrip()[:-1], "is not a JSON object"))
        return
    raise SourceError(
        "the JSON array ends in the middle: the file is truncated", where=path, line=line, hint="fetch the file again"
    )


def _no_objects(bad: BadRecord) -> _Found:
    nowhere = np.empty(0, dtype=np.int64)
    return _Found(b"", nowhere, nowhere, bad.line, (bad,))


def _objects(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each complete top-level object starts and ends."""
    braces, steps = _braces_of(data)
    depth = np.cumsum(steps)
    closes = steps < 0
    if (depth < 0).any():
        # A closing brace too many ends no object: it lowers the floor and stays in the text between objects.
        floor = np.minimum(np.minimum.accumulate(depth), 0)
        closes &= np.diff(floor, prepend=0) == 0
        depth -= floor
    ends = braces[(depth == 0) & closes] + 1
    opens = braces[(depth == 1) & (steps > 0)]
    return opens[: len(ends)], ends


def _braces_of(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where braces stand outside strings, and 1 for each opening one, -1 for each closing one."""
    return _braces_escaped(data) if b"\\" in data else _braces(np.frombuffer(data, dtype=np.uint8))


def _braces(array: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    marks = np.flatnonzero((array == _QUOTE) | (array == _OPEN) | (array == _CLOSE))
    kinds = array[marks]
    outside = (np.cumsum(kinds == _QUOTE) & 1) == 0
    keep = outside & (kinds != _QUOTE)
    return marks[keep], np.where(kinds[keep] == _OPEN, 1, -1)


def _braces_escaped(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find braces where strings hold escapes; slower, so only for chunks that need it."""
    found = [m.start() for m in _TOKEN.finditer(data) if data[m.start()] != _QUOTE]
    places = np.array(found, dtype=np.int64)
    array = np.frombuffer(data, dtype=np.uint8)
    return places, np.where(array[places] == _OPEN, 1, -1)


def _one(piece: bytes) -> dict[str, Any] | str:
    try:
        value: dict[str, Any] = orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        return f"is not valid JSON: {error.msg}"
    return value


def _between(data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], line: int) -> list[BadRecord]:
    """Return what stands between objects and is neither blank nor a comma."""
    found: list[BadRecord] = []
    gaps = zip([0, *ends[:-1].tolist()], starts.tolist(), strict=True) if len(ends) else ()
    if not b"".join(data[a:b] for a, b in gaps).translate(None, _BETWEEN):
        return found
    before = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        text = data[before:start].lstrip(_BETWEEN)
        if text:
            at = line + data.count(b"\n", 0, start - len(text))
            found.append(BadRecord(at, text.rstrip(_BETWEEN), "is not a JSON object"))
        before = end
    return found


@contextmanager
def _no_gc() -> Iterator[None]:
    """Pause the garbage collector, which would walk every new object while millions are made."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
