"""Checkpointing theory: worked by hand, against Lambert's function and quadrature, and drawn by other code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from tracekit.errors import UsageError
from tracekit.replay.outages.theory import (
    CheckpointRule,
    best_interval,
    daly_interval,
    expected_ettr,
    expected_failures,
    expected_wall_s,
    young_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR, DAY = 3600.0, 86_400.0


def test_young_and_daly_by_hand() -> None:
    # d = 50 s, M = 10,000 s: sqrt(2 * 50 * 10,000) = 1,000 s; d / 2M = 1/400, so Daly adds 1000 (1/60 + 1/3600) - 50.
    assert young_interval(50, 10_000) == 1000
    assert daly_interval(50, 10_000) == pytest.approx(1000 + 1000 / 60 + 1000 / 3600 - 50)
    # From a cost of twice the mean on it is the mean.
    assert daly_interval(20_000, 10_000) == daly_interval(90_000, 10_000) == 10_000
    assert daly_interval(19_999.999, 10_000) < 20_000 * (1 + 1 / 3 + 1 / 9) - 19_999
    # Nothing to save from, or saving for nothing.
    assert young_interval(50, math.inf) == daly_interval(50, math.inf) == math.inf
    assert young_interval(0, 10_000) == daly_interval(0, 10_000) == 0


def test_time_to_finish_by_hand() -> None:
    """One failure in ln 2 hours' worth of rate: an hour without one has probability 1/2."""
    rate = math.log(2) / HOUR
    # An hour is tried until it succeeds: one failure on average, each attempt 1 / rate * 1/2 long, of which two.
    one = CheckpointRule(HOUR)
    assert expected_failures(HOUR, one, rate) == pytest.approx(1)
    assert expected_wall_s(HOUR, one, rate) == pytest.approx(HOUR / math.log(2))
    # Half hours succeed with 1 / sqrt(2); two of them fail 2 (sqrt(2) - 1) times.
    half = CheckpointRule(HOUR / 2)
    assert expected_failures(HOUR, half, rate) == pytest.approx(2 * (math.sqrt(2) - 1))
    # Half an hour of work, half an hour of saving; a restart of an hour fails every other time; an hour away each time.
    slow = CheckpointRule(HOUR / 2, HOUR / 2, HOUR, HOUR)
    assert expected_failures(HOUR, slow, rate) == pytest.approx(2 * 2 * 1)
    assert expected_wall_s(HOUR, slow, rate) == pytest.approx(4 * (HOUR / math.log(2) + HOUR))
    assert expected_ettr(slow, rate) == pytest.approx(1 / 4 / (1 / math.log(2) + 1))
    # A quarter hour more: a part of a segment, with its part of the cost, half an hour in all.
    assert expected_failures(1.25 * HOUR, slow, rate) == pytest.approx(2 * (2 + math.sqrt(2) - 1))
    assert expected_ettr(slow, rate, 1.25 * HOUR) == pytest.approx(
        1.25 / (2 * (1 + math.sqrt(2))) / (1 / math.log(2) + 1)
    )


def test_without_failures_only_checkpoints_cost() -> None:
    assert expected_wall_s(1000, CheckpointRule(100, 10, 50, 70), 0) == pytest.approx(1100)
    assert expected_ettr(CheckpointRule(100, 150), 0) == pytest.approx(0.4)  # a cost above the interval
    assert expected_failures(1000, CheckpointRule(100), 0) == 0
    assert best_interval(60, 0) == math.inf
    assert expected_ettr(CheckpointRule(math.inf, 60), 0) == 1


def test_work_that_is_never_saved_ends_late_or_never() -> None:
    never = CheckpointRule(math.inf, 60)
    assert expected_wall_s(HOUR, never, 1 / HOUR) == pytest.approx(HOUR * (math.e - 1))
    assert expected_ettr(never, 1 / HOUR) == 0
    assert expected_wall_s(1e9, never, 1.0) == math.inf
    assert expected_ettr(never, 1.0, 1e9) == 0


COSTS = st.floats(1e-6, 20).map(lambda part: part * HOUR)


@given(cost=COSTS)
def test_the_best_interval_is_that_of_lambert(cost: float) -> None:
    x = cost / HOUR
    exact = (1 + float(special.lambertw(-math.exp(-1 - x)).real)) * HOUR
    # Near its branch point Lambert's function itself has half of the digits.
    assert best_interval(cost, 1 / HOUR) == pytest.approx(exact, rel=max(1e-12, 1e-15 / x))


