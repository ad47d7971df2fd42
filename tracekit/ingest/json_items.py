"""Read the objects of a JSON document that lists them: under a key, as an array, one a line, or one after the other.

What a command prints as `{"apiVersion": ..., "items": [...], ...}` holds its records in one array. Its objects are cut
as those of an array are (`tracekit.ingest.json_array`), in bounded memory and each with its line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tracekit.errors import SourceError
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.records import MAX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile

_CHUNK = 1 << 20
_HEAD = 1 << 20
"""Bytes at the beginning of a file in which the key of the array has to stand."""
_UTF8_BOM = b"\xef\xbb\xbf"


class Item(NamedTuple):
    """An object of the document."""

    line: int
    """On which it starts, from 1."""
    raw: bytes
    value: dict[str, Any]


class _Framed:
    """A stream with a bracket before and after it."""

    def __init__(self, begin: bytes, stream: ByteReader) -> None:
        self._pending = b"[" + begin
        self._stream = stream
        self._closed = False

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, b'' at the end."""
        if self._pending:
            chunk, self._pending = self._pending, b""
            return chunk
        chunk = self._stream.read(size)
        if chunk or self._closed:
            return chunk
        self._closed = True
        return b"]"


def json_items(opened: OpenedFile, key: str) -> Iterator[list[Item]]:
    """Yield the objects of a file in runs and count them; what is no object is rejected.

    Parameters
    ----------
    opened : OpenedFile
        The file.
    key : str
        Where the array stands in an object that lists the records; such an object may also be one of several.

    Raises
    ------
    SourceError
        The file is empty, no JSON, or ends inside an object.
    """
    head = b""
    while len(head) < _HEAD and (chunk := opened.stream.read(_CHUNK)):
        head += chunk
    text = head.removeprefix(_UTF8_BOM)
    if not text.strip():
        raise SourceError("is empty", where=opened.path, hint="check that the command that wrote it succeeded")
    if text.lstrip()[:1] not in (b"{", b"["):
        raise SourceError("is not JSON: it begins with neither '{' nor '['", where=opened.path, line=1)
    listed = re.match(rb'\s*\{[^\[\]]{0,100000}?"%s"\s*:\s*\[' % key.encode(), text) or re.match(rb"\s*\[", text)
    start = listed.end() if listed else 0
    before = text[:start].count(b"\n")
    for run in json_runs(_Framed(text[start:], opened.stream), opened.path):
        items: list[Item] = []
        for record in run.bad:
            if not _is_frame(record.raw):
                opened.count(1)
                opened.reject(before + record.line, None, record.reason, record.raw)
        for raw, line in zip(run.texts, run.lines.tolist(), strict=True):
            items += _items(opened, key, raw, before + line)
        if items:
            yield items


def _is_frame(text: bytes) -> bool:
    """Return whether text between objects is only what ends an array and the object around it."""
    rest = text.strip(b"}], \t\r\n")
    if not rest or text.startswith(b"],"):
        return True
    try:
        orjson.loads(b'{"":[' + (b"" if text.startswith(b"]") else b"]") + text.rstrip().removesuffix(b"]"))
    except ValueError:
        return False
    return True


def _items(opened: OpenedFile, key: str, raw: bytes, line: int) -> Iterator[Item]:
    try:
        if len(raw) > MAX_RECORD:
            raise ValueError
        value = orjson.loads(raw)
    except ValueError:
        opened.count(1)
        reason = "is not JSON" if len(raw) <= MAX_RECORD else f"longer than {MAX_RECORD} bytes"
        opened.reject(line, None, reason, raw)
        return
    if isinstance(value.get(key), list):
        for item in value[key]:
            opened.count(1)
            if isinstance(item, dict):
                yield Item(line, orjson.dumps(item), item)
            else:
                opened.reject(line, None, "is not a JSON object", orjson.dumps(item))
    elif set(value) - {"resourceVersion", "selfLink", "continue", "remainingItemCount"} or not value:
        opened.count(1)
        yield Item(line, raw, value)
