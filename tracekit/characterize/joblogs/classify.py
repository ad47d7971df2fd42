"""Find the root cause in one log, read as a stream in bounded memory.

A line ends at a line feed or a carriage return, so that a progress bar is many short lines; lines are numbered by line
feeds. Of a line longer than 32 KiB the first and the last 16 KiB are looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tracekit.characterize.joblogs.matcher import matches
from tracekit.characterize.joblogs.search import PIECE, RuleMatch, Searcher, plain

if TYPE_CHECKING:
    from tracekit.characterize.joblogs.rules import RuleBook

__all__ = ["CHUNK", "Classifier", "Hit", "LogFinding"]

CHUNK = 8 << 20
"""How much of a log is read at once [bytes]."""

_END = 4 << 10
"""How near to the end of a log a sign of success or failure has to begin [bytes]."""

_TEXT = 500
"""How much of a line is kept as evidence [characters]."""

_BREAK = re.compile(rb"[\r\n]")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


@dataclass(frozen=True)
class Hit:
    """A line for which a rule holds."""

    rank: int
    """Place of the rule in the rule book, from 0; the lowest is the root cause."""
    signature: str
    """The expression that matched."""
    line: int
    """Number of the line, from 1."""
    text: str
    """The line, shortened, without colours and unprintable characters."""


@dataclass(frozen=True)
class LogFinding:
    """The finding of one log."""

    hit: Hit | None
    ends_well: bool
    """A line near the end says that the job succeeded, and nothing after it says otherwise."""
    failure_sign: bool
    """A line near the end says that something went wrong."""
    bytes: int
    """Size of the content, after decompression."""


class Classifier:
    """Classifies logs by the rules of a book."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._searcher = Searcher(book)
        self._tail = max(_END, *((rule.within_last_kib or 0) << 10 for rule in book.rules), 0)

    def classify(self, stream: _Readable, chunk: int = CHUNK) -> LogFinding:
        """Read a log to its end and return its finding, which does not depend on `chunk`.

        Parameters
        ----------
        stream : object with read(size)
            The log's bytes.
        chunk : int
            How much to read at once [bytes].

        Raises
        ------
        OSError
            The log cannot be read.
        """
        scan = _Scan(self._searcher, len(self.book.rules))
        partial = _Partial()
        tail = b""
        size = 0
        while data := stream.read(chunk):
            size += len(data)
            tail = (data if len(data) > self._tail else tail + data)[-self._tail - 1 :]
            cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if cut:
                begin = 0
                if len(partial):
                    begin = _first_break(data)
                    partial.add(data[:begin])
                    scan.line(partial)
                    partial = _Partial()
                scan.block(memoryview(data)[begin:cut])
            partial.add(data[cut:])
        scan.line(partial)
        return self._judge(scan, tail, size)

    def _judge(self, scan: _Scan, tail: bytes, size: int) -> LogFinding:
        """Add the rules and signs that apply to the end of the log."""
        begins, lines = _last_lines(tail)
        well = matches(lines, self.book.ends_well)
        sign = matches(lines, self.book.failure_signs)
        sign[sign] = ~matches([line for line, bad in zip(lines, sign, strict=True) if bad], self.book.ignore)
        well &= ~sign
        success = int(np.flatnonzero(well)[-1]) if well.any() else None
        hit = scan.hit if success is None else None
        block = tail if size == len(tail) else tail[_first_break(tail) :]
        offset = len(tail) - len(block)
        found = self._searcher.best(
            np.frombuffer(block + b"\n", dtype=np.uint8),
            len(self.book.rules) if hit is None else hit.rank,
            tail=True,
            after=None if success is None else begins[success] - offset,
        )
        if found is not None:
            hit = _hit(found, scan.line_feeds - block.count(b"\n", found.begin) + 1)
        if success is not None:
            sign[:success] = False
            sign[sign] = ~matches([line for line, bad in zip(lines, sign, strict=True) if bad], self.book.parting)
        failed = bool(sign.any())
        return LogFinding(hit, success is not None and hit is None and not failed, failed, size)


class _Scan:
    """The best hit so far, and the lines passed."""

    def __init__(self, searcher: Searcher, below: int) -> None:
        self._searcher = searcher
        self._below = below
        self.hit: Hit | None = None
        self.line_feeds = 0

    def block(self, data: memoryview) -> None:
        """Take complete lines."""
        block = np.frombuffer(data, dtype=np.uint8)
        found = self._searcher.best(block, self._below)
        if found is not None:
            self._take(found, int(np.count_nonzero(block[: found.begin] == 10)))
        self.line_feeds += int(np.count_nonzero(block == 10))

    def line(self, partial: _Partial) -> None:
        """Take one complete line that may be overlong, without its break."""
        for piece in partial.pieces():
            found = self._searcher.best(np.frombuffer(piece + b"\n", dtype=np.uint8), self._below)
            if found is not None:
                self._take(found, 0)

    def _take(self, found: RuleMatch, lines_before: int) -> None:
        self.hit = _hit(found, self.line_feeds + lines_before + 1)
        self._below = found.rank


class _Partial:
    """The beginning of a line whose end was not read yet, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = b""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, data: bytes) -> None:
        """Append to the line."""
        self._size += len(data)
        room = 2 * PIECE - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:][-PIECE:])[-PIECE:]

    def pieces(self) -> list[bytes]:
        """Return the line, or the beginning and the end of an overlong one."""
        if not self._size:
            return []
        if self._size <= 2 * PIECE:
            return [bytes(self._head)]
        return [bytes(self._head[:PIECE]), (bytes(self._head) + self._tail)[-PIECE:]]


def _hit(found: RuleMatch, line: int) -> Hit:
    return Hit(found.rank, found.signature, line, _printable(found.line))


def _first_break(data: bytes) -> int:
    found = _BREAK.search(data)
    return found.start() if found else len(data)


def _last_lines(tail: bytes) -> tuple[list[int], list[bytes]]:
    """Return where the lines near the end of a log begin in its tail, and the lines; the last line always counts."""
    near = max(0, len(tail) - _END)
    breaks = [m.start() for m in _BREAK.finditer(tail, near)]
    pairs = [(b, e) for b, e in zip([near, *(p + 1 for p in breaks)], [*breaks, len(tail)], strict=True) if e > b]
    if near and len(pairs) > 1 and pairs[0][0] == near:
        del pairs[0]  # its beginning is further from the end
    return [b for b, _ in pairs], [plain(tail[b:e]) for b, e in pairs]


def _printable(line: bytes) -> str:
    text = line[: 4 * _TEXT].decode("utf-8", "replace").strip()[:_TEXT]
    return "".join(c if c.isprintable() else " " for c in text)
