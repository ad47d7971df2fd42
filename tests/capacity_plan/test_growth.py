"""Growth of a log's load, planted and not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from tests.replay.builders import make_jobs
from tracekit.capacity_plan.growth import LoadGrowth, load_growth, weekly_gpu_hours

if TYPE_CHECKING:
    from tests.reviewed import Golden

WEEK = 7 * 86_400


def test_gpu_hours_of_whole_weeks_by_hand() -> None:
    jobs = make_jobs([(0, 2, 3600), (WEEK - 1, 1, 7200), (2 * WEEK, 8, 3600), (2 * WEEK + 5, 8, 3600)])
    assert weekly_gpu_hours(jobs).tolist() == [4.0, 0.0]
    assert weekly_gpu_hours(make_jobs([(0, 1, 9)])).tolist() == []


def test_a_load_that_doubles_every_four_weeks_fills_the_cluster_when_it_must(golden: Golden) -> None:
    # 84 GPU-hours in the last of 8 weeks keep half a GPU busy; 4 GPUs are 8 times that: 12 weeks later.
    hours = 84 * 2 ** ((np.arange(8) - 7) / 4)
    hours *= np.exp([0.001, -0.001] * 4)  # so that there is something to estimate an error of
    found = load_growth(hours.astype(np.float64), 4)
    assert found is not None
    assert found.per_week_share == pytest.approx(2**0.25 - 1, abs=0.001)
    assert found.offered_share == pytest.approx(0.125, abs=0.001)
    assert found.fills_after_weeks == pytest.approx(12, abs=0.3)
    assert found.fills_low_weeks is not None
    assert found.fills_high_weeks is not None
    assert 11.5 <= found.fills_low_weeks <= 12.25 <= found.fills_high_weeks + 0.25 <= 13
    golden(found.sentence)


def test_a_full_cluster_is_said_to_be_full_and_a_slow_growth_not_to_fill_it(golden: Golden) -> None:
    steps = np.exp([0.0001, -0.0001] * 4)
    full = load_growth((1000 * 1.05 ** np.arange(8) * steps).astype(np.float64), 4)
    assert full is not None
    assert full.fills_after_weeks == 0
    slow = load_growth((1.001 ** np.arange(8) * np.exp([1e-6, -1e-6] * 4)).astype(np.float64), 4000)
    assert slow is not None
    assert (slow.fills_after_weeks, slow.fills_high_weeks) == (None, None)
    golden([full.sentence, slow.sentence])


def test_nothing_is_said_of_what_does_not_grow() -> None:
    assert load_growth(np.array([5.0, 4, 6, 5, 4, 6, 5, 5]), 4) is None
    assert load_growth(1.05 ** -np.arange(8.0), 4) is None
    assert load_growth(1.05 ** np.arange(5.0), 4) is None  # too few weeks
    assert load_growth(np.array([0.0, 1, 2, 3, 4, 5, 6]), 4) is None  # a week without jobs


def drawn(growth: float, seed: int, weeks: int = 16, alike: float = 0.0) -> LoadGrowth | None:
    """Return what is found in weeks that vary by a fifth, each like the one before by `alike`."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, 0.2, weeks)
    for week in range(1, weeks):
        noise[week] = alike * noise[week - 1] + np.sqrt(1 - alike**2) * noise[week]
    return load_growth(np.asarray(100 * (1 + growth) ** np.arange(weeks) * np.exp(noise), np.float64), 8)


def test_loads_that_do_not_grow_are_rarely_said_to() -> None:
    # One-sided 2.5 %: at most 18 of 400 with 99.5 % of the binomial distribution; the correction makes it rarer.
    said = sum(drawn(0.0, seed) is not None for seed in range(400))
    assert 1 <= said <= stats.binom.ppf(0.995, 400, 0.025)


def test_loads_whose_weeks_are_alike_are_not_taken_for_growing() -> None:
    # Plain least squares would say so of a fifth of them.
    said = sum(drawn(0.0, seed, alike=0.5) is not None for seed in range(400))
    assert said <= 400 * 0.08


def test_intervals_hold_the_planted_growth_as_often_as_they_say() -> None:
    found = [one for seed in range(300) if (one := drawn(0.05, seed)) is not None]
    assert len(found) >= 280  # it is found
    inside = sum(one.per_week_low <= 0.05 <= one.per_week_high for one in found)
    # Weeks that are independent are corrected by chance too: the interval is a little wide, never narrow.
    assert stats.binom.ppf(0.005, len(found), 0.95) <= inside <= stats.binom.ppf(0.995, len(found), 0.985)
