"""Pools of processes: what a run returns or raises, and what a process that dies costs."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tracekit.errors import UsageError
from tracekit.runs.pool import ProcessPool

if TYPE_CHECKING:
    from collections.abc import Iterator


def squared(number: int) -> int:
    """Return the square of a number; 3 kills its process, and 4 is refused."""
    if number == 3:
        os._exit(7)
    if number == 4:
        raise UsageError("4 is refused", where="--number")
    return number * number


def lost(code: int | None) -> int:
    return -(code or 0)


def test_a_process_that_dies_costs_its_own_run_alone() -> None:
    with closing(ProcessPool(squared, 2, lost)) as pool:
        assert dict(pool.results((str(n), (n,)) for n in (1, 3, 2, 5))) == {"1": 1, "3": -7, "2": 4, "5": 25}
        # The pool goes on with as many processes as before.
        assert dict(pool.results((n, (n,)) for n in (6, 7, 8))) == {6: 36, 7: 49, 8: 64}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_run_is_raised(workers: int) -> None:
    with (
        closing(ProcessPool(squared, workers, lost)) as pool,
        pytest.raises(UsageError, match=r"^--number: 4 is refused$"),
    ):
        list(pool.results([("a", (4,))]))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_run_is_asked_for_when_a_process_is_free(workers: int) -> None:
    asked: list[int] = []

    def pending() -> Iterator[tuple[int, tuple[int]]]:
        for number in (10, 11, 12, 13, 14):
            asked.append(number)
            yield number, (number,)

    with closing(ProcessPool(squared, workers, lost)) as pool:
        results = pool.results(pending())
        next(results)
        assert len(asked) <= max(workers, 1) + 1
        assert len(list(results)) == 4
