"""Durations as a likelihood sees them."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.fit.sample import Sample, resolution_of


def test_short_values_are_intervals_and_long_ones_exact() -> None:
    sample = Sample.make([0, 3, 3, 250, 100], [50, 0], resolution_s=1)
    assert sample.low.tolist() == [0, 2.5]
    assert sample.high.tolist() == [0.5, 3.5]
    assert sample.interval_n.tolist() == [1, 2]
    assert sample.exact.tolist() == [100, 250]
    assert sample.right.tolist() == [50]  # longer than 0 says nothing
    assert (sample.n, sample.observed_n, sample.right_n_total) == (6, 5, 1)
    assert sample.middles.tolist() == [0.25, 3, 100, 250]


def test_given_intervals_and_left_censored_values_are_kept() -> None:
    sample = Sample.make([1000.0], low=[0.0, 10.0], high=[5.0, 20.0], resolution_s=1)
    assert sample.low.tolist() == [0, 10]
    assert sample.high.tolist() == [5, 20]
    assert sample.n == 3


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([60.0 * k for k in range(30)], 60.0),
        ([3600.0, 7200.0], 1.0),  # two values do not show that hours were rounded
        ([1.0, 2.0, 5.0], 1.0),
        ([0.25, 1.5], 0.001),
        ([0.1234567, 2.0], 0.000001),
        ([], 1.0),
    ],
)
def test_the_rounding_is_found(values: list[float], step: float) -> None:
    assert resolution_of(np.array(values, float)) == step


def test_grouping_keeps_the_number_and_the_mean_of_logarithms() -> None:
    values = np.arange(100.0, 5100.0)
    sample = Sample.make(values, values[:1000], resolution_s=1)
    grouped = sample.coarse(50)
    assert grouped.exact.size == 50
    assert grouped.exact_n.sum() == sample.exact_n.sum()
    assert grouped.exact_n @ np.log(grouped.exact) == pytest.approx(sample.exact_n @ np.log(sample.exact))
    assert grouped.right_n.sum() == 1000


def test_a_drawn_part_has_the_size_asked_for_and_only_known_values() -> None:
    sample = Sample.make([5, 5, 200, 300, 300, 300], [40, 40], resolution_s=1)
    part = sample.draw(4, np.random.default_rng(1))
    assert part.n == 4
    assert set(part.exact) <= {200, 300}
    assert sample.draw(100, np.random.default_rng(1)) is sample
