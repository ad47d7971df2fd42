"""The parts of mapped files that are no records: lines of comment, and the JSON around an array."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.errors import SourceError
from tracekit.ingest.json_array import JsonRun, json_runs
from tracekit.ingest.records import MAX_RECORD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.records import ByteReader

__all__ = ["Uncommented", "document_runs"]

_CHUNK = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_KEY = re.compile(rb'\s*,?\s*"[^"\\]{0,1000}"\s*:\s*')
"""What stands in front of each value of an object."""


class Uncommented:
    """A stream whose comments are empty lines, so that the others keep their numbers.

    Parameters
    ----------
    stream : ByteReader
        The content of a file.
    begin : bytes
        What a line of comment begins with.
    """

    def __init__(self, stream: ByteReader, begin: bytes) -> None:
        self._stream = stream
        self._comment = re.compile(rb"(?m)^" + re.escape(begin) + rb"[^\r\n]*")
        self._rest = b""
        self._first = True

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, whole lines if they are not too long; b'' at the end."""
        data = self._rest
        self._rest = b""
        while chunk := self._stream.read(size):
            data += chunk
            if b"\n" in chunk or len(data) > MAX_RECORD:
                break
        if self._first:
            self._first = False
            data = data.removeprefix(_UTF8_BOM)
        end = data.rfind(b"\n") + 1 if chunk else len(data)
        if end:
            data, self._rest = data[:end], data[end:]
        return self._comment.sub(b"", data)


def document_runs(stream: ByteReader, path: str, place: str) -> Iterator[JsonRun]:
    """Return the objects of a JSON document in runs, as `tracekit.ingest.json_array.json_runs` does.

    Parameters
    ----------
    place : str
        Dotted path of the array of records; '.' for the document, which is an array or an object whose values are the
        records.

    Raises
    ------
    SourceError
        The document has no such array, or ends in the middle.
    """
    if place != ".":
        return json_runs(stream, path, place)
    head = b""
    while not head.removeprefix(_UTF8_BOM).strip() and (chunk := stream.read(_CHUNK)):
        head += chunk
    text = head.removeprefix(_UTF8_BOM)
    if not text.lstrip().startswith(b"{"):
        return json_runs(_Joined(text, stream), path)
    return _values(text, stream, path)


class _Joined:
    """A stream with bytes before it, and after its end."""

    def __init__(self, before: bytes, stream: ByteReader, after: bytes = b"") -> None:
        self._before, self._stream, self._after = before, stream, after

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, b'' at the end."""
        if self._before:
            chunk, self._before = self._before, b""
            return chunk
        chunk = self._stream.read(size)
        if not chunk:
            chunk, self._after = self._after, b""
        return chunk


def _values(text: bytes, stream: ByteReader, path: str) -> Iterator[JsonRun]:
    """Yield the values of an object; the keys before them are no records."""
    cut = text.index(b"{") + 1
    if not re.match(rb'\s*(?:\}|"[^"\\]{0,1000}"\s*:\s*\{)', text[cut : cut + 2_000]):
        hint = "for an object a line, leave records out; for an array inside the document, write its path"
        raise SourceError("is neither an array of records nor an object of records", where=path, hint=hint)
    closed = False
    # Newlines in front of the brace keep the numbers of the lines.
    before = b"[" + b"\n" * text.count(b"\n", 0, cut)
    for run in json_runs(_Joined(before + text[cut:], stream, b"]"), path):
        bad = []
        for record in run.bad:
            if _KEY.fullmatch(record.raw):
                continue
            closed = closed or record.raw.strip() == b"}"
            if record.raw.strip() != b"}":
                bad.append(record)
        yield run._replace(bad=bad)
    if not closed:
        raise SourceError("the document ends in the middle: the file is truncated", where=path, hint="fetch it again")
