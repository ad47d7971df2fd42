"""Quantiles of waits, some of which go on: small cases worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.characterize.expected_wait.backtest import Waits, waits_of


def _waits(ended: list[float], going_on: list[float]) -> Waits:
    """Return the distribution of waits [us], asked for at 1000 us; those of `going_on` have lasted so long by then."""
    n = len(ended) + len(going_on)
    since = np.array([0] * len(ended) + [1000 - w for w in going_on], dtype=np.int64)
    until = np.array([*ended, *([2000] * len(going_on))], dtype=np.int64)
    rows = np.arange(n, dtype=np.int64)[None, :]
    return waits_of(rows, np.array([1000]), since, until, np.ones(n, dtype=bool))


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.5, 25),  # place 0.5 * 5 = 2.5, between the second and the third
        (0.2, 10),  # place 1
        (0.1, 5),  # place 0.5, between 0 and the first
        (0.8, 40),  # place 4
        (0.9, 40),  # place 4.5: nothing beyond the longest is known
        (0.0, 0),
        (-0.1, 0),
    ],
)
def test_quantile_of_four_waits(share: float, expected: float) -> None:
    assert _waits([40, 10, 30, 20], []).quantile(0, share) == pytest.approx(expected)


def test_wait_that_goes_on_is_at_least_so_long() -> None:
    # Kaplan and Meier: after 10 of 3, 2/3 go on; one leaves the count at 20; 30 is the last of 1, so none goes on.
    # Places: 10 at 1, 30 at 3.
    waits = _waits([10, 30], [20])
    assert waits.waiting.tolist() == [1]
    assert waits.quantile(0, 0.25) == pytest.approx(10)
    assert waits.quantile(0, 0.5) == pytest.approx(20)  # place 2, halfway
    assert waits.quantile(0, 0.75) == pytest.approx(30)


def test_upper_end_is_unknown_where_the_longest_go_on() -> None:
    # Of 4, 10 has place 1 and 20 place 2; two go on, beyond 20.
    waits = _waits([10, 20], [50, 60])
    assert waits.quantile(0, 0.4) == pytest.approx(20)
    assert math.isinf(waits.quantile(0, 0.5))
    assert waits.longest.tolist() == [60]


def test_wait_that_ends_later_is_not_known_yet() -> None:
    # It begins at 900 and ends at 2000: at 1000 it has waited for 100.
    since, until = np.array([0, 900]), np.array([10, 2000])
    waits = waits_of(np.array([[0, 1]]), np.array([1000]), since, until, np.array([True, True]))
    assert waits.waiting.tolist() == [1]
    assert waits.longest.tolist() == [100]


def test_shares_around_a_wait() -> None:
    waits = _waits([0, 0, 10, 20], [])
    assert waits.shares(0, 0.0) == pytest.approx((0, 3 / 5))
    assert waits.shares(0, 10.0) == pytest.approx((2 / 5, 4 / 5))
    assert waits.shares(0, 15.0) == pytest.approx((3 / 5, 4 / 5))
    assert waits.shares(0, 99.0) == pytest.approx((4 / 5, 1))


def test_rows_of_different_length_do_not_touch() -> None:
    since, until = np.zeros(3, dtype=np.int64), np.array([10, 20, 30])
    rows = np.array([[0, 1, 2], [2, -1, -1]])
    waits = waits_of(rows, np.array([100, 100]), since, until, np.ones(3, dtype=bool))
    assert waits.count.tolist() == [3, 1]
    assert waits.quantile(0, 0.5) == pytest.approx(20)
    assert waits.quantile(1, 0.5) == pytest.approx(30)
