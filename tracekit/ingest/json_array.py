"""Read the objects of a JSON document in bounded memory, each with its line. Text between objects is rejected.

- `json_runs`: a JSON array of objects that is the whole document or the value of one of its keys.
- `json_items`: a document that lists objects as `{"apiVersion": ..., "items": [...], ...}`, as an array, one per line,
  or one after another.
- `array_items`: one array in an object, which may have other members before the array.
- `document_runs`: an array at any path, or an object whose values are the records.

The end of an object is found by counting braces outside strings, so a damaged object does not affect others.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import orjson

from tracekit.errors import SourceError
from tracekit.ingest.records import MAX_RECORD, BadRecord, Joined, Record, prefetched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tracekit.ingest.records import ByteReader
    from tracekit.ingest.sink import OpenedFile

_CHUNK = 8 * 1024 * 1024
_LAST = 4096
"""Number of bytes searched for the end of a document."""
_HEAD = 1 << 20
"""Number of bytes at the beginning of a file that must contain the key of the array."""
_LONGEST_ITEM = 4 * 1024 * 1024
_TRIES = 16
"""Maximum number of matches to examine: JSON may have arrays of this name at deeper levels."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_AFTER = re.compile(rb"\s*(?:,\s*\".*)?\}\s*\Z", re.DOTALL)
_KEY = re.compile(rb'\s*,?\s*"[^"\\]{0,1000}"\s*:\s*')
"""Matches the key that precedes each value of an object."""
_UTF8_BOM = b"\xef\xbb\xbf"
_BETWEEN = b" \t\r\n,"
_QUOTE, _OPEN, _CLOSE, _NEWLINE = 34, 123, 125, 10


class JsonRun(NamedTuple):
    """Consecutive objects of the array."""

    texts: list[bytes]
    """Text of each object. The content between its braces is not checked yet."""
    lines: NDArray[np.int64]
    """Line on which each object starts, counted from 1."""
    bad: list[BadRecord]
    """Unexpected text between the objects or after the array."""


@prefetched
def json_runs(stream: ByteReader, path: str, key: str | None = None) -> Iterator[JsonRun]:
    """Yield the objects of a JSON array in runs, with any unexpected text between them.

    Parameters
    ----------
    stream : object with read(size) -> bytes
        The file's content.
    path : str
        The file's name, for error messages.
    key : str, optional
        Key of the array in the document, or a path of keys separated by dots. By default, the document itself is the
        array.

    Raises
    ------
    SourceError
        The file is not a JSON array, has no array under the key, or ends inside a record.
    """
    before, rest = _after_bracket(stream, path) if key is None else _after_key(stream, path, key)
    line = 1 + before.count(b"\n")
    while True:
        chunk = stream.read(_CHUNK)
        rest += chunk
        starts, ends = _objects(rest)
        if key is not None:
            starts, ends, over = _in_array(rest, starts, ends)
            if over is not None:
                if len(ends):
                    yield _run(rest[:over], starts, ends, line)
                _require_end(stream, rest[over:], path)
                return
        if len(ends):
            stop = int(ends[-1])
            run = _run(rest[:stop], starts, ends, line)
            yield run
            line = int(run.lines[-1]) + run.texts[-1].count(b"\n")
            rest = rest[stop:]
        if not chunk:
            break
        if len(rest) > MAX_RECORD:
            line += rest.count(b"\n", 0, len(rest) - len(rest.lstrip(_BETWEEN)))
            raise SourceError(
                f"a record is longer than {MAX_RECORD} bytes", where=path, line=line, hint="is this the job log?"
            )
    yield from _tail(rest, line, path)


def _after_bracket(stream: ByteReader, path: str) -> tuple[bytes, bytes]:
    """Return the text before and after the opening bracket."""
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
    raise SourceError("is empty", where=path, hint="a JSON array of job objects is needed")


def _after_key(stream: ByteReader, path: str, key: str) -> tuple[bytes, bytes]:
    """Return the text before and after the opening bracket of the array under a key of the document."""
    head = b""
    while chunk := stream.read(_CHUNK):
        head += chunk
        end = _end_of_path(head, key.split("."))
        if end is not None:
            return head[:end], head[end:]
        if len(head) > MAX_RECORD:
            break
    what = f"has no list '{key}'" if head.strip() else "is empty"
    raise SourceError(what, where=path, line=1, hint="is the file complete?")


def _end_of_path(head: bytes, keys: list[str]) -> int | None:
    """Return the end of the bracket that opens the array under nested keys, or None."""
    places, steps = _braces(head)
    depth = np.concatenate(([0], np.cumsum(steps)))
    at = 0
    for level, key in enumerate(keys, 1):
        opens = rb"\[" if level == len(keys) else rb"\{"
        for match in re.compile(rb'"%s"\s*:\s*' % re.escape(key.encode()) + opens).finditer(head, at):
            here = int(np.searchsorted(places, match.start()))
            # An object that has already ended contains none of the later keys.
            if depth[here] == level and depth[int(np.searchsorted(places, at)) : here + 1].min() >= (
                level if at else 0
            ):
                at = match.end()
                break
        else:
            return None
    return at


