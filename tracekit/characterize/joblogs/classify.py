"""Find the root cause of a failure in a log, streamed in bounded memory.

A line ends at a line feed or a carriage return, so a progress bar becomes many short lines. Line numbers count line
feeds. In a line longer than 32 KiB, only the first and the last 16 KiB are searched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.characterize.joblogs.rules import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tracekit.array_types import Ints
    from tracekit.characterize.joblogs.rules import RuleBook


# Find the best rule that matches in a block of lines, and its first or last matching line.
#
# Each signature has some literals, and every matching line contains at least one of them (see below). Polars searches
# for all literals in one pass. Only lines with a literal are matched, and only against signatures that may match.

# Find literals for a regular expression such that every match contains at least one of them.
#
# Logs are first searched for a few literals; expressions are matched only against lines that contain one. Syntax that
# the parser does not understand gives no literal, never a wrong one.

_SHORTEST = 3
"""Minimum length of a literal worth searching for [characters]."""

_ORDINARY = {"check", "error", "failed", "nccl ", "point", "timeout", "warning"}
"""Literals that are common in every log, so others are preferred."""

_TOKEN = re.compile(
    r"""
    (?P<unknown> \\[QEpPxC0-9])
  | (?P<nothing> \(\?[a-zA-Z-]+\) | \\[bB] | [$^])
  | (?P<open> \((?!\?) | \(\?(?:P?<\w+>|[a-zA-Z-]*:))
  | (?P<close> \))
  | (?P<bar> \|)
  | (?P<optional> (?:[*?] | \{0(?:,\d*)?\})[?+]?)
  | (?P<repeated> (?:\+ | \{\d+(?:,\d*)?\})[?+]?)
  | (?P<any> \. | \\[a-zA-Z] | \\?[^\x00-\x7f] | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])
  | \\?(?P<text> .)
    """,
    re.VERBOSE | re.DOTALL,
)


def required_literals(pattern: str) -> tuple[str, ...]:
    r"""Return lower-case literals such that every match of `pattern` contains at least one.

    Returns
    -------
    tuple of str
        Literals of ASCII characters; empty if none are known.

    Examples
    --------
    >>> required_literals(r"\bout of memory|oom-kill\S* \d+")
    ('out of memory', 'oom-kill')
    >>> required_literals(r"\w+\d")
    ()
    """
    tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(pattern)]
    if any(kind == "unknown" for kind, _ in tokens):
        return ()
    try:
        return _texts_of(iter(tokens))
    except RecursionError:
        return ()


def _texts_of(tokens: Iterator[tuple[str, str]]) -> tuple[str, ...]:
    """Return the literals of the branches up to a closing bracket or the end."""
    branches: list[tuple[str, ...]] = []
    parts: list[tuple[str, ...]] = []
    """The literals of each part of the branch. Every match contains one of them; if empty, they are unknown."""
    text = ""
    for kind, found in tokens:
        if kind == "text":
            text += found.lower()
        elif kind in ("optional", "repeated"):
            if text:
                parts.append((text[:-1] if kind == "optional" else text,))
            elif kind == "optional" and parts:
                parts.pop()
            text = ""
        elif kind in ("any", "open"):
            parts += [(text,), _texts_of(tokens) if kind == "open" else ()]
            text = ""
        elif kind == "bar":
            branches.append(_rarest([*parts, (text,)]))
            parts, text = [], ""
        elif kind == "close":
            break
    branches.append(_rarest([*parts, (text,)]))
    return tuple(dict.fromkeys(text for texts in branches for text in texts)) if all(branches) else ()


def _rarest(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the part whose shortest literal is longest, preferably without ordinary ones; empty if all are short."""
    usable = [texts for texts in parts if min(map(len, texts), default=0) >= _SHORTEST]
    return max(usable, key=lambda texts: (_ORDINARY.isdisjoint(texts), min(map(len, texts))), default=())


PIECE = 16 << 10
"""Length that is searched at the beginning and at the end of an overlong line [bytes]."""

_ESCAPE, _LINE_FEED = 27, 10
_BOUNDED = re.compile(r"\.\{\d+,\d+\}")
_COLOUR = r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
_COLOUR_BYTES = re.compile(_COLOUR.encode())
_FOLDED = bytes(b if b < 128 else ord("?") for b in bytes(range(256)).lower().replace(b"\r", b"\n"))
"""Byte map for the literal search: lower case, one kind of line break, ASCII only."""


class RuleMatch(NamedTuple):
    """A line that matches a rule."""

    rank: int
    """Position of the rule in the book, from 0."""
    signature: str
    begin: int
    """Position of the line in the block [bytes]."""
    line: bytes
    """The matching line, or the matching piece of an overlong line, without colours."""


