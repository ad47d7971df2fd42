"""Read a log line by line, for records that no delimiter alone can cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tracekit.ingest.records import MAX_RECORD, line_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.sink import OpenedFile

_UTF8_BOM = b"\xef\xbb\xbf"


class TextLine(NamedTuple):
    """A line that can be text."""

    number: int
    """In the file, from 1."""
    raw: bytes
    """Without its line end."""
    text: str


def text_lines(opened: OpenedFile) -> Iterator[list[TextLine]]:
    """Yield and count the lines of a file; those that are no text are rejected, blank ones are left out."""
    number = 0
    for block in line_blocks(opened.stream, MAX_RECORD):
        lines = []
        for line in block:
            number += 1
            raw = (line.removeprefix(_UTF8_BOM) if number == 1 else line).removesuffix(b"\r")
            if not raw.strip():
                continue
            opened.count(1)
            reason = _fault(raw)
            if reason:
                opened.reject(number, None, reason, raw)
                continue
            try:
                lines.append(TextLine(number, raw, raw.decode("utf-8")))
            except UnicodeDecodeError:
                opened.reject(number, None, "is not valid UTF-8", raw)
        if lines:
            yield lines


def _fault(raw: bytes) -> str:
    if len(raw) > MAX_RECORD:
        return f"longer than {MAX_RECORD} bytes"
    return "holds a NUL byte" if b"\0" in raw else ""
