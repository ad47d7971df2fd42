"""Derivatives against differences, and the descent that uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tracekit.fit.descent import descend
from tracekit.fit.families import FAMILIES
from tracekit.fit.likelihood import Likelihood
from tracekit.fit.sample import Sample
from tracekit.fit.slopes import has_slopes

if TYPE_CHECKING:
    from numpy.typing import NDArray

POINTS = {
    "expon": [900.0],
    "lognorm": [1.5, 500.0],
    "hyperexpon_2": [0.4, 40.0, 0.6, 9000.0],
    "hyperexpon_3": [0.3, 40.0, 0.3, 500.0, 0.4, 9000.0],
    "lognorm_mix_2": [0.3, 0.7, 40.0, 0.7, 1.8, 900.0],
    "lognorm_mix_3": [0.3, 0.7, 40.0, 0.2, 1.0, 300.0, 0.5, 1.8, 900.0],
}


@pytest.fixture(scope="module")
def sample() -> Sample:
    """Return durations of every kind: exact, rounded, from 0 on, right-censored, in wide intervals."""
    rng = np.random.default_rng(0)
    seen, cut = np.round(rng.lognormal(5, 2, 800)), np.round(rng.lognormal(7, 1, 200))
    return Sample.make(seen, cut, low=[0.0, 30.0, 30.0], high=[5.0, 90.0, 400.0], resolution_s=1.0)


def test_the_families_of_the_table_are_all_that_have_slopes() -> None:
    assert {name for name, family in FAMILIES.items() if has_slopes(family)} == set(POINTS)


@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_gradient_and_an_information_matrix_are_those_of_differences(name: str, sample: Sample) -> None:
    family = FAMILIES[name]
    likelihood = Likelihood(family, sample)
    theta = family.to_free(np.array(POINTS[name]))
    value, slope = likelihood.fall(theta)
    step = 1e-4
    moved = np.eye(theta.size) * step
    rises = np.array([likelihood.total(theta + d) - likelihood.total(theta - d) for d in moved]) / (2 * step)
    assert value == pytest.approx(-likelihood.total(theta), rel=1e-12)
    np.testing.assert_allclose(slope, -rises, atol=1e-5 * np.abs(rises).max())
    bends = [
        [
            likelihood.total(theta + a + b)
            - likelihood.total(theta + a - b)
            - likelihood.total(theta - a + b)
            + likelihood.total(theta - a - b)
            for b in 10 * moved
        ]
        for a in 10 * moved
    ]
    expected = -np.array(bends) / (4 * (10 * step) ** 2)
    np.testing.assert_allclose(likelihood.information(theta), expected, atol=2e-4 * np.abs(expected).max())


def test_a_point_far_off_has_a_finite_gradient(sample: Sample) -> None:
    likelihood = Likelihood(FAMILIES["lognorm_mix_2"], sample)
    for theta in (np.full(5, 40.0), np.full(5, -40.0), np.array([0, -39.0, 30.0, -39.0, -30.0])):
        value, slope = likelihood.fall(theta)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()


def _valley(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """Return Rosenbrock's function, least at (1, 1), and its gradient."""
    a, b = 1 - x[0], x[1] - x[0] ** 2
    return float(a * a + 100 * b * b), np.array([-2 * a - 400 * x[0] * b, 200 * b])


def test_a_descent_finds_the_bottom_of_a_bent_valley() -> None:
    low, high = np.array([-5.0, -5.0]), np.array([5.0, 5.0])
    x, value = descend(_valley, np.array([-1.2, 1.0]), low, high, rounds=200, gain=1e-14)
    np.testing.assert_allclose(x, [1, 1], atol=1e-4)
    assert value < 1e-8


def test_a_descent_stays_inside_its_bounds_and_moves_along_them() -> None:
    # On the edge x0 = 0.5 the least is at x1 = 0.25.
    x, value = descend(_valley, np.array([-1.2, 1.0]), np.array([-5.0, -5.0]), np.array([0.5, 5.0]), rounds=200)
    np.testing.assert_allclose(x, [0.5, 0.25], atol=1e-3)
    assert value == pytest.approx(0.25, abs=1e-5)


def test_a_descent_from_the_bottom_stays_there() -> None:
    x, value = descend(_valley, np.array([1.0, 1.0]), np.array([-5.0, -5.0]), np.array([5.0, 5.0]))
    assert (x.tolist(), value) == ([1.0, 1.0], 0.0)