class _Signature(NamedTuple):
    rank: int
    pattern: str
    looser: str
    """The expression without bounds on repetition. It compiles faster and matches at least the same lines."""
    texts: frozenset[str]
    """Literals to search for; if empty, the signature is matched against every line."""


class Searcher:
    """Searches blocks of lines for the rules of a book."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        self._near = [None if rule.within_last_kib is None else rule.within_last_kib << 10 for rule in book.rules]
        self._signatures = [
            _Signature(rank, pattern, _BOUNDED.sub(".*", pattern), frozenset(required_literals(pattern)))
            for rank, rule in enumerate(book.rules)
            for pattern in rule.signatures
        ]

    def best(
        self, block: NDArray[np.uint8], below: int, *, tail: bool = False, after: int | None = None
    ) -> RuleMatch | None:
        """Return the best rule that matches a line of `block`.

        Parameters
        ----------
        block : array of uint8
            The lines, including the last line break.
        below : int
            Only rules with a lower rank are searched.
        tail : bool
            Whether the block is the end of a log plus a line break. If so, only rules for the end of a log are
            searched, plus others if `after` is given.
        after : int, optional
            Position in the block at which the job reported success [bytes]. Only later lines count, except lines that
            match the book's `parting`.
        """
        wanted = [
            s
            for s in self._signatures
            if s.rank < below and (tail if self._near[s.rank] is not None else not tail or after is not None)
        ]
        if not len(block) or not wanted:
            return None
        lines = _Lines(block)
        number, texts = lines.holding(sorted({text for s in wanted for text in s.texts}))
        likely = [s for s in wanted if not s.texts or not s.texts.isdisjoint(texts)]
        if not all(s.texts for s in likely):
            number = np.arange(len(lines))
        if after is not None:
            number = number[lines.begins[number] > after]
        if not likely or not len(number):
            return None
        number, pieces = lines.pieces(number)
        hit = matches(pieces, tuple(s.looser for s in likely))
        number, pieces = number[hit], pieces.filter(pa.array(hit))
        for rank in sorted({s.rank for s in likely}):
            patterns = [s.pattern for s in likely if s.rank == rank]
            never = self._book.ignore if after is None else self._book.ignore + self._book.parting
            found = self._hit(rank, patterns, lines, number, pieces, never)
            if found is not None:
                return found
        return None

    def _hit(
        self,
        rank: int,
        patterns: list[str],
        lines: _Lines,
        number: Ints,
        pieces: pa.Array,
        never: tuple[str, ...],
    ) -> RuleMatch | None:
        """Return the first line that matches the rule, or the last line if the rule is for the end of a log.

        Lines that match one of the expressions in `never` are not hits.
        """
        hit = matches(pieces, tuple(patterns))
        near = self._near[rank]
        if near is not None:
            hit &= len(lines.block) - 1 - lines.begins[number] <= near
        for unless in (never, self._book.rules[rank].unless):
            hit[hit] = ~matches(pieces.filter(pa.array(hit)), unless)
        if not hit.any():
            return None
        chosen = int(np.flatnonzero(hit)[0 if near is None else -1])
        line = pieces[chosen].as_py()
        signature = next(pattern for pattern in patterns if matches([line], (pattern,))[0])
        return RuleMatch(rank, signature, int(lines.begins[number[chosen]]), line)


class _Lines:
    """The lines of a block, numbered from 0.

    Attributes
    ----------
    begins : int64 array, shape (lines + 1,)
        Beginning of each line in the block, and end of the last line [bytes].
    """

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self.block = block
        self._folded = block.tobytes().translate(_FOLDED)
        breaks = np.flatnonzero(np.frombuffer(self._folded, dtype=np.uint8) == _LINE_FEED)
        self.begins = np.concatenate([[0], breaks + 1])
        self._coloured = bool((block == _ESCAPE).any())

    def __len__(self) -> int:
        return len(self.begins) - 1

    def holding(self, texts: list[str]) -> tuple[Ints, set[str]]:
        """Return the lines that contain any of the lower-case literals, and the literals that occur."""
        if not texts:
            return np.empty(0, dtype=np.int64), set()
        buffers = [None, pa.py_buffer(self.begins), pa.py_buffer(self._folded)]
        lines = pl.Series(pa.Array.from_buffers(pa.large_string(), len(self), buffers))
        if self._coloured:
            lines = lines.str.replace_all(_COLOUR, "")
        held = lines.str.extract_many(texts, overlapping=True)
        return np.flatnonzero(held.list.len() > 0), set(held.explode().drop_nulls().unique())

    def pieces(self, number: Ints) -> tuple[Ints, pa.Array]:
        """Return the line number and the text of each piece of some lines to match."""
        begins, ends = self.begins[number], self.begins[number + 1] - 1
        if (ends - begins <= 2 * PIECE).all():
            buffers = [None, pa.py_buffer(self.begins), pa.py_buffer(self.block)]
            every = pa.Array.from_buffers(pa.large_binary(), len(self), buffers)
            whole = pc.binary_slice(every.take(pa.array(number)), 0, -1)
            return number, pc.replace_substring_regex(whole, _COLOUR, "") if self._coloured else whole
        parts = [pieces(self.block.data[begin:end]) for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        counts = [len(several) for several in parts]
        return np.repeat(number, counts), pa.array([part for several in parts for part in several], pa.large_binary())


def pieces(line: memoryview) -> list[bytes]:
    """Return a whole line, or the beginning and end of an overlong line, without colours."""
    if len(line) <= 2 * PIECE:
        return [plain(bytes(line))]
    return [plain(bytes(line[:PIECE])), plain(bytes(line[-PIECE:]))]


def plain(line: bytes) -> bytes:
    """Return a line without terminal colour codes."""
    return _COLOUR_BYTES.sub(b"", line) if b"\x1b" in line else line


CHUNK = 8 << 20
"""Size of the chunks in which a log is read [bytes]."""

_END = 4 << 10
"""Maximum distance from the end of a log at which a sign of success or failure may begin [bytes]."""

_TEXT = 500
"""Maximum length of a line kept as evidence [characters]."""

_BREAK = re.compile(rb"[\r\n]")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


@dataclass(frozen=True)
class Hit:
    """A line that matches a rule."""

    rank: int
    """Position of the rule in the rule book, from 0; the lowest position is the root cause."""
    signature: str
    """The expression that matched."""
    line: int
    """Line number, from 1."""
    text: str
    """The line, shortened, without colours or unprintable characters."""


@dataclass(frozen=True)
class LogFinding:
    """What the rules find in a log."""

    hit: Hit | None
    ends_well: bool
    """Whether a line near the end reports success and no later line contradicts it."""
    failure_sign: bool
    """Whether a line near the end reports that something went wrong."""
    bytes: int
    """Size of the content after decompression [bytes]."""


class Classifier:
    """Classifies logs by the rules of a book."""

    def __init__(self, book: RuleBook) -> None:
        self.book = book
        self._searcher = Searcher(book)
        self._tail = max(_END, *((rule.within_last_kib or 0) << 10 for rule in book.rules), 0)

    def classify(self, stream: _Readable, chunk: int = CHUNK) -> LogFinding:
        """Read a log to its end and return the finding. It does not depend on `chunk`.

        Parameters
        ----------
        stream : object with read(size)
            The log's bytes.
        chunk : int
            Size of the chunks to read [bytes].

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
        """Return the finding, after applying the rules and signs for the end of the log."""
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
    """The best hit so far, and the number of lines read."""

    def __init__(self, searcher: Searcher, below: int) -> None:
        self._searcher = searcher
        self._below = below
        self.hit: Hit | None = None
        self.line_feeds = 0

    def block(self, data: memoryview) -> None:
        """Search complete lines."""
        block = np.frombuffer(data, dtype=np.uint8)
        found = self._searcher.best(block, self._below)
        if found is not None:
            self._take(found, int(np.count_nonzero(block[: found.begin] == 10)))
        self.line_feeds += int(np.count_nonzero(block == 10))

    def line(self, partial: _Partial) -> None:
        """Search one complete line, possibly overlong, without its line break."""
        for piece in partial.pieces():
            found = self._searcher.best(np.frombuffer(piece + b"\n", dtype=np.uint8), self._below)
            if found is not None:
                self._take(found, 0)

    def _take(self, found: RuleMatch, lines_before: int) -> None:
        self.hit = _hit(found, self.line_feeds + lines_before + 1)
        self._below = found.rank


class _Partial:
    """The beginning of a line whose end has not been read yet, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = b""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, data: bytes) -> None:
        """Append data to the line."""
        self._size += len(data)
        room = 2 * PIECE - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:][-PIECE:])[-PIECE:]

    def pieces(self) -> list[bytes]:
        """Return the line, or the beginning and end of an overlong line."""
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
    """Return the positions and the lines near the end of a log, always including the last line."""
    near = max(0, len(tail) - _END)
    breaks = [m.start() for m in _BREAK.finditer(tail, near)]
    pairs = [(b, e) for b, e in zip([near, *(p + 1 for p in breaks)], [*breaks, len(tail)], strict=True) if e > b]
    if near and len(pairs) > 1 and pairs[0][0] == near:
        del pairs[0]  # it begins too far from the end
    return [b for b, _ in pairs], [plain(tail[b:e]) for b, e in pairs]


def _printable(line: bytes) -> str:
    text = line[: 4 * _TEXT].decode("utf-8", "replace").strip()[:_TEXT]
    return "".join(c if c.isprintable() else " " for c in text)
