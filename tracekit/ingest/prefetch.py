"""Make the next item while the one before is used."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["prefetch"]

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, each made by a second thread while the caller works on the one before.

    An exception in the making is raised where the item would have come. When the caller stops early, the item in
    the making is waited for, so that no thread outlives the iteration.
    """
    nothing = object()
    with ThreadPoolExecutor(1, thread_name_prefix="tracekit-prefetch") as thread:
        coming = thread.submit(next, items, nothing)
        while (item := coming.result()) is not nothing:
            coming = thread.submit(next, items, nothing)
            yield item  # type: ignore[misc]  # the only other type is that of the sentinel
