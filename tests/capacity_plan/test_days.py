"""Days drawn and laid side by side."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from tests.replay.builders import make_jobs
from tracekit.capacity_plan.days import DAY_MS, DayPool
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.capacity_plan.days import Resample

DAY = 86_400


def pool_of(days: int, per_day: int = 1, **columns: object) -> DayPool:
    """Return days of which each job's run time names its day: 100 s + the day, submitted from noon on."""
    rows = [(d * DAY + 43_200 * (d > 0 or k > 0) + k, 1, 100.0 + d) for d in range(days) for k in range(per_day)]
    rows.append((days * DAY, 1, 1.0))  # of a day that is not whole
    jobs = make_jobs(rows, **columns)  # type: ignore[arg-type]  # columns of the tests
    everyone = np.ones(len(jobs), np.bool_)
    return DayPool.of(jobs, None, {}, everyone, everyone)


def sources(sample: Resample) -> dict[int, list[int]]:
    """Return which days of the log each day of a resample took."""
    found: dict[int, list[int]] = {}
    for day, run in zip(sample.jobs.submit_ms // DAY_MS, sample.jobs.work_ms // 1000 - 100, strict=True):
        found.setdefault(int(day), []).append(int(run))
    return found


def test_each_day_of_the_window_and_those_before_it_take_one_day_at_the_same_hour() -> None:
    pool = pool_of(8)
    assert (pool.days, pool.lead, pool.weekly) == (8, 2, False)
    sample = pool.resample(0, 1.0, 0)
    assert (sample.begin_ms, sample.end_ms) == (2 * DAY_MS, 10 * DAY_MS)
    assert sorted(sources(sample)) == list(range(10))
    assert all(len(days) == 1 for days in sources(sample).values())
    for at, run in zip(sample.jobs.submit_ms % DAY_MS, sample.jobs.work_ms // 1000 - 100, strict=True):
        assert at == (43_200_000 if run else 0)
    assert sample.window.tolist() == [False] * 2 + [True] * 8
    assert sample.group.tolist() == sample.window.tolist()
    runs = sample.jobs.work_ms[sample.window].sum()
    assert sample.offered_gpus == pytest.approx(runs / (8 * DAY_MS))


def test_the_same_number_and_seed_draw_the_same_and_others_draw_others() -> None:
    pool = pool_of(10)
    first = sources(pool.resample(3, 1.0, 7))
    assert sources(pool.resample(3, 1.0, 7)) == first
    assert sources(pool.resample(4, 1.0, 7)) != first
    assert sources(pool.resample(3, 1.0, 8)) != first
    # More load adds to the same days.
    more = sources(pool.resample(3, 2.0, 7))
    assert all(more[day][0] == first[day][0] or first[day][0] in more[day] for day in first)
    assert all(len(days) == 2 for days in more.values())


def test_days_are_drawn_alike() -> None:
    pool = pool_of(10)
    drawn = Counter(day for k in range(200) for days in sources(pool.resample(k, 1.0, 0)).values() for day in days)
    assert drawn_alike([drawn[d] for d in range(10)])


def drawn_alike(counts: list[int]) -> bool:
    """Return whether days are drawn equally often. Drawing twice doubles the variance of the counts."""
    return bool(stats.chi2.sf(stats.chisquare(counts).statistic / 2, len(counts) - 1) > 0.001)


def test_a_month_is_drawn_from_days_that_are_drawn_themselves() -> None:
    # 12 draws from 10 draws of 10 days find 5.29 different days on average; 12 draws from the days would find 7.18.
    pool = pool_of(10)
    found = [len({run for days in sources(pool.resample(k, 1.0, 0)).values() for run in days}) for k in range(300)]
    assert np.mean(found) == pytest.approx(5.29, abs=0.25)


def test_the_log_itself_has_its_days_in_order_and_no_warm_up() -> None:
    pool = pool_of(8, per_day=2)
    log = pool.resample(None, 1.0, 0)
    assert (log.begin_ms, log.end_ms) == (0, 8 * DAY_MS)
    assert sources(log) == {day: [day, day] for day in range(8)}
    assert log.jobs.submit_ms.tolist() == pool.jobs.submit_ms.tolist()
    assert log.window.all()
    # With more load, drawn days are added to those of the log.
    more = pool.resample(None, 2.0, 0)
    assert all(runs.count(day) >= 2 and len(runs) == 4 for day, runs in sources(more).items())


def test_from_three_weeks_on_a_day_represents_its_place_in_the_week() -> None:
    pool = pool_of(23)
    assert (pool.weekly, pool.lead) == (True, 5)
    drawn: Counter[int] = Counter()
    for number in range(100):
        for day, taken in sources(pool.resample(number, 1.0, 0)).items():
            assert [t % 7 for t in taken] == [(day - pool.lead) % 7]
            drawn.update(taken)
    # Places 0 and 1 of the week have four days, the others three; each day of a place is drawn alike.
    assert len(drawn) == 23
    for place in range(7):
        own = [drawn[d] for d in range(23) if d % 7 == place]
        assert len(own) == (4 if place < 2 else 3)
        assert drawn_alike(own)


def test_growth_adds_whole_users_of_another_day() -> None:
    # Two users with three jobs a day each: half of a day more is one user, none or both, never half of one.
    pool = pool_of(6, per_day=6, user=[f"u{k % 2}" for k in range(37)])
    counts: Counter[int] = Counter()
    for number in range(40):
        sample = pool.resample(number, 1.5, 0)
        days = sample.jobs.submit_ms // DAY_MS
        counts.update(np.bincount(days).tolist())
    assert set(counts) == {6, 9, 12}
    days_in_all = sum(counts.values())
    low, high = (float(stats.binom.ppf(q, 2 * days_in_all, 0.5)) for q in (0.0005, 0.9995))
    assert low <= counts[9] + 2 * counts[12] <= high


def test_growth_adds_jobs_without_a_user_one_by_one_and_can_take_away() -> None:
    pool = pool_of(6, per_day=10, user=None)
    jobs = sum(len(pool.resample(number, 0.3, 0).jobs) for number in range(50))
    low, high = (float(stats.binom.ppf(q, 50 * 7 * 10, 0.3)) for q in (0.0005, 0.9995))
    assert low <= jobs <= high


def test_holds_and_start_up_delays_move_with_their_jobs() -> None:
    rows = [(d * DAY, 1 if d % 2 else 8, 100.0 + d) for d in range(6)]
    jobs = make_jobs([*rows, (6 * DAY, 1, 1.0)])
    everyone = np.ones(7, np.bool_)
    held = np.array([1000 * d for d in range(7)])
    sample = DayPool.of(jobs, held, {"5-8": (60.0,) * 10}, everyone, everyone).resample(0, 1.0, 0)
    day = sample.jobs.work_ms // 1000 - 100
    assert sample.jobs.held_ms is not None
    assert sample.jobs.held_ms.tolist() == [1000 * d + (0 if d % 2 else 60_000) for d in day.tolist()]


def test_jobs_that_never_start_and_days_that_are_not_whole_are_left_out() -> None:
    rows = [(d * DAY + 60 * k, 1, 100.0 + d) for d in range(6) for k in range(2)]
    jobs = make_jobs([*rows, (6 * DAY, 1, 1.0)])
    starts = np.arange(13) % 2 == 0
    pool = DayPool.of(jobs, None, {}, np.ones(13, np.bool_), starts)
    assert (pool.days, len(pool.jobs)) == (6, 6)
    # A last day of which an hour is missing is whole.
    nearly = make_jobs([(0, 1, 9), (5 * DAY - 3600, 1, 9)])
    assert DayPool.of(nearly, None, {}, np.ones(2, np.bool_), np.ones(2, np.bool_)).days == 5


def test_fewer_than_five_days_are_too_few() -> None:
    with pytest.raises(UsageError, match="4 whole days with submissions; a plan needs at least 5"):
        pool_of(4)
