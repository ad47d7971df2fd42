"""Read the objects of one array inside a JSON object, in bounded memory."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tracekit.errors import SourceError
from tracekit.ingest.json_array import json_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.ingest.sink import OpenedFile

_HEAD = 1024 * 1024
_LONGEST = 4 * 1024 * 1024
_TRIES = 16
"""Most places that are looked at: an array of this name may stand deeper in any JSON."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_AFTER = re.compile(rb"\s*(?:,\s*\".*)?\}\s*\Z", re.DOTALL)


class JsonItem(NamedTuple):
    """One object of the array."""

    line: int
    """Line on which it begins, from 1."""
    raw: bytes
    value: dict[str, Any]
    fault: str | None
    """Why it cannot be used."""


def array_of(head: bytes, keys: Sequence[str]) -> re.Match[bytes] | None:
    """Return where an array of one of these names begins at the top of an object, None where none does."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text.startswith(b"{"):
        return None
    found = re.finditer(rb'"(' + "|".join(keys).encode() + rb')"\s*:\s*\[', head)
    for match in islice(found, _TRIES):
        before = _STRING.sub(b"", head[: match.start()])
        if before.count(b"{") - before.count(b"}") == 1 and before.count(b"[") == before.count(b"]"):
            return match
    return None


class _FromArray:
    """A stream that begins at the bracket of the array; the lines before it are blank."""

    def __init__(self, head: bytes, opened: OpenedFile) -> None:
        self._head, self._opened = head, opened

    def read(self, size: int, /) -> bytes:
        head, self._head = self._head, b""
        return head or self._opened.stream.read(size)


def json_items(opened: OpenedFile, keys: Sequence[str]) -> Iterator[list[JsonItem]]:
    """Yield the objects of the array in blocks.

    Raises
    ------
    SourceError
        There is no such array, or the file ends inside it.
    """
    head = b""
    while len(head) < _HEAD and (chunk := opened.stream.read(_HEAD)):
        head += chunk
    match = array_of(head, keys)
    if match is None:
        names = " or ".join(f"'{key}'" for key in keys)
        raise SourceError(
            f"is not a JSON object with the array {names}", where=opened.path, hint="fetch the file again"
        )
    begin = match.end() - 1
    # json_runs counts lines, so those before the array stay.
    stream = _FromArray(b"\n" * head.count(b"\n", 0, begin) + head[begin:], opened)
    for run in json_runs(stream, opened.path):
        found = [_item(int(line), raw) for line, raw in zip(run.lines.tolist(), run.texts, strict=True)]
        for bad in run.bad:
            # What follows the array is the rest of the object around it.
            if bad.reason.startswith("text after") and _AFTER.fullmatch(bad.raw[-_LONGEST:]):
                continue
            found.append(JsonItem(bad.line, bad.raw, {}, bad.reason))
        yield found


def _item(line: int, raw: bytes) -> JsonItem:
    if len(raw) > _LONGEST:
        return JsonItem(line, raw, {}, f"is longer than {_LONGEST} bytes")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return JsonItem(line, raw, {}, f"is not JSON: {str(error)[:120]}")
    return JsonItem(line, raw, value, None)


def part(value: Any, *names: str) -> Any:
    """Return what stands under names inside objects, None where one of them is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def words(value: Any) -> list[str]:
    """Return a word, or those of a list, as a list."""
    return [str(word) for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)]
