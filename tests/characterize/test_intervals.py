"""Confidence intervals: published values, and how often they hold the truth."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.characterize.intervals import GRID, Interval, with_intervals

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
def test_intervals_of_medians_hold_the_true_one_about_as_often_as_they_say(n: int) -> None:
    rng = np.random.default_rng(n)
    held = 0
    for _ in range(400):
        low, high = of_sample(rng.lognormal(3, 2, n))
        assert low is not None
        assert high is not None
        held += low <= np.exp(3) <= high
    # 95 % of 400 is 380; five standard deviations are 22.
    assert held >= 358


def test_a_handful_of_observations_says_nothing_of_the_median() -> None:
    assert of_sample(np.arange(5.0)) == (None, None)
    assert of_sample(np.array([])) == (None, None)
    assert list(of_sample(np.arange(6.0))) == pytest.approx([0.5, 4.5], abs=0.05)
