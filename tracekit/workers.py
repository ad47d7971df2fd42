"""Other machines or processes that do work for this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


T = TypeVar("T")
R = TypeVar("R")


class Workers(Protocol):
    """Processes that have this version of tracekit and see files at the same paths as this process."""

    def start(self) -> None:
        """Start the workers with everything they need, before long-running work.

        Raises
        ------
        UsageError
            The workers cannot be used.
        """

    def in_order(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R]:
        """Yield the result of `work` for each item, in the order of the items.

        Work and items are pickled. If a worker dies, another worker repeats its item. Work may therefore start more
        than once, but only one call's result counts. Only a few items are processed before their results are taken.
        Closing the generator abandons the others.

        Raises
        ------
        UsageError
            The workers are lost.
        """
        ...
