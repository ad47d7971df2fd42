"""Change points of the rate of arrivals: found where they are, and not made of bursts."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from tests.effort import examples
from tracekit.fit.arrival_draws import level_at
from tracekit.fit.generate import at_rate, draw_arrivals
from tracekit.fit.jobs import read_jobs
from tracekit.fit.process import Modulated, fit_gamma, gamma_errors, modulated_errors
from tracekit.fit.rate import (
    best_cuts,
    fit_level,
    fit_rate,
    hourly_counts,
    hours_between,
    pieces_beyond_chance,
    rate_entry,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.fit.rate import RateFit
    from tracekit.trace import Trace

MONDAY = 1_507_507_200  # 2017-10-09 00:00 UTC


def poisson(per_hour: NDArray[np.float64], seed: int) -> RateFit:
    """Return the fit of independent arrivals, with a rate for each hour."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(per_hour)
    hour = np.repeat(np.arange(per_hour.size), counts)
    times = MONDAY + 3600 * (hour + rng.random(hour.size))
    return fit_rate(np.unique(np.floor(times)), hours_between(MONDAY, MONDAY + 3600 * per_hour.size, "UTC"))


def test_cuts_are_where_they_are_most_likely() -> None:
    # Two pieces: 2 log 1 + 22 log(22 / 4) = 37.5 behind day 2; 20 log(20 / 4) + 4 log 2 = 35.0 behind day 4.
    cuts = best_cuts(np.array([1.0, 1, 9, 9, 2, 2]), np.ones(6), 2, 5)
    assert [c.tolist() for c in cuts] == [[0, 2, 6], [0, 2, 4, 6]]
    assert best_cuts(np.ones(5), np.ones(5), 3, 4) == []


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(0, 30), min_size=4, max_size=9), st.integers(1, 2), st.data())
def test_no_other_cuts_are_likelier(counts: list[int], least: int, data: st.DataObject) -> None:
    seen = np.array(counts, float)
    exposure = np.array(data.draw(st.lists(st.floats(0.5, 2), min_size=len(counts), max_size=len(counts))))

    def likelihood(edges: tuple[int, ...]) -> float:
        total, over = np.add.reduceat(seen, edges[:-1]), np.add.reduceat(exposure, edges[:-1])
        return float(special.xlogy(total, total / over).sum())

    for pieces, found in enumerate(best_cuts(seen, exposure, least, 4), start=2):
        assert (found[0], found[-1], found.size) == (0, len(counts), pieces + 1)
        others = [
            (0, *inner, len(counts))
            for inner in itertools.combinations(range(1, len(counts)), pieces - 1)
            if min(np.diff((0, *inner, len(counts)))) >= least
        ]
        assert likelihood(tuple(found)) == pytest.approx(max(map(likelihood, others)))


def test_a_hump_comes_out_as_its_pieces() -> None:
    levels = np.repeat([2.0, 10.0, 4.0], [20 * 24, 25 * 24, 15 * 24])
    week = 1 + 0.6 * np.sin(2 * np.pi * np.arange(levels.size) / 24)
    found = poisson(levels * week, 1)
    assert found.rate.form == "piecewise"
    assert [(p.from_day, p.to_day) for p in found.rate.pieces] == [(0, 20), (20, 45), (45, 60)]
    for piece, level in zip(found.rate.pieces, (2.0, 10.0, 4.0), strict=True):
        assert abs(piece.per_hour - level) < 3 * piece.standard_error
        # A rate of n arrivals has a relative error of 1 / sqrt(n); counts vary a little more around a fitted rate.
        expected = level / np.sqrt(level * 24 * (piece.to_day - piece.from_day))
        assert expected * 0.95 < piece.standard_error < expected * 1.25
    behind = {(f["form"], f["pieces"]): f["behind"] for f in found.forms}
    assert behind["piecewise", 3] == 0
    assert min(behind["constant", 1], behind["exponential", 1], behind["piecewise", 2]) > 100
    assert found.test.p == 0.005


def test_a_trend_stays_a_trend_and_a_constant_a_constant() -> None:
    growing = poisson(3 * np.exp(0.03 * np.arange(60 * 24) / 24), 2)
    assert growing.rate.form == "exponential"
    assert growing.rate.trend_error is not None
    assert abs(growing.rate.trend_per_day - 0.03) < 3 * growing.rate.trend_error
    assert growing.test.pieces > 1
    forms = [poisson(np.full(40 * 24, 3.0), seed).rate.form for seed in range(40)]
    # By BIC a needless parameter is kept in 0.7 % of the logs of 960 hours.
    assert forms.count("constant") >= 37


