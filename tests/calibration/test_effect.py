"""Effects of changes on the recorded times, worked by hand: means, intervals, sums over clusters, words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from tests.calibration.benches import bench_of, effect_of_change
from tests.calibration.worlds import make_world
from tracekit.calibration.api import ClusterCalibration, calibrate_jobs
from tracekit.calibration.effect import TwinEffect, TwinJobs, effect_of_times, total_effect
from tracekit.calibration.rules import HoldingLimits, Rules
from tracekit.calibration.twins import TwinReplays
from tracekit.calibration.workbench import JobTimes, in_twin
from tracekit.progress import Progress
from tracekit.tenant import VC

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.trace import Trace

NAN = float("nan")
TRACE = cast("Trace", SimpleNamespace(ingested_tenant=VC))
"""All that the twin of one cluster asks of its Trace."""


def times(queue: list[float], run: float = 100.0) -> JobTimes:
    waits = np.array(queue, np.float64)
    return JobTimes(waits, waits + run)


def jobs(recorded: list[float], twin: list[float], days: list[int] | None = None) -> TwinJobs:
    unseen = np.ones(len(twin), np.bool_)
    return TwinJobs(np.array(days or [0] * len(twin)), unseen, times(recorded), times(twin))


def told(found: TwinEffect | str) -> TwinEffect:
    assert isinstance(found, TwinEffect), found
    return found


def test_the_ratio_in_the_twin_is_applied_to_the_recorded_mean() -> None:
    """In the twin the mean wait falls from 200 s to 50 s, to a quarter; by the log it was 240 s."""
    found = told(effect_of_times("all", "c", "queue", jobs([360, 120], [300, 100]), times([80, 20])))
    assert [found.jobs, found.recorded_s, found.changed_s] == pytest.approx([2, 240, 60])
    # With fewer than five days there is nothing to resample.
    assert [found.low_s, found.high_s] == pytest.approx([60, 60])
    assert [found.share, found.saved_h] == pytest.approx([-0.75, 0.1])
    assert found.verdict == "shorter"
    whole = told(effect_of_times("all", "c", "jct", jobs([360, 120], [300, 100]), times([80, 20])))
    assert [whole.recorded_s, whole.changed_s] == pytest.approx([340, 340 * 150 / 300])


def test_only_jobs_that_start_everywhere_count(golden: Golden) -> None:
    given = jobs([100, NAN, 50, 70], [100, 10, NAN, 70])
    found = told(effect_of_times("all", "c", "queue", given, times([50, 5, 5, NAN])))
    assert [found.jobs, found.recorded_s, found.changed_s] == pytest.approx([1, 100, 50])
    never = effect_of_times("all", "c", "queue", given, times([NAN] * 4))
    unended = effect_of_times("all", "c", "jct", given, times([NAN] * 4))
    golden([str(never), str(unended)])


def test_a_mean_below_a_second_counts_as_one() -> None:
    """From 0.5 s to 0.1 s is no change that anybody could notice."""
    found = told(effect_of_times("all", "c", "queue", jobs([0.5], [0.5]), times([0.1])))
    assert (found.changed_s, found.verdict) == (0.5, "none")


def test_days_that_differ_and_a_twin_that_errs_widen_the_interval() -> None:
    days = [k // 2 for k in range(16)]
    recorded = [100.0 + 10 * (k % 4) for k in range(16)]
    same = told(effect_of_times("all", "c", "queue", jobs(recorded, recorded, days), times([w / 2 for w in recorded])))
    assert [same.low_s, same.high_s] == pytest.approx([same.changed_s] * 2)
    uneven = [w * (0.2 if k < 8 else 0.8) for k, w in enumerate(recorded)]
    spread = told(effect_of_times("all", "c", "queue", jobs(recorded, recorded, days), times(uneven)))
    assert spread.low_s < 0.9 * spread.changed_s < 1.1 * spread.changed_s < spread.high_s
    off = [w * 1.2 for w in recorded]
    erring = told(effect_of_times("all", "c", "queue", jobs(recorded, off, days), times([w / 2 for w in off])))
    assert erring.changed_s == pytest.approx(same.changed_s)
    # The twin waits a fifth too long, so that the effect may be off by as much, either way.
    assert erring.low_s == pytest.approx(same.changed_s / 1.2)
    assert erring.high_s == pytest.approx(same.changed_s * 1.2)


def test_months_that_differ_widen_the_interval_around_the_effect_in_the_log() -> None:
    # The wait halves; in drawn months, it falls to a quarter, an eighth (the median) or a 32nd.
    days = [k // 2 for k in range(16)]
    months = np.log([1 / 4, 1 / 8, 1 / 32])
    found = told(effect_of_times("all", "c", "queue", jobs([100] * 16, [100] * 16, days), times([50] * 16), months))
    assert [found.low_s, found.changed_s, found.high_s] == pytest.approx([50 / 4, 50, 50 * 2])
    # A twin that waits a fifth too long adds its error, either way.
    found = told(effect_of_times("all", "c", "queue", jobs([100] * 16, [120] * 16, days), times([60] * 16), months))
    assert [found.low_s, found.changed_s, found.high_s] == pytest.approx([50 / 4 / 1.2, 50, 50 * 2 * 1.2])


def test_effects_of_clusters_add_up_job_by_job() -> None:
    """30 jobs from 100 s to 40 s and 10 jobs from 500 s to 460 s: the mean of 40 goes from 200 s to 145 s."""
    first = told(effect_of_times("Venus", "c", "queue", jobs([100] * 30, [100] * 30), times([40] * 30)))
    other = told(effect_of_times("Earth", "c", "queue", jobs([500] * 10, [500] * 10), times([460] * 10)))
    whole = total_effect([first, other])
    assert (whole.cluster, whole.jobs) == ("Venus and Earth", 40)
    assert [whole.recorded_s, whole.changed_s] == pytest.approx([200, 145])
    assert whole.saved_h == pytest.approx(first.saved_h + other.saved_h)
    assert total_effect([first]) is first


def test_an_effect_is_reported_in_operators_words(golden: Golden) -> None:
    effect = TwinEffect("Venus", "c", "queue", 731, 32_760.0, 22_320.0, 18_000.0, 26_640.0, np.zeros(1))
    far = replace(effect, cluster="all", headline="jct", changed_s=2.0, low_s=0.0, high_s=3600.0)
    golden([effect.words, far.words])


@pytest.mark.parametrize(
    ("changed", "low", "high", "verdict"),
    [
        (50.0, 40.0, 60.0, "shorter"),
        (50.0, 40.0, 101.0, "undecided"),
        (150.0, 120.0, 160.0, "longer"),
        (150.0, 99.0, 160.0, "undecided"),
        (100.05, 50.0, 160.0, "none"),
    ],
)
def test_the_verdict_needs_an_interval_on_one_side(changed: float, low: float, high: float, verdict: str) -> None:
    assert TwinEffect("a", "c", "queue", 9, 100.0, changed, low, high, np.zeros(1)).verdict == verdict


@pytest.fixture(scope="module")
def strict() -> ClusterCalibration:
    return calibrate_jobs(bench_of(make_world("strict", 1, 0.85)))


@pytest.fixture(scope="module")
def limited() -> ClusterCalibration:
    return calibrate_jobs(bench_of(make_world("user-limit", 1, 0.85)))


def test_replays_in_a_twin_give_the_effect_that_the_calibration_gives(
    strict: ClusterCalibration, golden: Golden
) -> None:
    twin = TwinReplays(strict, TRACE, Progress())
    for change in ("sjf,scan=skip", replace(strict.settings.rules, scan="skip")):
        mine, its = told(twin.effect(change, "queue")), told(effect_of_change(strict, change))
        assert (mine.changed_s, mine.low_s, mine.high_s) == (its.changed_s, its.low_s, its.high_s)
    assert twin.result("sjf,scan=skip") is twin.result("sjf,scan=skip")
    golden([str(twin.effect("fifo", "queue")), str(twin.effect(strict.settings.rules, "queue"))])


def test_a_policy_that_would_lift_a_limit_of_the_log_has_no_effect_of_its_own(
    limited: ClusterCalibration, golden: Golden
) -> None:
    twin = TwinReplays(limited, TRACE, Progress())
    golden(str(twin.effect("qssf", "jct")))
    # Another limit in its place is a change like any other.
    more = replace(limited.settings.rules, limits=HoldingLimits(user_gpus=24))
    assert isinstance(twin.effect(more, "queue"), TwinEffect)


def test_a_policy_takes_the_places_of_the_twin() -> None:
    rules = Rules(fit="count")
    assert in_twin("sjf", rules) == "sjf,fit=count"
    assert in_twin("easy", replace(rules, fit="place", relax_s=60.0)) == "easy,fit=place,relax=60.0"
    assert in_twin("sjf,fit=place", rules) == "sjf,fit=place"
    assert in_twin("recorded", rules) == "recorded"
