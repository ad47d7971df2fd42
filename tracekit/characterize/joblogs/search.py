"""Find in a block of lines the best rule that holds, and the first or last line for which it does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.characterize.joblogs.filter import SHORTEST, Places, WordFilter, commonness
from tracekit.characterize.joblogs.literals import required_literals
from tracekit.characterize.joblogs.matcher import AnyOf, matches

if TYPE_CHECKING:
    import numpy.typing as npt

    from tracekit.characterize.joblogs.rules import RuleBook

__all__ = ["PIECE", "Found", "Searcher", "pieces"]

PIECE = 16 << 10
"""How much of the beginning and of the end of an overlong line is looked at [bytes]."""

_MANY = 1000
"""So many candidates are sifted together before each rule looks at its own."""

_ESCAPE = 27
_BOUNDED = re.compile(r"\.\{\d+,\d+\}")
_COLOUR = re.compile(rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


class Found(NamedTuple):
    """A line for which a rule holds."""

    rank: int
    """Place of the rule in the book, from 0."""
    signature: str
    begin: int
    """Where the line begins in the block [bytes]."""
    line: bytes
    """The line, or the piece of an overlong line, that matched; without colours."""


@dataclass(frozen=True)
class _Signature:
    rank: int
    number: int
    pattern: str


class Searcher:
    """Searches blocks of lines for the rules of a book.

    Parameters
    ----------
    book : RuleBook
        Its rules are known by their ranks.
    """

    def __init__(self, book: RuleBook) -> None:
        self._ignore = AnyOf(book.ignore)
        self._unless = [AnyOf(rule.unless) for rule in book.rules]
        self._near = [None if rule.within_last_kib is None else rule.within_last_kib << 10 for rule in book.rules]
        self._signatures = [
            _Signature(rank, number, pattern)
            for rank, rule in enumerate(book.rules)
            for number, pattern in enumerate(rule.signatures)
        ]
        # Without bounds an expression is quicker to compile and matches at least the same lines.
        self._looser = [_BOUNDED.sub(".*", s.pattern) for s in self._signatures]
        texts: list[str] = []
        owners: list[int] = []
        self._loose: list[int] = []
        """Signatures without a text to look for: they are matched with every line."""
        for index, signature in enumerate(self._signatures):
            literals = required_literals(signature.pattern, SHORTEST, commonness)
            texts += literals
            owners += [index] * len(literals)
            if not literals:
                self._loose.append(index)
        self._filter = WordFilter(texts)
        owner = np.array(owners, dtype=np.int64)
        self._owners = [np.unique(owner[numbers]) for numbers in self._filter.texts_of]
        """For each word of the filter the signatures that it may belong to."""
        self._useful: dict[bytes, npt.NDArray[np.bool_]] = {}
        self._rank_of = np.array([s.rank for s in self._signatures], dtype=np.int64)
        self._anywhere = np.array([near is None for near in self._near], dtype=np.bool_)

    def best(
        self, block: npt.NDArray[np.uint8], below: int, *, tail: bool = False, after: int | None = None
    ) -> Found | None:
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
            Only lines that begin later than here in the block hold [bytes].
        """
        if not len(block) or not below:
            return None
        wanted = self._wanted(below, tail=tail, anywhere=not tail or after is not None)[self._rank_of]
        places = self._places(block, wanted)
        loose = [index for index in self._loose if wanted[index]]
        if not len(places.word) and not loose:
            return None
        lines = _Lines(block)
        line, word = lines.at(places.position), places.word
        if after is not None:
            later = lines.begins(line) > after
            line, word = line[later], word[later]
        if len(line) > _MANY:
            line, word = self._likely(line, word, wanted, lines)
        pairs = [(number, self._owners[number]) for number in np.unique(word).tolist()]
        by_signature: dict[int, list[npt.NDArray[np.int64]]] = {}
        for number, owners in pairs:
            for index in owners[wanted[owners]].tolist():
                by_signature.setdefault(index, []).append(line[word == number])
        for index in loose:
            every = np.arange(lines.count)
            by_signature[index] = [every if after is None else every[lines.begins(every) > after]]
        for rank in sorted({self._signatures[index].rank for index in by_signature}):
            own = [index for index in sorted(by_signature) if self._signatures[index].rank == rank]
            found = self._first(rank, own, np.unique(np.concatenate([a for i in own for a in by_signature[i]])), lines)
            if found is not None:
                return found
        return None

    def _wanted(self, below: int, *, tail: bool, anywhere: bool) -> npt.NDArray[np.bool_]:
        """Return for each rank whether its rule is to be looked for."""
        kinds = self._anywhere if anywhere and not tail else ~self._anywhere if not anywhere else self._anywhere | True
        return kinds & (np.arange(len(self._near)) < below)

    def _places(self, block: npt.NDArray[np.uint8], wanted: npt.NDArray[np.bool_]) -> Places:
        """Return where words of the signatures wanted stand."""
        padded = np.zeros((len(block) + 3) // 4 * 4 + 4, dtype=np.uint8)
        padded[: len(block)] = block
        places = self._filter.places(padded)
        if not len(places.word):
            return places
        key = wanted.tobytes()
        if key not in self._useful:
            self._useful[key] = np.array([bool(wanted[owners].any()) for owners in self._owners])
        useful = self._useful[key][places.word]
        return Places(places.position[useful], places.word[useful])

    def _likely(
        self, line: npt.NDArray[np.int64], word: npt.NDArray[np.int64], wanted: npt.NDArray[np.bool_], lines: _Lines
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Keep the lines that match a looser form of any of the signatures, found in one pass over them."""
        seen = np.zeros(len(self._owners), dtype=np.bool_)
        seen[word] = True
        owners = np.unique(np.concatenate([self._owners[number] for number in np.flatnonzero(seen)]))
        looser = AnyOf([self._looser[index] for index in owners[wanted[owners]].tolist()])
        candidate = np.zeros(lines.count, dtype=np.bool_)
        candidate[line] = True
        keys, texts = lines.texts(np.flatnonzero(candidate))
        candidate[:] = False
        candidate[keys[looser.matches(texts), 0]] = True
        kept = candidate[line]
        return line[kept], word[kept]

    def _first(self, rank: int, signatures: list[int], line: npt.NDArray[np.int64], lines: _Lines) -> Found | None:
        """Return the first line for which the rule holds, the last for a rule that holds near the end."""
        near = self._near[rank]
        if near is not None:
            line = line[lines.size - 1 - lines.begins(line) <= near]
        keys, texts = lines.texts(line)
        hit = AnyOf([self._signatures[index].pattern for index in signatures]).matches(texts)
        for unless in (self._ignore, self._unless[rank]):
            if hit.any():
                hit[hit] = ~unless.matches(texts.filter(pa.array(hit)))
        if not hit.any():
            return None
        chosen = int(np.flatnonzero(hit)[0 if near is None else -1])
        text = texts[chosen].as_py()
        which = next(i for i in signatures if matches([text], self._signatures[i].pattern)[0])
        return Found(rank, self._signatures[which].pattern, int(lines.begins(keys[chosen : chosen + 1, 0])[0]), text)


class _Lines:
    """The lines of a block, cut out when they are asked for; a line without its break is a number from 0."""

    def __init__(self, block: npt.NDArray[np.uint8]) -> None:
        self._data = block.data
        self._breaks = np.flatnonzero(_is_break(block))
        self.count = len(self._breaks)
        self.size = len(block)
        offsets = np.concatenate([[0], self._breaks + 1])
        self._plain = not (block == _ESCAPE).any()
        self._every = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(self._breaks), [None, pa.py_buffer(offsets), pa.py_buffer(block)]
        )

    def at(self, position: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the lines at some places."""
        return np.minimum(np.searchsorted(self._breaks, position), len(self._breaks) - 1)

    def begins(self, line: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return where lines begin."""
        return np.where(line > 0, self._breaks[line - 1] + 1, 0)

    def texts(self, lines: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """Return the pieces of lines to match: (line, number of the piece) and the text of each."""
        begins, ends = self.begins(lines), self._breaks[lines]
        if self._plain and (ends - begins <= 2 * PIECE).all():
            texts = pc.binary_slice(self._every.take(pa.array(lines)), 0, -1)
            return np.stack([lines, np.zeros_like(lines)], axis=1), texts
        keys, parts = [], []
        for line, begin, end in zip(lines.tolist(), begins.tolist(), ends.tolist(), strict=True):
            found = pieces(self._data[begin:end])
            keys += [(line, number) for number in range(len(found))]
            parts += found
        return np.array(keys, dtype=np.int64).reshape(-1, 2), pa.array(parts, pa.large_binary())


def pieces(line: memoryview) -> list[bytes]:
    """Return a line whole, or the beginning and the end of an overlong one, without colours."""
    if len(line) <= 2 * PIECE:
        return [plain(bytes(line))]
    return [plain(bytes(line[:PIECE])), plain(bytes(line[-PIECE:]))]


def plain(line: bytes) -> bytes:
    """Return a line without the codes that colour it on a terminal."""
    return _COLOUR.sub(b"", line) if b"\x1b" in line else line


def _is_break(block: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (block == 10) | (block == 13)
    return found
