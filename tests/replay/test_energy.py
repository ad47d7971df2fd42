"""Energy of a replay, worked by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.outcomes import make_outcome
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.results.energy import energy_kwh, power_draw_mw
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models

HOUR = 3600


@pytest.fixture
def models() -> Models:
    return load_models()


def test_idle_power_all_the_time_and_utilization_on_top(models: Models) -> None:
    jobs = make_jobs([(0, 2, HOUR), (HOUR, 1, 2 * HOUR)], utilization=[1.0, 0.4])
    outcome = make_outcome(jobs, [(0, HOUR), (HOUR, 3 * HOUR)], gpus=4)
    # Four GPUs of 75 W for 3 h; 2 GPUs for 1 h at 225 W more; 1 GPU for 2 h at 0.4 * 225 W more: 900 + 450 + 180 Wh.
    assert energy_kwh(jobs, make_cluster((4,)), outcome, models) == pytest.approx(1.53, rel=1e-12)


def test_a_job_without_utilization_has_the_models_default(models: Models) -> None:
    jobs = make_jobs([(0, 1, HOUR)])
    outcome = make_outcome(jobs, [(0, HOUR)], gpus=1)
    expected = (75 + models.interference.utilization * 225) / 1000
    assert energy_kwh(jobs, make_cluster((1,)), outcome, models) == pytest.approx(expected, rel=1e-12)


def test_each_gpu_model_has_its_own_power_and_jobs_of_no_model_the_mean(models: Models) -> None:
    cluster = make_cluster((2, 6), model=["MI250X", "P100"])
    jobs = make_jobs([(0, 1, HOUR)] * 3, model=["MI250X", "P100", None], utilization=1.0)
    draws = power_draw_mw(jobs, cluster, models)
    # 88 and 560 W, 50 and 250 W; the mean over 2 and 6 GPUs: 59.5 and 327.5 W.
    assert draws.idle.tolist() == [176_000, 300_000]
    assert draws.busy.tolist() == [560_000, 250_000, 327_500]
    assert draws.rest.tolist() == [88_000, 50_000, 59_500]
    outcome = make_outcome(jobs, [(0, HOUR)] * 3, gpus=8)
    assert energy_kwh(jobs, cluster, outcome, models) == pytest.approx((476 + 472 + 200 + 268) / 1000, rel=1e-12)


def test_a_job_that_asks_for_a_model_the_cluster_lacks_draws_the_mean(models: Models) -> None:
    jobs = make_jobs([(0, 1, HOUR)], model="T4", models=["MI250X", "T4"], utilization=1.0)
    assert power_draw_mw(jobs, make_cluster((4,), model="MI250X"), models).busy.tolist() == [560_000]


def test_nodes_draw_power_while_they_are_there(models: Models) -> None:
    cluster = make_cluster((4, 4), changes=[(-5, 0, True), (HOUR, 0, False), (2 * HOUR, 0, True), (9 * HOUR, 1, False)])
    jobs = make_jobs([(0, 4, 3 * HOUR)], utilization=0.0)
    # Node 0 is away for one of three hours: 20 GPU-hours of 75 W.
    outcome = make_outcome(jobs, [(0, 3 * HOUR)], free_milli_ms=8 * 3_600_000 * 1000)
    assert energy_kwh(jobs, cluster, outcome, models) == pytest.approx(1.5, rel=1e-12)


def test_gpus_held_on_a_node_that_left_draw_power(models: Models) -> None:
    cluster = make_cluster((4,), changes=[(HOUR, 0, False)])
    result = Scenario.make(make_jobs([(0, 2, 3 * HOUR)], utilization=1.0), cluster).run("fifo")
    # Four GPUs for 1 h, then the two in use for 2 h: 8 GPU-hours of 75 W, and 6 of 225 W more.
    assert result.summary["energy_kwh"] == pytest.approx(0.6 + 1.35, rel=1e-12)


def test_a_shared_gpu_works_at_most_fully(models: Models) -> None:
    jobs = make_jobs([(0, 1, HOUR), (0, 1, HOUR)], utilization=0.8)
    both = make_outcome(jobs, [(0, HOUR)] * 2, gpus=1, busy_milli_ms=3_600_000 * 1000, free_milli_ms=0)
    assert energy_kwh(jobs, make_cluster((1,)), both, models) == pytest.approx(0.3, rel=1e-12)


def test_nothing_ran(models: Models) -> None:
    jobs = make_jobs([(0, 9, 10)])
    assert energy_kwh(jobs, make_cluster((4,)), make_outcome(jobs, [None], gpus=4), models) == 0


def test_every_summary_tells_energy_and_what_it_rests_on() -> None:
    result = Scenario.make(
        make_jobs([(0, 2, HOUR), (0, 1, 60)], utilization=[0.5, float("nan")]), make_cluster((4,))
    ).run("srtf")
    assert result.summary["energy_kwh"] == result.outcome.energy_kwh
    assert result.summary["energy_kwh"] > 0.3
    assert "M7" in result.summary["assumptions"]
    assert "1 of 2 jobs" in result.summary["assumptions"]["utilization"]["value"]
