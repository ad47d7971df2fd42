"""Tests of independent arrivals, read in clocks of any step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.fit.test_arrivals import MONDAY, jobs_at, known_shape, weekly
from tracekit.fit import process
from tracekit.fit.arrivals import fit_arrivals
from tracekit.fit.process import Clock, counts_test, gaps_test
from tracekit.fit.rate import fit_rate, hours_between

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.reviewed import Golden
    from tracekit.fit.process import IndependenceResult


def renewal(shape: float, a_step: float, events: int, seed: int) -> NDArray[np.float64]:
    """Return the minutes of a gamma renewal process of so many events a minute; shape 1 is Poisson."""
    gaps = np.random.default_rng(seed).gamma(shape, 1 / shape, events)
    return np.asarray(MONDAY + 60 * np.floor(gaps.cumsum() / a_step), float)


def fitted(times: NDArray[np.float64]) -> dict[str, Any]:
    return fit_arrivals(jobs_at(times), "UTC", np.random.default_rng(0))


def outcomes(seconds: NDArray[np.float64], step: float, seed: int) -> tuple[IndependenceResult, IndependenceResult]:
    """Return both tests of times read in a step."""
    times = np.unique(np.floor(seconds / step) * step)
    hours = hours_between(int(times[0]), int(times[-1] + step), "UTC")
    rate = fit_rate(times, hours).rate
    clock = Clock.make(times, step, rate, hours)
    number = rate.profile.size
    rng = np.random.default_rng(seed)
    return counts_test(rate.dispersion, clock, number, rate.fitted, rng), gaps_test(times, clock, number, rng)


@pytest.mark.parametrize(
    "a_step",
    [
        *(pytest.param(a, marks=pytest.mark.thorough) for a in (0.01, 1.0)),
        *(pytest.param(a, marks=pytest.mark.slow) for a in (0.2, 0.5)),
    ],
)
def test_direction_does_not_depend_on_the_clock(a_step: float) -> None:
    ratios = {}
    for shape in (0.3, 1.0, 3.0):
        found = fitted(renewal(shape, a_step, 3000, 2))
        tests = found["tests"]
        ratios[shape] = tests["squared_variation_of_gaps"] / tests["variation_if_independent"]
        assert (found["process"] == "poisson") == (shape == 1.0)
        assert (tests["p_variation"] < 0.01) == (shape != 1.0)
    assert ratios[0.3] > 1.3
    assert 0.9 < ratios[1.0] < 1.1
    assert ratios[3.0] < 0.8


@pytest.mark.parametrize("a_step", [0.01, 2.0, *(pytest.param(a, marks=pytest.mark.thorough) for a in (0.5, 1.0))])
def test_independent_arrivals_vary_as_the_ticks_that_are_not_hit(a_step: float) -> None:
    # A tick is hit with chance 1 - exp(-a_step): gaps have squared variation exp(-a_step), so have hourly counts.
    tests = fitted(renewal(1.0, a_step, 4000, 3))["tests"]
    assert tests["variation_if_independent"] == pytest.approx(np.exp(-a_step), rel=0.08)
    assert tests["dispersion_if_independent"] == pytest.approx(np.exp(-a_step), rel=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("a_step", [0.01, 0.5, 1.0, 2.0])
def test_poisson_is_rejected_as_often_as_the_level_says(a_step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAWS", 199)
    monkeypatch.setattr(process, "_LEAST_DRAWS", 199)
    p = np.array([[test.p for test in outcomes(renewal(1.0, a_step, 1500, s), 60.0, s)] for s in range(200)])
    # 10 of 200 are expected at 5 %; by the binomial distribution fewer than 2 or more than 21 in one of a thousand.
    # Of 100 at 50 % fewer than 70 or more than 130 in one of forty thousand: the drawn statistics have a fitted rate.
    below = (p < 0.05).sum(axis=0)
    assert ((below >= 2) & (below <= 21)).all()
    below = (p < 0.5).sum(axis=0)
    assert ((below >= 70) & (below <= 130)).all()


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, 60.0])
def test_a_fitted_week_is_not_a_reason_to_reject(step: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAWS", 99)
    monkeypatch.setattr(process, "_LEAST_DRAWS", 99)
    p = []
    for seed in range(20):
        seconds = weekly(np.random.default_rng(seed), 20.0, known_shape())
        p.append([test.p for test in outcomes(seconds, step, seed)])
    # 1 of 20 is expected at 5 %, and more than 5 in three cases of ten thousand; at 50 % 10 are, and fewer than 3 or
    # more than 17 in four of ten thousand.
    assert ((np.array(p) < 0.05).sum(axis=0) <= 5).all()
    below = (np.array(p) < 0.5).sum(axis=0)
    assert ((below >= 3) & (below <= 17)).all()


def test_a_clock_whose_steps_are_nearly_all_hit_decides_nothing(golden: Golden) -> None:
    found = fitted(renewal(3.0, 4.0, 4000, 4))
    assert (found["process"], found["tests"], found["candidates"]) == ("poisson", None, [])
    golden(found["why"])


def test_counts_of_a_single_hour_tell_nothing(golden: Golden) -> None:
    minutes = np.flatnonzero(np.random.default_rng(5).random(60) < 0.6)
    found = fitted(np.asarray(MONDAY + 60.0 * minutes, float))
    tests = found["tests"]
    assert (tests["p_dispersion"], tests["dispersion_if_independent"]) == (1.0, 0.0)
    assert tests["draws"] == 999
    golden(found["why"].partition(" (p =")[0])


def test_a_part_of_a_clock_has_its_share_of_the_hits() -> None:
    clock = Clock(
        60.0, np.array([0.0, 3600.0, 7200.0]), np.array([0, 0]), np.array([30.0, 12.0]), np.array([60.0, 60.0])
    )
    part = clock.between(1800.0, 5400.0)
    np.testing.assert_allclose(part.hits, [15.0, 6.0])
    np.testing.assert_allclose(part.ticks, [30.0, 30.0])
    # 15 of 21 hits are where half of the ticks are hit, 6 where a fifth is.
    assert clock.room == pytest.approx(1 - (30 * 0.5 + 12 * 0.2) / 42)
    assert part.room == pytest.approx(clock.room)
    np.testing.assert_allclose(clock.gaps(np.array([0.0, 1800.0, 5400.0])), [15.0, 21.0])
