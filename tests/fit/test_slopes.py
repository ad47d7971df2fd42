"""Derivatives against differences."""

from __future__ import annotations

import numpy as np
import pytest

from tracekit.fit.families import FAMILIES
from tracekit.fit.likelihood import Likelihood
from tracekit.fit.sample import Sample
from tracekit.fit.slopes import has_slopes

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
