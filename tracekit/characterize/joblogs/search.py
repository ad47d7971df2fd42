"""Find in a block of lines the best rule that holds, and the first or last line for which it does.

Each signature has texts of which a line that it matches holds one (see `literals`). Polars looks for all of them in one
pass; only lines that hold one are matched, and only with the signatures that may match them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.characterize.joblogs.literals import required_literals
from tracekit.characterize.joblogs.matcher import matches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.array_types import Ints
    from tracekit.characterize.joblogs.rules import RuleBook

__all__ = ["PIECE", "RuleMatch", "Searcher", "pieces", "plain"]

PIECE = 16 << 10
"""How much of the beginning and of the end of an overlong line is looked at [bytes]."""

_ESCAPE, _LINE_FEED = 27, 10
_BOUNDED = re.compile(r"\.\{\d+,\d+\}")
_COLOUR = r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))"
_COLOUR_BYTES = re.compile(_COLOUR.encode())
_FOLDED = bytes(b if b < 128 else ord("?") for b in bytes(range(256)).lower().replace(b"\r", b"\n"))
"""For each byte of a log one that texts are looked for in: small letters, one kind of line break, ASCII only."""


class RuleMatch(NamedTuple):
    """A line for which a rule holds."""

    rank: int
    """Place of the rule in the book, from 0."""
    signature: str
    begin: int
    """Where the line begins in the block [bytes]."""
    line: bytes
    """The line, or the piece of an overlong line, that matched; without colours."""


class _Signature(NamedTuple):
    rank: int
    pattern: str
    looser: str
    """Without bounds an expression is quicker to compile and matches at least the same lines."""
    texts: frozenset[str]
    """Empty when there is none to look for: it is matched with every line."""


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
        """Return the best rule that holds for a line of `block`.

        Parameters
        ----------
        block : array of uint8
            Lines, the last with its break.
        below : int
            Only rules of a lower rank are looked for.
        tail : bool
            The block is the end of a log and one more line break: rules that hold near the end are looked for, and
            others only with `after`.
        after : int, optional
            A job said here in the block that it succeeded: only later lines hold, and none of the book's `parting`
            [bytes].
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
        """Return the first line for which the rule holds, the last for a rule that holds near the end.

        Lines that one of the expressions `never` matches are no hits.
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
    """The lines of a block, known by their numbers from 0.

    Attributes
    ----------
    begins : int64 array, shape (lines + 1,)
        Where each line begins in the block, and where the last one ends [bytes].
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
        """Return the lines that hold one of some texts in small letters, and the texts that are held."""
        if not texts:
            return np.empty(0, dtype=np.int64), set()
        buffers = [None, pa.py_buffer(self.begins), pa.py_buffer(self._folded)]
        lines = pl.Series(pa.Array.from_buffers(pa.large_string(), len(self), buffers))
        if self._coloured:
            lines = lines.str.replace_all(_COLOUR, "")
        held = lines.str.extract_many(texts, overlapping=True)
        return np.flatnonzero(held.list.len() > 0), set(held.explode().drop_nulls().unique())

    def pieces(self, number: Ints) -> tuple[Ints, pa.Array]:
        """Return what of some lines is to be matched: the number of the line and the text of each piece."""
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
    """Return a line whole, or the beginning and the end of an overlong one, without colours."""
    if len(line) <= 2 * PIECE:
        return [plain(bytes(line))]
    return [plain(bytes(line[:PIECE])), plain(bytes(line[-PIECE:]))]


def plain(line: bytes) -> bytes:
    """Return a line without the codes that colour it on a terminal."""
    return _COLOUR_BYTES.sub(b"", line) if b"\x1b" in line else line
