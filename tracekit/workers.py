"""Other machines or processes that work for this process."""

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

        Work and items are pickled. If a worker dies, another repeats its item, so work may start more than once, but
        only one result counts. Only a few items run ahead of the caller. Closing the generator abandons the rest.

        Raises
        ------
        UsageError
            The workers are lost.
        """
        ...
