"""Building blocks of the sections of a models file: their base class, and kinds of numbers with their range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from tracekit.decode import Range

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


Share: TypeAlias = Annotated[float, Range(0, 1)]
Rate: TypeAlias = Annotated[float, Range(0.000001, 1)]
Factor: TypeAlias = Annotated[float, Range(0, 1000)]
Seconds: TypeAlias = Annotated[float, Range(0, 10_000_000)]
Watts: TypeAlias = Annotated[float, Range(0, 100_000)]
Fault: TypeAlias = tuple[str, str]
"""Dotted key inside a section, and what is wrong with it."""


class ModelSection:
    """A section whose keys are independent, unless `faults` says otherwise."""

    def faults(self) -> Iterator[Fault]:
        """Yield the errors of keys that contradict each other."""
        yield from ()


def chosen(key: str, name: str, table: str, choices: Collection[str]) -> Iterator[Fault]:
    """Yield the error of a key that names no entry of a table."""
    if name not in choices:
        yield key, f"'{name[:80]}' is not in {table}: {', '.join(choices)}"


def is_count(text: str) -> bool:
    """Return whether a text is a whole number of at least 1."""
    return text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text) >= 1
