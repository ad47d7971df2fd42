"""How often intervals over resampled days hold the truth, and where they have none."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom

from tracekit.guidelines.interface import Number
from tracekit.guidelines.intervals import over_days, ratio, share_of


@pytest.mark.parametrize("worlds", [200, pytest.param(1000, marks=pytest.mark.thorough)])
def test_an_interval_covers_the_truth_as_often_as_it_says(worlds: int) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(worlds):
        jobs = rng.poisson(20, size=30)
        hits = rng.binomial(jobs, 0.3)
        frame = pl.DataFrame({"day": np.arange(30), "a": hits, "b": jobs})
        found = over_days(frame, ratio("a", "b"), n=int(jobs.sum()))
        covered += found.low is not None and found.high is not None and found.low <= 0.3 <= found.high
    # Percentiles of 30 resampled days are as far from the mean as 1.96 sqrt(29 / 30) standard errors, which Student's t
    # with 29 degrees of freedom exceeds in 6.4 %. The binomial distribution is outside of these bounds in one case of
    # a thousand. Of 1000, they are 909 and 960, and intervals of 90 % would cover 883, those of 99 % 983.
    low, high = (binom.ppf(share, worlds, 0.936) for share in (0.001, 0.999))
    assert low <= covered <= high


def test_an_interval_runs_from_the_2_5th_to_the_97_5th_percentile() -> None:
    # Half of 400 days have a hit each: the standard error is 0.5 / 20 = 0.025, and the ends are 1.96 of them away, give
    # or take what 1,000 draws leave uncertain: 0.085 of one. With 90 % they were 1.64 of them away, with 99 % 2.58.
    frame = pl.DataFrame({"day": np.arange(400), "a": np.arange(400) % 2, "b": np.ones(400)})
    found = over_days(frame, ratio("a", "b"), n=400)
    assert found.low == pytest.approx(0.451, abs=0.006)
    assert found.high == pytest.approx(0.549, abs=0.006)


def test_four_days_have_no_interval_and_five_have_one() -> None:
    frame = pl.DataFrame({"day": [0, 1, 2, 3, 4], "a": [1, 0, 1, 1, 0], "b": [1] * 5})
    assert over_days(frame.head(4), ratio("a", "b"), n=4) == Number(0.75, 4)
    found = over_days(frame, ratio("a", "b"), n=5)
    assert (found.value, found.n) == (0.6, 5)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.6 < found.high


def test_a_resample_that_divides_by_nothing_has_no_value() -> None:
    # One day of thirty has what is divided by: a third of the resamples are without it.
    frame = pl.DataFrame({"day": np.arange(30), "a": [1.0] * 30, "b": [10.0] + [0.0] * 29})
    assert over_days(frame, lambda sums: sums["a"] / sums["b"], n=30) == Number(3.0, 30)


def test_rows_of_one_day_are_drawn_together() -> None:
    # Each day has one hit of two, so that no draw of days differs from another, though rows do.
    frame = pl.DataFrame({"day": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], "a": [1, 0] * 5, "b": [1] * 10})
    assert over_days(frame, ratio("a", "b"), n=10) == Number(0.5, 10, 0.5, 0.5)


@pytest.mark.parametrize(("days", "counting", "known"), [(5, 1, False), (7, 3, True), (40, 6, True)])
def test_there_is_no_interval_where_a_tenth_of_the_resamples_has_no_value(
    days: int, counting: int, known: bool
) -> None:
    # A resample misses all days that count in (4 / 5) ** 5 = 33 %, (4 / 7) ** 7 = 2 % and (34 / 40) ** 40 = 0.15 %.
    frame = pl.DataFrame({"day": np.arange(days), "a": np.ones(days), "b": (np.arange(days) < counting) * 1.0})
    found = over_days(frame, ratio("a", "b"), n=days)
    assert found.value == pytest.approx(days / counting)
    assert (found.low is not None) == known


def test_another_seed_draws_other_days() -> None:
    frame = pl.DataFrame({"day": np.arange(30), "a": np.arange(30.0) ** 2, "b": np.ones(30)})
    first, again, other = (over_days(frame, ratio("a", "b"), n=30, seed=seed) for seed in (0, 0, 1))
    assert first == over_days(frame, ratio("a", "b"), n=30) == again
    assert (first.low, first.high) != (other.low, other.high)


def test_a_value_that_is_not_finite_is_unknown() -> None:
    frame = pl.DataFrame({"day": np.arange(9), "a": np.ones(9)})
    assert over_days(frame, lambda sums: np.full(len(sums["a"]), np.inf), n=9) == Number(None, 9)


def test_a_share_has_its_value_its_number_and_its_ends() -> None:
    # 5 of 10: 0.1871 to 0.8129, as tables of the exact method print.
    half = share_of(5, 10)
    assert (half.value, half.n) == (0.5, 10)
    assert half.low == pytest.approx(0.1871, abs=5e-5)
    assert half.high == pytest.approx(0.8129, abs=5e-5)
    one = share_of(1, 1)
    assert (one.value, one.n, one.high) == (1.0, 1, 1.0)
    assert one.low == pytest.approx(0.025)
    assert share_of(0, 0) == Number(None, 0)
