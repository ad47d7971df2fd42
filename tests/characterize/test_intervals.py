"""Confidence intervals: published values, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tracekit.answer import Interval
from tracekit.characterize.intervals import FEW, GRID, with_intervals

SHARE = (Interval("share", "proportion", "jobs"),)
MEDIAN = (Interval("p50_s", "median", "jobs"),)


def of_shares(shares: list[float | None], jobs: list[int]) -> list[tuple[float | None, ...]]:
    frame = pl.DataFrame({"share": shares, "jobs": jobs}, schema={"share": pl.Float64, "jobs": pl.Int64})
    return with_intervals(frame, SHARE).rows()


def of_sample(values: np.ndarray) -> tuple[float | None, ...]:
    quantiles = np.quantile(values, np.linspace(0, 1, GRID)).tolist() if len(values) else None
    frame = pl.DataFrame(
        {"_p50_s": [quantiles], "jobs": [len(values)]}, schema_overrides={"_p50_s": pl.List(pl.Float64)}
    )
    return with_intervals(frame, MEDIAN).row(0)


def test_exact_intervals_of_shares() -> None:
    # 0 of 10: 1 - 0.025^(1/10) = 0.3085; 10 of 10: 0.6915. 5 of 10: 0.1871 to 0.8129, as tables of the method print.
    found = of_shares([0.0, 1.0, 0.5], [10, 10, 10])
    assert found == [
        (0.0, pytest.approx(0.3085, abs=5e-5)),
        (pytest.approx(0.6915, abs=5e-5), 1.0),
        (pytest.approx(0.1871, abs=5e-5), pytest.approx(0.8129, abs=5e-5)),
    ]


def test_unknown_shares_and_empty_groups_have_none() -> None:
    assert of_shares([None, 0.5], [10, 0]) == [(None, None), (None, None)]


def test_a_share_of_the_whole_counts_all_rows() -> None:
    frame = pl.DataFrame({"share": [0.25, 0.75], "jobs": [25, 75]})
    (low, high), _ = with_intervals(frame, (Interval("share", "proportion", "jobs", pooled=True),)).rows()
    assert (low, high) == (pytest.approx(0.1688, abs=5e-5), pytest.approx(0.3466, abs=5e-5))


@given(k=st.integers(0, 60), n=st.integers(1, 60))
def test_an_interval_holds_the_share_it_is_about(k: int, n: int) -> None:
    share = min(k, n) / n
    ((low, high),) = of_shares([share], [n])
    assert low is not None
    assert high is not None
    assert 0 <= low <= share <= high <= 1


@pytest.mark.parametrize("n", [30, 200, 1000])
def test_intervals_of_medians_hold_the_true_one_as_often_as_they_say(n: int) -> None:
    samples = np.random.default_rng([1, n]).lognormal(3, 2, (1000, n))
    quantiles = np.quantile(samples, np.linspace(0, 1, GRID), axis=1).T
    low, high = with_intervals(pl.DataFrame({"_p50_s": quantiles.tolist(), "jobs": [n] * 1000}), MEDIAN).to_numpy().T
    held = ((low <= np.exp(3)) & (np.exp(3) <= high)).sum()
    # Of 1,000 at 95 % the binomial distribution has 925 or fewer, or 972 or more, in one case of a thousand. Intervals
    # of 90 % hold the truth 900 times, those of 99 % 990 times.
    assert 926 <= held <= 971


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_intervals_of_shares_hold_the_true_one_hardly_more_often_than_they_say(n: int, share: float) -> None:
    hits = np.arange(n + 1)
    low, high = with_intervals(pl.DataFrame({"share": hits / n, "jobs": [n] * (n + 1)}), SHARE).to_numpy().T
    held = binom.pmf(hits, n, share)[(low <= share) & (share <= high)].sum()
    # The exact chance, no simulation: never below 95 %, and above it by no more than the chance of one more or less of
    # n at both ends, about a tenth over the standard deviation.
    assert 0.95 <= held <= 0.95 + 0.12 / np.sqrt(n * share * (1 - share))


def test_a_handful_of_observations_says_nothing_of_the_median() -> None:
    assert of_sample(np.arange(5.0)) == (None, None)
    assert of_sample(np.array([])) == (None, None)
    assert list(of_sample(np.arange(6.0))) == pytest.approx([0.5, 4.5], abs=0.05)


def test_what_counts_as_few_and_how_fine_quantiles_are() -> None:
    assert (FEW, GRID) == (30, 101)


def test_an_unknown_number_of_observations_has_no_interval() -> None:
    frame = pl.DataFrame({"share": [0.5, 0.5], "jobs": [None, 10]}, schema={"share": pl.Float64, "jobs": pl.Int64})
    unknown, known = with_intervals(frame, SHARE).rows()
    assert unknown == (None, None)
    assert known == (pytest.approx(0.1871, abs=5e-5), pytest.approx(0.8129, abs=5e-5))
    # Also for a median; the rows behind it keep theirs.
    grid = np.linspace(0, 100, GRID).tolist()
    frame = pl.DataFrame({"_p50_s": [grid, None, [None] * GRID, grid], "jobs": [None, 50, 50, 100]})
    assert with_intervals(frame, MEDIAN).rows()[:3] == [(None, None)] * 3
    # 1.96 / 2 / sqrt(100) = 0.098 on both sides of the median.
    assert with_intervals(frame, MEDIAN).row(3) == (pytest.approx(40.2, abs=0.01), pytest.approx(59.8, abs=0.01))


def test_one_of_ten_and_nine_of_ten() -> None:
    # As tables of the exact method print.
    one, nine = of_shares([0.1, 0.9], [10, 10])
    assert one == pytest.approx((0.0025, 0.4450), abs=5e-5)
    assert nine == pytest.approx((0.5550, 0.9975), abs=5e-5)