def test_bursts_make_no_change_points() -> None:
    """Busy times of four hours in the mean, in which twenty times as many jobs come."""
    made = 0
    for seed in range(40):
        rng = np.random.default_rng([9, seed])
        stay = rng.exponential(np.tile([16.0, 4.0], 200))
        rate = np.repeat(np.tile([0.3, 6.0], 200), np.ceil(stay).astype(int))[: 60 * 24]
        made += poisson(rate, seed).rate.form == "piecewise"
    # The level of the test is 5 %: of 40 logs 2 are expected, more than 6 in less than one case of a hundred.
    assert made <= 6


def test_days_in_random_order_have_few_blocks_in_a_short_log() -> None:
    assert pieces_beyond_chance(np.array([1.0, 9, 1, 9, 1]), np.ones(5)) == (1, None)
    assert pieces_beyond_chance(np.zeros(30), np.ones(30)) == (1, None)


def _entry(found: RateFit) -> dict[str, Any]:
    hours = hours_between(MONDAY, MONDAY + 60 * 86400, "UTC")
    return rate_entry(found, hours, 5000)


def test_drawn_arrivals_follow_the_pieces_and_stay_at_the_last() -> None:
    rate = _entry(poisson(np.repeat([2.0, 10.0, 4.0], [20 * 24, 25 * 24, 15 * 24]), 3))
    arrivals = {
        "process": "poisson",
        "start": MONDAY,
        "days": 60.0,
        "step_s": 1.0,
        "timezone": "UTC",
        "rate": rate,
        "batch": {"mean": 1.0, "sizes": [1], "shares": [1.0]},
        "candidates": [],
    }

    def a_day(which: str, first: int, last: int) -> float:
        asked = at_rate(arrivals, which)
        seconds, _ = draw_arrivals(asked, np.random.default_rng(4), jobs=None, days=200.0, load=1.0)
        day = (seconds - MONDAY) / 86400
        return float(((day >= first) & (day < last)).sum()) / (last - first)

    assert [a_day("fitted", a, b) for a, b in ((0, 20), (20, 45), (45, 200))] == pytest.approx([48, 240, 96], rel=0.1)
    assert a_day("end", 0, 200) == pytest.approx(96, rel=0.08)
    mean = (2 * 20 + 10 * 25 + 4 * 15) / 60 * 24
    assert a_day("mean", 0, 200) == pytest.approx(mean, rel=0.05)
    jobs, _ = draw_arrivals(arrivals, np.random.default_rng(5), jobs=9600, days=None, load=2.0)
    # At twice the rates 13,920 jobs come in the 60 days: the 9,600th on day 20 + (9,600 - 1,920) / 480.
    assert (jobs[-1] - MONDAY) / 86400 == pytest.approx(36, abs=1.5)


def test_a_model_of_an_earlier_version_has_its_trend() -> None:
    old = {"per_hour": 2.0, "trend_per_day": np.log(2), "profile": [1.0]}
    assert level_at(old, 3.0, np.array([0.0, 1.0, 3.0, 9.0])).tolist() == pytest.approx([2, 4, 16, 16])
    assert at_rate({"rate": old, "days": 3.0}, "end")["rate"]["per_hour"] == pytest.approx(16)


def test_errors_of_gaps_are_those_of_the_information() -> None:
    gaps = np.random.default_rng(6).gamma(0.5, 2.0, 4000)
    a, scale, _ = fit_gamma(gaps, 1e-300)
    found = gamma_errors(gaps, a, scale, 1e-300)
    # The information of one gap: trigamma(a), 1 / scale; 1 / scale, a / scale ** 2.
    information = 4000 * np.array([[special.polygamma(1, a), 1 / scale], [1 / scale, a / scale**2]])
    expected = np.sqrt(np.diag(np.linalg.inv(information)))
    assert found is not None
    assert [found["a"], found["scale"]] == pytest.approx(expected.tolist(), rel=0.01)
    alike = Modulated(1.0, 1.0, 0.1, 0.1)
    assert modulated_errors(gaps, alike) is None


def test_a_piece_without_arrivals_keeps_a_small_rate() -> None:
    hours = hours_between(MONDAY, MONDAY + 20 * 86400, "UTC")
    counts = hourly_counts(np.array([MONDAY, *(MONDAY + 86400.0 * np.arange(10, 20))]), hours)
    rate = fit_level("constant", "piecewise", counts, hours, np.array([0.0, 24.0, 240.0, 480.0]))
    assert rate.pieces[1].per_hour == pytest.approx(0.5 / 216, rel=0.1)
    assert np.isfinite(rate.log_likelihood)


@pytest.mark.thorough
def test_the_philly_list_has_a_hump(philly_list: Trace) -> None:
    times = np.unique(read_jobs(philly_list).frame["submit_us"].to_numpy() // 1_000_000).astype(float)
    found = fit_rate(times, hours_between(int(times[0]), int(times[-1]) + 1, philly_list.timezone))
    levels = [p.per_hour for p in found.rate.pieces]
    assert len(levels) >= 3
    assert levels[0] < 1
    assert max(levels) > 1.5 * levels[-1] > 15
