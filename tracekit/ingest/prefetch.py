"""Compute the next item of an iterator while the caller uses the current one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, each computed by a second thread while the caller works on the one before.

    An exception is raised where its item would have come. When the caller stops early, the thread is waited for, so
    that it does not outlive the iteration.
    """
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="tracekit-prefetch") as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # the only other type is that of the sentinel
