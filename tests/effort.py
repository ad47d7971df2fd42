"""How many random cases are tried in each tier."""

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
    """Return how many of so many random cases are tried: a third, and all with TRACEKIT_LONG=1 (`just nightly`)."""
    return number if os.environ.get("TRACEKIT_LONG") == "1" else max(number // 3, 1)


def tried(
    few: int, many: int, *cases: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try a test on a few random cases, and on many in the second tier.

    The module gets a second test, with `_in_more_cases` at the end of its name. With TRACEKIT_LONG=1 that has three
    times as many. This stands above other decorators, which hold for both tests.

    Parameters
    ----------
    few, many : int
        How many cases each tier has.
    *cases, **named
        Strategies for the arguments of the test, as `hypothesis.given` takes them.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        module: dict[str, Any] = getattr(test, "__globals__")  # noqa: B009 -- not every Callable has it
        more = settings(max_examples=examples(3 * many))(given(*cases, **named)(test))
        more.__name__ = more.__qualname__ = f"{test.__name__}_in_more_cases"
        module[more.__name__] = pytest.mark.thorough(more)
        return settings(max_examples=few)(given(*cases, **named)(test))

    return decorate
