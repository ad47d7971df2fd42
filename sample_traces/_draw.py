"""Random numbers and file writing that give the same bytes on every machine.

Only ``random.Random.random`` is used, whose sequence Python guarantees, and only the four basic operations on
its values. Logarithms and exponentials may differ in the last bit between C libraries, so skewed quantities come
from tables of quantiles with straight lines between them.
"""

from __future__ import annotations

import io
import random
import tarfile
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Draw", "Quirk", "Table", "one_file_tar_gz", "stamp", "write_rows"]

T = TypeVar("T")

Table = tuple[tuple[float, float], ...]
"""Quantile table: pairs (cumulative share [0..1], value), both rising, from share 0 to share 1."""

_EPOCH = datetime(1970, 1, 1)  # naive on purpose: every conversion here is plain arithmetic


@dataclass(frozen=True)
class Quirk:
    """One oddity that a generator put into a file on purpose."""

    file: str
    """Path below the folder of the traces, with forward slashes."""
    record: str
    """What to look for: a job id, a pod name, or a time and a machine."""
    kind: str
    """Short name in kebab case; several records may share it."""
    what: str
    """One line for the reader of the table."""
    usable: bool = True
    """False where a reader has to reject the record."""


class Draw:
    """One reproducible stream of random values.

    Parameters
    ----------
    seed
        The seed of the whole run.
    name
        Name of the stream, so that a change of one trace leaves the others alone.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._random = random.Random(f"{seed}/{name}").random

    def share(self) -> float:
        """Return a number in [0, 1)."""
        return self._random()

    def chance(self, probability: float) -> bool:
        """Return True with the given probability [0..1]."""
        return self._random() < probability

    def between(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def bell(self) -> float:
        """Return a value of mean 0 and standard deviation 1 (sum of twelve uniform ones)."""
        return sum(self._random() for _ in range(12)) - 6.0

    def pick(self, items: Sequence[T]) -> T:
        """Return one of the items, all equally likely."""
        return items[int(self._random() * len(items))]

    def weighted(self, items: Sequence[tuple[T, float]]) -> T:
        """Return one of the items, given as pairs (item, weight)."""
        left = self._random() * sum(weight for _, weight in items)
        for item, weight in items:
            left -= weight
            if left < 0:
                return item
        return items[-1][0]

    def quantile(self, table: Table) -> float:
        """Return a value whose distribution is the quantile table."""
        share = self._random()
        for (low, start), (high, stop) in pairwise(table):
            if share < high:
                return start + (stop - start) * (share - low) / (high - low)
        return table[-1][1]

    def word(self, length: int, letters: str = "0123456789abcdef") -> str:
        """Return a random word, hexadecimal unless other letters are given."""
        return "".join(self.pick(letters) for _ in range(length))

    def words(self, count: int, length: int, letters: str = "0123456789abcdef") -> list[str]:
        """Return distinct random words in the order in which they were drawn."""
        found: list[str] = []
        while len(found) < count:
            word = self.word(length, letters)
            if word not in found:
                found.append(word)
        return found


def stamp(seconds: int) -> str:
    """Spell seconds since 1970-01-01 00:00:00 of the same clock [s] as ``YYYY-MM-DD HH:MM:SS``."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


def write_rows(path: Path, rows: Sequence[str]) -> None:
    """Write lines with a line feed after each, on every system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(("\n".join(rows) + "\n").encode("ascii"))


def one_file_tar_gz(name: str, rows: Sequence[str]) -> bytes:
    """Return a gzipped tar archive with one text file and no trace of the machine that wrote it."""
    content = ("\n".join(rows) + "\n").encode("ascii")
    member = tarfile.TarInfo(name)
    member.size = len(content)
    member.mode = 0o644
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(member, io.BytesIO(content))
    return _gzip_stored(buffer.getvalue())


def _gzip_stored(data: bytes) -> bytes:
    """Wrap bytes as gzip with stored blocks.

    The output of a compressor depends on its version; stored blocks do not, and random names hardly shrink.
    """
    parts = [b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"]
    size = 0xFFFF
    for start in range(0, len(data), size):
        block = data[start : start + size]
        last = start + size >= len(data)
        length = len(block).to_bytes(2, "little")
        complement = (0xFFFF - len(block)).to_bytes(2, "little")
        parts += [bytes([int(last)]), length, complement, block]
    parts.append(zlib.crc32(data).to_bytes(4, "little"))
    parts.append((len(data) & 0xFFFFFFFF).to_bytes(4, "little"))
    return b"".join(parts)
