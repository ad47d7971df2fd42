"""Formulas against scipy.stats, parameters and their domains, drawing by quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from tracekit.fit.families import FAMILIES, quantiles

SIMPLE = {
    "expon": {"scale": 300.0},
    "lognorm": {"s": 1.7, "scale": 900.0},
    "weibull_min": {"c": 0.6, "scale": 500.0},
    "gamma": {"a": 0.4, "scale": 2000.0},
    "fisk": {"c": 0.9, "scale": 700.0},
    "lomax": {"c": 1.3, "scale": 800.0},
    "burr12": {"c": 0.8, "d": 1.9, "scale": 1500.0},
}
MIXED = {
    "hyperexpon_2": {"weight_1": 0.3, "scale_1": 20.0, "weight_2": 0.7, "scale_2": 4000.0},
    "lognorm_mix_3": {
        "weight_1": 0.2,
        "s_1": 0.5,
        "scale_1": 30.0,
        "weight_2": 0.5,
        "s_2": 1.5,
        "scale_2": 900.0,
        "weight_3": 0.3,
        "s_3": 0.3,
        "scale_3": 20000.0,
    },
}
X = np.array([1e-3, 0.5, 10.0, 300.0, 5e3, 1e5, 2e6])


def scipy_of(name: str, parameters: dict[str, float]) -> Any:
    return getattr(stats, name)(**parameters)


@pytest.mark.parametrize("name", SIMPLE)
def test_a_family_has_scipys_density_and_survival(name: str) -> None:
    family, frozen = FAMILIES[name], scipy_of(name, SIMPLE[name])
    p = family.vector(SIMPLE[name])
    np.testing.assert_allclose(family.logpdf(X, p), frozen.logpdf(X), rtol=1e-9)
    near = frozen.logsf(X) > -600  # beyond, scipy itself gives -inf
    np.testing.assert_allclose(family.logsf(X, p)[near], frozen.logsf(X)[near], rtol=1e-8, atol=1e-13)
    np.testing.assert_allclose(family.cdf(X, p), frozen.cdf(X), rtol=1e-8, atol=1e-13)


@pytest.mark.parametrize("name", MIXED)
def test_a_mixture_is_the_weighted_sum_of_its_parts(name: str) -> None:
    family, named = FAMILIES[name], MIXED[name]
    density, survival = np.zeros(X.size), np.zeros(X.size)
    for k in range(1, family.parts + 1):
        part = scipy_of(family.scipy, {n: named[f"{n}_{k}"] for n in family.own})
        density += named[f"weight_{k}"] * part.pdf(X)
        survival += named[f"weight_{k}"] * part.sf(X)
    p = family.vector(named)
    seen = density > 1e-250
    np.testing.assert_allclose(np.exp(family.logpdf(X[seen], p)), density[seen], rtol=1e-9)
    np.testing.assert_allclose(np.exp(family.logsf(X, p)), survival, rtol=1e-9, atol=1e-280)


def test_the_far_tail_of_gamma_is_finite() -> None:
    family = FAMILIES["gamma"]
    # Leading term of the upper tail: y^(a-1) exp(-y) / Gamma(a) at y = 5000.
    expected = (0.5 - 1) * np.log(5000.0) - 5000.0 - np.log(np.sqrt(np.pi))
    assert family.logsf(np.array([5000.0]), np.array([0.5, 1.0]))[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_unbounded_coordinates_lead_back(name: str) -> None:
    family = FAMILIES[name]
    p = family.vector({**SIMPLE, **MIXED}.get(name, dict.fromkeys(family.parameters, 1 / family.parts)))
    np.testing.assert_allclose(family.from_free(family.to_free(p)), p)
    both = family.from_free(np.array([family.to_free(p), family.to_free(p) + 0.5]))
    np.testing.assert_allclose(both[0], p)
    assert both.shape == (2, p.size)
    assert family.to_free(p).size == family.free


def test_parts_are_ordered_by_scale() -> None:
    family = FAMILIES["hyperexpon_2"]
    np.testing.assert_array_equal(family.ordered(np.array([0.7, 50.0, 0.3, 2.0])), [0.3, 2.0, 0.7, 50.0])


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("expon", {"scale": 0.0}, "scale must be a number above 0, not 0.0"),
        ("expon", {"scale": float("nan")}, "above 0, not nan"),
        ("expon", {"scale": True}, "above 0, not True"),
        ("lognorm", {"s": 1.0}, "lognorm has the parameters s, scale"),
        ("hyperexpon_2", {"weight_1": 0.5, "scale_1": 1.0, "weight_2": 0.6, "scale_2": 2.0}, "sum to 1.1, not to 1"),
    ],
)
def test_parameters_outside_the_domain_are_named(name: str, parameters: dict[str, float], said: str) -> None:
    problem = FAMILIES[name].problem(parameters)
    assert problem is not None
    assert said in problem
    assert FAMILIES["expon"].problem({"scale": 3.0}) is None


@pytest.mark.parametrize("name", SIMPLE)
def test_quantiles_are_scipys(name: str) -> None:
    scores = np.array([-2.5, -1.0, 0.0, 1.0, 3.0])
    found = quantiles(FAMILIES[name], FAMILIES[name].vector(SIMPLE[name]), scores, longest_s=1e12)
    expected = scipy_of(name, SIMPLE[name]).isf(stats.norm.sf(scores))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_quantiles_of_a_cut_distribution_end_at_the_cut() -> None:
    # exp(1) cut at its median log(2): a score of 0 is the quarter of the whole, -log(0.75).
    scores = np.array([0.0, 9.0])
    found = quantiles(FAMILIES["expon"], np.array([1.0]), scores, longest_s=float(np.log(2)))
    np.testing.assert_allclose(found, [-np.log(0.75), np.log(2)], rtol=4e-3)
