"""Optional cells that cannot be read: a cell costs itself, not its record.

A record is set aside for what it cannot be without alone: its id, the times of its life, a sample's machine. Any other
cell that cannot be read is unknown, and counted by its column. Words and numbers that say "no limit" or "not set" are
unknown without being counted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink

Value = TypeVar("Value")

NO_LIMIT = ("inf", "+inf", "infinity", "+infinity", "infinite", "unlimited", "nan")
"""Words for a number that is not known or has no bound, in lower case."""

NOT_SET = (2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1)
"""Numbers with which Slurm and others say that a value is not set, or has no bound."""

_NUMBERS = frozenset(str(number) for number in NOT_SET)


def says_nothing(text: str) -> bool:
    """Return whether a cell states no value: a word or a number for no limit, or an empty list.

    Examples
    --------
    >>> says_nothing("UNLIMITED"), says_nothing("4294967295"), says_nothing("[]"), says_nothing("7")
    (True, True, True, False)
    """
    word = text.strip().lower()
    return word in NO_LIMIT or word in _NUMBERS or word == "[]"


def count_lost(sink: Sink, column: str, reason: str, examples: list[str], count: int | None = None) -> None:
    """Count cells of a column that cannot be read; `examples` holds their texts, all of them without `count`."""
    slug = re.sub(r"[^0-9a-z]+", "_", column.lower()).strip("_")[:60] or "column"
    sink.check(
        f"unreadable_{slug}",
        len(examples) if count is None else count,
        None,
        f"unreadable cells of the column '{column[:80]}'; they become unknown, and their records stay",
        [f"{text[:80]}: {reason}" for text in examples],
    )


class LostValues:
    """The values of one record that cannot be read; for records that are read one by one."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str, str]] = []

    def read(self, column: str, text: str | None, parse: Callable[[str], Value]) -> Value | None:
        """Return the value of an optional cell; None where it is empty, states nothing, or cannot be read."""
        if not text or says_nothing(text):
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.add(column, text, str(error))
            return None

    def add(self, column: str, text: str, reason: str) -> None:
        """Add a value that cannot be read."""
        self._found.append((column, text, reason))

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, column: object) -> bool:
        return any(column == found for found, _, _ in self._found)

    def count(self, sink: Sink) -> None:
        """Count them by column, once the record is known to be used."""
        for column, text, reason in self._found:
            count_lost(sink, column, reason, [text])


def count_lost_rows(
    sink: Sink, column: str, reason: str, rows: pl.Series, texts: pl.Series, usable: NDArray[np.bool_]
) -> None:
    """Count the cells of a mask in usable records, and say so where most cells of the column cannot be read."""
    kept = pl.Series(usable)
    lost, stated = texts.filter(rows & kept), texts.filter(kept).drop_nulls()
    if not len(lost):
        return
    count_lost(sink, column, reason, [str(text) for text in lost.head(5)], len(lost))
    if 2 * len(lost) > len(stated):
        sink.note(f"most cells of the column '{column[:80]}' cannot be read ({reason}) and become unknown")
