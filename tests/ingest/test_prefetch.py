"""Items made ahead come in order, with their exceptions, and leave no thread behind."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tracekit.ingest.records import prefetch

if TYPE_CHECKING:
    from collections.abc import Iterator


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("tracekit-ahead")]


@pytest.mark.parametrize("count", [0, 1, 2, 100])
def test_all_items_come_in_their_order(count: int) -> None:
    assert list(prefetch(iter(range(count)))) == list(range(count))
    assert threads() == []


def test_none_is_an_item_like_any_other() -> None:
    assert list(prefetch(iter([None, 1, None]))) == [None, 1, None]


def test_an_exception_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    items = prefetch(broken())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(items)
    assert threads() == []


def test_who_stops_early_leaves_no_thread_behind() -> None:
    items = prefetch(iter(range(100)))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]  # a generator has it
    assert threads() == []
