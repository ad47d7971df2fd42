"""Other machines, or processes, that do work for this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Processes that have this tracekit, and see files at the same paths as this one."""

    def start(self) -> None:
        """Take what they need, before long work for them.

        Raises
        ------
        UsageError
            They cannot be used.
        """

    def in_order(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R]:
        """Yield what `work` returns for each item, in the order of the items.

        Work and items are pickled. An item whose worker dies is done again by another one, so that work may be begun
        more than once; what one call returned counts. Only some items are done before their results are taken; closing
        the generator gives up the others.

        Raises
        ------
        UsageError
            The workers are lost.
        """
        ...
