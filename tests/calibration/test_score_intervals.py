"""Intervals of quantiles and correlations over whole days."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.calibration.score import correlation_interval, quantile_ratio_intervals


def test_what_is_the_same_every_day_has_an_interval_without_width() -> None:
    days = np.repeat(np.arange(6), 10)
    waits = np.tile(np.arange(1.0, 11.0), 6)
    p50, p90 = quantile_ratio_intervals(days, 3 * waits, waits, (0.5, 0.9))
    assert p50 == p90 == pytest.approx((3.0, 3.0))
    assert correlation_interval(days, waits, 2 * waits + 1) == pytest.approx((1.0, 1.0))
    assert correlation_interval(days, waits, -waits) == pytest.approx((-1.0, -1.0))


def test_days_that_differ_widen_it_and_hold_the_whole() -> None:
    random = np.random.default_rng(1)
    days = np.repeat(np.arange(12), 50)
    log = random.lognormal(5, 1, 600)
    twin = log * np.repeat(np.tile([0.5, 2.0], 6), 50)
    ((low, high),) = (one or (0.0, 0.0) for one in quantile_ratio_intervals(days, twin, log, (0.5,)))
    assert low < 0.95 * float(np.median(twin) / np.median(log)) < 1.05 * float(np.median(twin) / np.median(log)) < high
    noisy = log + random.normal(0, 100, 600)
    low, high = correlation_interval(days, log, noisy) or (0.0, 0.0)
    assert low < float(np.corrcoef(log, noisy)[0, 1]) < high
    assert high - low < 0.3


def test_few_days_zeros_and_constants_have_none() -> None:
    days, ones = np.arange(6), np.ones(6)
    assert quantile_ratio_intervals(days[:4], ones[:4], ones[:4], (0.5, 0.9)) == [None, None]
    assert quantile_ratio_intervals(days, ones, np.array([0, 0, 0, 1, 1, 1.0]), (0.1, 1.0))[0] is None
    assert correlation_interval(days, ones, np.arange(6.0)) is None
    assert correlation_interval(days[:4], np.arange(4.0), np.arange(4.0)) is None