@given(cost=COSTS, apart=st.floats(1e-3, 2), restart=st.floats(0, 600), away=st.floats(0, DAY))
def test_no_other_interval_is_better(cost: float, apart: float, restart: float, away: float) -> None:
    best = best_interval(cost, 1 / HOUR)
    here = expected_ettr(CheckpointRule(best, cost, restart, away), 1 / HOUR)
    for factor in (math.exp(-apart), math.exp(apart)):
        assert expected_ettr(CheckpointRule(best * factor, cost, restart, away), 1 / HOUR) < here


@given(part=st.floats(1e-6, 50))
def test_daly_is_as_near_the_best_as_it_says(part: float) -> None:
    best, found = best_interval(part * HOUR, 1 / HOUR), daly_interval(part * HOUR, HOUR)
    assert found == pytest.approx(best, rel=0.006 if part <= 0.5 else 0.07)
    ettr = [expected_ettr(CheckpointRule(t, part * HOUR, 60), 1 / HOUR) for t in (found, best)]
    assert 0.998 * ettr[1] <= ettr[0] <= ettr[1] * (1 + 1e-12)


def test_young_is_near_where_a_checkpoint_costs_little_and_far_where_it_does_not() -> None:
    assert young_interval(0.001 * HOUR, HOUR) == pytest.approx(best_interval(0.001 * HOUR, 1 / HOUR), rel=0.016)
    assert young_interval(0.5 * HOUR, HOUR) > 1.4 * best_interval(0.5 * HOUR, 1 / HOUR)


def walked(rng: np.random.Generator, work: float, rule: CheckpointRule, draw: Callable[[], float]) -> tuple[float, int]:
    """Return the time and the failures of one gang that is walked through, from one event to the next."""
    clock, done, failures, until_failure = 0.0, 0.0, 0, draw()
    loading = 0.0
    while done < work:
        part = min(rule.interval_s, work - done)
        need = loading + part * (1 + rule.cost_s / rule.interval_s)
        if until_failure > need:
            clock, until_failure, done, loading = clock + need, until_failure - need, done + part, 0.0
        else:
            away = float(rng.exponential(rule.away_s)) if rule.away_s else 0.0
            clock, failures, loading, until_failure = clock + until_failure + away, failures + 1, rule.restart_s, draw()
    return clock, failures


@pytest.mark.parametrize(
    ("rule", "work"),
    [
        (CheckpointRule(HOUR, 300, 600, 0), 10 * HOUR),
        (CheckpointRule(3 * HOUR, 0, 1800, 4 * HOUR), 7 * HOUR),  # a last segment of an hour
        (CheckpointRule(600, 900, 3 * HOUR, 1000), HOUR),  # a cost above the interval, restarts that are often hit
    ],
)
def test_a_walk_from_failure_to_failure_agrees(rule: CheckpointRule, work: float) -> None:
    rng = np.random.default_rng(5)
    found = np.array([walked(rng, work, rule, lambda: float(rng.exponential(4 * HOUR))) for _ in range(4000)])
    expected = (expected_wall_s(work, rule, 1 / (4 * HOUR)), expected_failures(work, rule, 1 / (4 * HOUR)))
    errors = found.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert np.all(np.abs(found.mean(axis=0) - expected) < 3.3 * errors)  # 99.9 % each
    assert np.all(errors < 0.03 * np.array(expected)), "the walks are too few to tell"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: CheckpointRule(0), "the checkpoint interval must be above 0 s, not 0 s"),
        (lambda: CheckpointRule(math.nan), "above 0 s, not nan s"),
        (lambda: CheckpointRule(60, -1), "the time of cost must be at least 0 s, not -1 s"),
        (lambda: CheckpointRule(60, 1, math.inf), "the time of restart must be at least 0 s, not inf s"),
        (lambda: young_interval(60, 0), "the mean time between failures must be above 0 s, not 0 s"),
        (lambda: daly_interval(-1, 60), "the time of cost"),
        (lambda: best_interval(60, -1), "the failure rate must be at least 0, not -1 per second"),
        (lambda: best_interval(60, math.inf), "the failure rate"),
        (lambda: expected_wall_s(-1, CheckpointRule(60), 1), "the time of work"),
        (lambda: expected_ettr(CheckpointRule(60), 1, 0), "the work must take more than 0 s"),
    ],
)
def test_what_cannot_be_ends_in_one_line(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as failed:
        call()
    assert "\n" not in str(failed.value)
