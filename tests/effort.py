"""Set how many random cases each test tier tries."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis import strategies as st

__all__ = ["examples", "tried"]


def examples(number: int) -> int:
    """Return how many of `number` random cases to try: a third, or all with TRACEKIT_LONG=1 (`just nightly`)."""
    return number if os.environ.get("TRACEKIT_LONG") == "1" else max(number // 3, 1)


def tried(
    few: int, many: int, *cases: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on a few random cases in the first tier, and on many in the second.

    The module gets a second test, whose name ends in `_in_more_cases`. With TRACEKIT_LONG=1, the second test has three
    times as many cases. Put this decorator above other decorators, so that they apply to both tests.

    Parameters
    ----------
    few, many : int
        Number of cases in each tier.
    *cases, **named
        Strategies for the test's arguments, as for `hypothesis.given`.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        module: dict[str, Any] = getattr(test, "__globals__")  # noqa: B009 -- not every Callable has it
        more = settings(max_examples=examples(3 * many))(given(*cases, **named)(test))
        more.__name__ = more.__qualname__ = f"{test.__name__}_in_more_cases"
        module[more.__name__] = pytest.mark.thorough(more)
        return settings(max_examples=few)(given(*cases, **named)(test))

    return decorate
