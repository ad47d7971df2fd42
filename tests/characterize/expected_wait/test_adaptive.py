"""What the ends of an interval learn, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tracekit.characterize.expected_wait.backtest import Learner, Prediction, waits_of


def test_equal_waits_count_in_part() -> None:
    # 7 of 9 waits are 0, so that a further one lies between the shares 0 and 0.8: an end at 0.6 cuts it at 3/4.
    predicted = Prediction(0.0, 0.0, 0.0, 0.6, from_zero=True)
    assert predicted.misses(0.0, (0.0, 0.8)) == pytest.approx((0, 0.25))
    assert predicted.misses(1.0, (0.8, 0.9)) == (0, 1)


def test_ends_count_as_inside() -> None:
    predicted = Prediction(10.0, 20.0, 0.1, 0.9, from_zero=False)
    assert predicted.misses(9.9, (0.0, 0.1)) == (1, 0)
    assert predicted.misses(10.0, (0.1, 0.2)) == (0, 0)
    assert predicted.misses(20.0, (0.8, 0.9)) == (0, 0)
    assert predicted.misses(20.1, (0.9, 1.0)) == (0, 1)


def test_ends_move_out_after_a_miss_and_in_after_none() -> None:
    learner = Learner(0.8, gain=0.05)
    predicted = Prediction(1.0, 2.0, 0.1, 0.9, from_zero=False)
    learner.expect(50, 1, 7, predicted, (0.0, 1.0))
    learner.learn(49)
    assert [learner.ends_of(7).low, learner.ends_of(7).high] == pytest.approx([0.1, 0.9])
    learner.learn(50)
    assert learner.ends_of(7).low == pytest.approx(0.1 + 0.05 * 0.1)
    assert learner.ends_of(7).high == pytest.approx(0.9 + 0.05 * 0.9)
    assert learner.ends_of(8).high == pytest.approx(0.9)


def test_interval_begins_at_zero_where_many_start_at_once() -> None:
    def predicted(zeros: int) -> Prediction:
        until = np.array([0] * zeros + [10] * (19 - zeros))
        alike = waits_of(np.arange(19)[None, :], np.array([99]), np.zeros(19, dtype=np.int64), until, until >= 0)
        return Learner(0.8).predict(0, alike, 0)

    assert not predicted(2).from_zero  # 2 of 20 are a tenth, and not more
    assert predicted(3).from_zero
    assert predicted(3).low_us == 0


def test_lower_end_is_the_longest_wait_where_none_has_started() -> None:
    since, until = np.array([0, 40]), np.array([1000, 1000])
    alike = waits_of(np.array([[0, 1]]), np.array([100]), since, until, np.array([True, True]))
    predicted = Learner(0.8).predict(0, alike, 0)
    assert predicted.low_us == 100
    assert math.isinf(predicted.high_us)
