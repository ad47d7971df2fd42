"""Cut the text of scontrol into records: paragraphs of lines, or a line each."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.records import line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.records import ByteReader

_LONGEST = 4 * 1024 * 1024
"""Longest record that is read [bytes]."""

_STAMP = re.compile(rb"#\s*(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|\d{9,11})\s*$")


class ScontrolRecord(NamedTuple):
    """A record, or text that is none."""

    line: int
    """Line on which it begins, from 1."""
    raw: bytes
    fault: str | None
    """Why it is no record; None for one."""
    stamp: str | None
    """The time in the last comment line before it, as written."""

    @property
    def text(self) -> str:
        """The record as text."""
        return self.raw.decode("utf-8", "replace")


def scontrol_records(stream: ByteReader, key: bytes) -> Iterator[list[ScontrolRecord]]:
    """Yield the records of a file in blocks; each begins with `key`, such as b'JobId=', on a line of its own.

    Lines of a record that follow the first are indented. Comments that are a time ('# 2024-03-04T08:00:00') stand
    before the records that were printed then.
    """
    stamp: str | None = None
    parts: list[bytes] = []
    begun, size, number = 0, 0, 0
    for block in line_blocks(stream, _LONGEST):
        found: list[ScontrolRecord] = []
        for line in block:
            number += 1
            plain = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r") if number == 1 else line.rstrip(b"\r")
            if parts and plain[:1] in {b" ", b"\t"} and plain.strip():
                size += len(plain)
                if size <= _LONGEST:
                    parts.append(plain)
                continue
            if parts:
                found.append(_record(begun, parts, size, stamp))
                parts = []
            if plain.startswith(key):
                parts, begun, size = [plain], number, len(plain)
            elif match := _STAMP.match(plain):
                stamp = match[1].decode()
            elif plain.strip() and not plain.startswith(b"#"):
                found.append(ScontrolRecord(number, plain, f"does not begin with {key.decode()}", stamp))
        yield found
    if parts:
        yield [_record(begun, parts, size, stamp)]


def _record(line: int, parts: list[bytes], size: int, stamp: str | None) -> ScontrolRecord:
    fault = f"is longer than {_LONGEST} bytes" if size > _LONGEST else None
    return ScontrolRecord(line, b"\n".join(parts), fault, stamp)


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?:^|\s){re.escape(name)}=(\S*)")


def field_of(text: str, name: str) -> str | None:
    """Return the first value of a field without blanks, None where the record lacks it."""
    match = _pattern(name).search(text)
    return None if match is None else match[1]