def _in_array(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int | None]:
    """Return the objects in the array, and the position of its end or None if the end has not been read yet.

    `data` begins inside the array, after an object or after the bracket.
    """
    before = 0
    for count, start in enumerate([*starts.tolist(), len(data)]):
        gap = data[before:start].lstrip(_BETWEEN)
        if gap.startswith(b"]"):
            return starts[:count], ends[:count], start - len(gap)
        if count < len(ends):
            before = int(ends[count])
    return starts, ends, None


def _require_end(stream: ByteReader, rest: bytes, path: str) -> None:
    """Read the document to its end, and reject it if it is truncated after the array."""
    while chunk := stream.read(_CHUNK):
        rest = rest[-_LAST:] + chunk
    if not rest.rstrip().endswith(b"}"):
        raise SourceError("the document ends in the middle: the file is truncated", where=path, hint="fetch it again")


def _tail(rest: bytes, line: int, path: str) -> Iterator[JsonRun]:
    """Return the text after the last object, unless that text only ends the array."""
    text = rest.lstrip(_BETWEEN)
    line += rest[: len(rest) - len(text)].count(b"\n")
    if text.startswith(b"]"):
        after = text[1:].lstrip()
        line += text[: len(text) - len(after)].count(b"\n")
        bad = BadRecord(line, after.rstrip(), "text after the end of the array")
    elif text.rstrip().endswith(b"]") and not (_braces(text)[1] > 0).any():
        bad = BadRecord(line, text.rstrip()[:-1], "is not a JSON object")
    else:
        raise SourceError(
            "the JSON array ends in the middle: the file is truncated",
            where=path,
            line=line,
            hint="fetch the file again",
        )
    if bad.raw:
        yield JsonRun([], np.empty(0, dtype=np.int64), [bad])


