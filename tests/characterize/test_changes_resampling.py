"""Days drawn again: against draws carried out by hand, and p-values against their definitions."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, ttest_ind

from tracekit.characterize.changes.differences import (
    RESAMPLES,
    DayResamples,
    Estimate,
    adjusted,
    difference,
    draw_days,
    quantile,
    resampled_quantile,
)

ALL = np.ones(10, dtype=np.bool_)
DAYS = np.arange(100, 110)


def test_as_many_days_are_drawn_as_there_are() -> None:
    draws = draw_days(DAYS, DAYS, [ALL], (0,))
    assert draws.weights.shape == (RESAMPLES, 10)
    assert set(draws.weights.sum(axis=1)) == {10}
    assert draws.weights.mean(axis=0) == pytest.approx(np.ones(10), abs=0.15)


def test_empty_days_are_drawn_without_a_place() -> None:
    draws = draw_days(DAYS, DAYS[[2, 5]], [ALL], (0,))
    drawn = draws.weights.sum(axis=1)
    # Each of ten draws meets one of the two days with a chance of 0.2.
    assert drawn.mean() == pytest.approx(2, abs=0.15)
    assert drawn.var() == pytest.approx(10 * 0.2 * 0.8, rel=0.2)
    assert draws.days == 10


def test_days_of_one_group_do_not_represent_those_of_another() -> None:
    weekend = np.array([False] * 7 + [True] * 3)
    draws = draw_days(DAYS, DAYS, [~weekend, weekend], (0,))
    assert set(draws.weights[:, :7].sum(axis=1)) == {7}
    assert set(draws.weights[:, 7:].sum(axis=1)) == {3}


@pytest.mark.thorough
def test_a_period_of_many_days_has_fewer_resamples() -> None:
    days = np.arange(40_000)
    assert draw_days(days, days, [np.ones(40_000, dtype=np.bool_)], (0,)).weights.shape == (500, 40_000)


def test_sums_are_those_of_the_days_drawn() -> None:
    draws = DayResamples(np.array([3, 7]), np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]]), days=2, groups=1)
    total, sums = draws.sums(np.array([3, 7, 7]), np.array([1.0, 10.0, 100.0]))
    assert (total, sums.tolist()) == (111, [111, 2, 220])


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 5) | st.floats(-1e6, 1e6)), min_size=1, max_size=60),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
)
def test_quantiles_are_those_of_the_values_on_the_days_drawn(rows: list[tuple[int, float]], share: float) -> None:
    days = np.array([day for day, _ in rows])
    values = np.array([value for _, value in rows], dtype=np.float64)
    draws = draw_days(np.arange(5), np.unique(days), [ALL[:5]], (1,))
    found = resampled_quantile(draws, days, values, share)
    for weights, value in list(zip(draws.weights, found, strict=True))[:40]:
        drawn = np.repeat(values, weights[draws.place(days)].astype(int))
        if len(drawn):
            assert value == pytest.approx(quantile(drawn, share), rel=1e-9, abs=1e-9)
        else:
            assert np.isnan(value)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_quantiles_of_many_values_are_off_by_a_fraction_of_a_rank(share: float) -> None:
    rng = np.random.default_rng(0)
    days, values = rng.integers(0, 20, 50_000), rng.lognormal(6, 2, 50_000)
    draws = draw_days(np.arange(20), np.arange(20), [np.ones(20, dtype=np.bool_)], (1,))
    found = resampled_quantile(draws, days, values, share)
    for weights, value in list(zip(draws.weights, found, strict=True))[:20]:
        drawn = np.repeat(values, weights[days].astype(int))
        low, high = np.quantile(drawn, [share - 0.0006, share + 0.0006])
        assert low <= value <= high


def test_of_nothing_there_is_no_quantile() -> None:
    draws = draw_days(DAYS, DAYS, [ALL], (0,))
    found = resampled_quantile(draws, np.empty(0, dtype=int), np.empty(0), 0.5)
    assert np.isnan(found).all()
    assert np.isnan(quantile(np.empty(0), 0.5))


@functools.cache
def drawn(number: int, seed: int) -> DayResamples:
    days = np.arange(number)
    return draw_days(days, days, [np.ones(number, dtype=np.bool_)], (seed,))


def of_means(sample: np.ndarray, seed: int) -> Estimate:
    total, sums = drawn(len(sample), seed).sums(np.arange(len(sample)), sample)
    return Estimate(total / len(sample), sums / len(sample), n=100, days=len(sample))


def test_p_values_of_means_are_those_of_t_tests() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 30), rng.normal(0.9, 3, 12)
    found = difference(of_means(a, 0), of_means(b, 1))
    expected = max(ttest_ind(a, b, equal_var=equal).pvalue for equal in (True, False))
    assert found["p_value"] == pytest.approx(expected, rel=0.1)


def test_an_interval_is_that_of_the_differences() -> None:
    before = Estimate(10.0, np.full(1000, 10.0), 100, 10)
    after = Estimate(12.0, np.linspace(11, 13, 1000), 100, 10)
    found = difference(before, after)
    assert (found["difference"], found["relative_change"]) == (2, 0.2)
    assert (found["difference_low"], found["difference_high"]) == pytest.approx((1.05, 2.95), abs=1e-3)
    assert (found["relative_change_low"], found["relative_change_high"]) == pytest.approx((0.105, 0.295), abs=1e-3)


def test_nothing_is_judged_on_four_days_nor_without_a_value() -> None:
    some, few = Estimate(1.0, np.ones(9), 100, 5), Estimate(2.0, np.ones(9), 100, 4)
    assert (difference(some, few)["difference"], difference(some, few)["p_value"]) == (1, None)
    nothing = Estimate(np.nan, np.full(9, np.nan), 0, 5)
    assert (difference(nothing, some)["difference"], difference(nothing, some)["p_value"]) == (None, None)
    rarely = Estimate(2.0, np.array([2.0, np.nan] * 5), 100, 5)
    assert (difference(rarely, some)["difference"], difference(rarely, some)["p_value"]) == (-1, None)


def test_from_zero_there_is_no_relative_change() -> None:
    found = difference(Estimate(0.0, np.zeros(9), 100, 5), Estimate(2.0, np.arange(1.0, 4.0).repeat(3), 100, 5))
    assert (found["difference"], found["relative_change"], found["relative_change_low"]) == (2, None, None)
    assert found["difference_low"] is not None


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_adjusting_is_that_of_benjamini_and_hochberg(values: list[float]) -> None:
    assert adjusted(values) == pytest.approx(false_discovery_control(values, method="bh").tolist())


def test_rows_without_a_p_value_do_not_count() -> None:
    assert adjusted([None, 0.01, None, 0.04]) == [None, 0.02, None, 0.04]
    assert adjusted([]) == []


def of_normal_days(number: int, shift: float, seed: int) -> tuple[int, int]:
    """Return in how many of 600 cases the interval holds the shift, and in how many its p-value is at most 5 %."""
    rng = np.random.default_rng(seed)
    held = rejected = 0
    for k in range(600):
        before, after = rng.normal(5, 1, number), rng.normal(5 + shift, 1, number)
        # Forty sides draw their days in other ways; more would only take longer.
        found = difference(of_means(before, 2 * k % 40), of_means(after, (2 * k + 1) % 40))
        assert found["difference_low"] is not None
        assert found["difference_high"] is not None
        assert found["p_value"] is not None
        held += found["difference_low"] <= shift <= found["difference_high"]
        rejected += found["p_value"] <= 0.05
    return held, rejected


# 21 days on each side. Percentiles of resampled days are 1.96 sqrt(20 / 21) standard errors away, which Student's t
# with 40 degrees of freedom exceeds in 6.3 %: 562 of 600 intervals hold the truth, and in one case of a thousand fewer
# than 541 or more than 580. Intervals of 90 % would hold it 530 times, those of 99 % 589 times.
def test_without_a_change_five_percent_are_rejected() -> None:
    held, rejected = of_normal_days(21, 0.0, seed=1)
    assert 541 <= held <= 580
    assert 14 <= rejected <= 49  # 30 expected; fewer than 14 or more than 49 in one case of a thousand


def test_a_change_of_a_standard_deviation_is_found_as_often_as_a_t_test_finds_it() -> None:
    held, rejected = of_normal_days(21, 1.0, seed=2)
    assert 541 <= held <= 580
    # The power of the two-sided t-test at 5 % is 88.5 %: 531 of 600; in one case of a thousand fewer than 504 or more
    # than 556.
    assert 504 <= rejected <= 556