def _objects(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions at which each complete top-level object starts and ends."""
    braces, steps = _braces(data)
    depth = np.cumsum(steps)
    closes = steps < 0
    if (depth < 0).any():
        # An extra closing brace ends no object: it lowers the floor and stays in the text between objects.
        floor = np.minimum(np.minimum.accumulate(depth), 0)
        closes &= np.diff(floor, prepend=0) == 0
        depth -= floor
    ends = braces[(depth == 0) & closes] + 1
    opens = braces[(depth == 1) & (steps > 0)]
    return opens[: len(ends)], ends


def _braces(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of braces outside strings, with 1 for each opening and -1 for each closing brace."""
    if b"\\" in data:
        # An escaped quote does not end a string. Replacing it by blanks keeps all positions.
        data = data.replace(rb"\\", b"  ").replace(rb"\"", b"  ")
    array = np.frombuffer(data, dtype=np.uint8)
    marks = np.flatnonzero((array == _QUOTE) | (array == _OPEN) | (array == _CLOSE))
    kinds = array[marks]
    keep = ((np.cumsum(kinds == _QUOTE) & 1) == 0) & (kinds != _QUOTE)
    return marks[keep], np.where(kinds[keep] == _OPEN, 1, -1)


def _run(data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], line: int) -> JsonRun:
    """Return the objects in `data`, which begins on `line` and ends with the last object."""
    newlines = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)
    texts = [data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    gaps = [data[end:start] for end, start in zip([0, *ends[:-1].tolist()], starts.tolist(), strict=True)]
    bad = []
    for start, gap in zip(starts, gaps, strict=True):
        if stray := gap.lstrip(_BETWEEN):
            at = line + int(np.searchsorted(newlines, start - len(stray)))
            bad.append(BadRecord(at, stray.rstrip(_BETWEEN), "is not a JSON object"))
    return JsonRun(texts, line + np.searchsorted(newlines, starts), bad)


def json_items(opened: OpenedFile, key: str) -> Iterator[list[Record]]:
    """Yield the objects of a file in runs and count them. Anything that is not an object is rejected.

    Parameters
    ----------
    opened : OpenedFile
        The file.
    key : str
        Key of the array in an object that lists the records. The file may contain several of these objects.

    Raises
    ------
    SourceError
        The file is empty, is not JSON, or ends inside an object.
    """
    head = _head(opened.stream)
    text = head.removeprefix(_UTF8_BOM)
    if not text.strip():
        raise SourceError("is empty", where=opened.path, hint="check that the command that wrote it succeeded")
    if text.lstrip()[:1] not in (b"{", b"["):
        raise SourceError("is not JSON: it begins with neither '{' nor '['", where=opened.path, line=1)
    listed = re.match(rb'\s*\{[^\[\]]{0,100000}?"%s"\s*:\s*\[' % key.encode(), text) or re.match(rb"\s*\[", text)
    start = listed.end() if listed else 0
    before = text[:start].count(b"\n")
    for run in json_runs(Joined(b"[" + text[start:], opened.stream, b"]"), opened.path):
        items: list[Record] = []
        for record in run.bad:
            if not _is_frame(record.raw):
                opened.count(1)
                opened.reject(before + record.line, None, record.reason, record.raw)
        for raw, line in zip(run.texts, run.lines.tolist(), strict=True):
            items += _items(opened, key, raw, before + line)
        if items:
            yield items


def _is_frame(text: bytes) -> bool:
    """Return whether text between objects only ends an array and its enclosing object."""
    rest = text.strip(b"}], \t\r\n")
    if not rest or text.startswith(b"],"):
        return True
    try:
        orjson.loads(b'{"":[' + (b"" if text.startswith(b"]") else b"]") + text.rstrip().removesuffix(b"]"))
    except ValueError:
        return False
    return True


def _items(opened: OpenedFile, key: str, raw: bytes, line: int) -> Iterator[Record]:
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
                yield Record(line, orjson.dumps(item), item)
            else:
                opened.reject(line, None, "is not a JSON object", orjson.dumps(item))
    elif set(value) - {"resourceVersion", "selfLink", "continue", "remainingItemCount"} or not value:
        opened.count(1)
        yield Record(line, raw, value)


def _head(stream: ByteReader) -> bytes:
    """Return the beginning of a stream, which is searched for the key of an array."""
    head = b""
    while len(head) < _HEAD and (chunk := stream.read(_HEAD)):
        head += chunk
    return head


def array_of(head: bytes, keys: Sequence[str]) -> re.Match[bytes] | None:
    """Return the match at which a top-level array with one of these names begins, or None if there is none."""
    text = head.removeprefix(_UTF8_BOM).lstrip()
    if not text.startswith(b"{"):
        return None
    found = re.finditer(rb'"(' + "|".join(keys).encode() + rb')"\s*:\s*\[', head)
    for match in islice(found, _TRIES):
        before = _STRING.sub(b"", head[: match.start()])
        if before.count(b"{") - before.count(b"}") == 1 and before.count(b"[") == before.count(b"]"):
            return match
    return None


def array_items(opened: OpenedFile, keys: Sequence[str]) -> Iterator[list[Record]]:
    """Yield the objects of the array in blocks.

    Raises
    ------
    SourceError
        The array is missing, or the file ends inside it.
    """
    head = _head(opened.stream)
    match = array_of(head, keys)
    if match is None:
        names = " or ".join(f"'{key}'" for key in keys)
        raise SourceError(
            f"is not a JSON object with the array {names}", where=opened.path, hint="fetch the file again"
        )
    begin = match.end() - 1
    # json_runs counts lines, so keep the lines before the array.
    stream = Joined(b"\n" * head.count(b"\n", 0, begin) + head[begin:], opened.stream)
    for run in json_runs(stream, opened.path):
        found = [_array_item(int(line), raw) for line, raw in zip(run.lines.tolist(), run.texts, strict=True)]
        for bad in run.bad:
            # The text after the array is the rest of the enclosing object.
            if bad.reason.startswith("text after") and _AFTER.fullmatch(bad.raw[-_LONGEST_ITEM:]):
                continue
            found.append(Record(bad.line, bad.raw, {}, bad.reason))
        yield found


def _array_item(line: int, raw: bytes) -> Record:
    if len(raw) > _LONGEST_ITEM:
        return Record(line, raw, {}, f"is longer than {_LONGEST_ITEM} bytes")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Record(line, raw, {}, f"is not JSON: {str(error)[:120]}")
    return Record(line, raw, value)


def document_runs(stream: ByteReader, path: str, place: str) -> Iterator[JsonRun]:
    """Yield the objects of a JSON document in runs, as `json_runs` does.

    Parameters
    ----------
    place : str
        Dotted path of the array of records. '.' means the document itself, which is an array or an object whose values
        are the records.

    Raises
    ------
    SourceError
        The document does not contain the array, or ends in the middle.
    """
    if place != ".":
        return json_runs(stream, path, place)
    head = b""
    while not head.removeprefix(_UTF8_BOM).strip() and (chunk := stream.read(_CHUNK)):
        head += chunk
    text = head.removeprefix(_UTF8_BOM)
    if not text.lstrip().startswith(b"{"):
        return json_runs(Joined(text, stream), path)
    return _values(text, stream, path)


def _values(text: bytes, stream: ByteReader, path: str) -> Iterator[JsonRun]:
    """Yield the values of an object. Their keys are not records."""
    cut = text.index(b"{") + 1
    if not re.match(rb'\s*(?:\}|"[^"\\]{0,1000}"\s*:\s*\{)', text[cut : cut + 2_000]):
        hint = "for one object per line, omit records; for an array inside the document, write its path"
        raise SourceError("is neither an array of records nor an object of records", where=path, hint=hint)
    closed = False
    # Newlines before the brace keep the line numbers correct.
    before = b"[" + b"\n" * text.count(b"\n", 0, cut)
    for run in json_runs(Joined(before + text[cut:], stream, b"]"), path):
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
