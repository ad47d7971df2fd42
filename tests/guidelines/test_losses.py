"""What outages cost and what a change would save: the twin of a log against another simulator that knows the truth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.guidelines.outage_world import crowded, rows_of, simulate, steady, waited_gpu_h, wasted_gpu_h
from tests.guidelines.planted import Log, when
from tracekit.calibration.losses import LossChange, LossEffect, loss_effect
from tracekit.calibration.twins import Twins
from tracekit.guidelines.effects import recorded_losses
from tracekit.guidelines.evidence import Evidence
from tracekit.replay.outages.asked import CheckpointsAsked

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.guidelines.outage_world import World
    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

OFTEN = CheckpointsAsked(600.0, 60.0, 300.0)
DALY = CheckpointsAsked("daly", 60.0, 300.0)
LEMONS = frozenset({"n00", "n01"})


def effect(make_trace: MakeTrace, world: World, change: LossChange) -> LossEffect | str:
    trace = make_trace(**rows_of(world, simulate(world)))
    (one,) = Twins(trace, 10_000).clusters
    return loss_effect(one, trace, recorded_losses(Evidence(trace)), change)


def told(make_trace: MakeTrace, world: World, change: LossChange) -> LossEffect:
    found = effect(make_trace, world, change)
    assert isinstance(found, LossEffect), found
    return found


def test_what_the_log_lost_is_counted_attempt_by_attempt(make_trace: MakeTrace) -> None:
    log = Log()
    # 2 GPUs for 3.05 periods of 3660 s, and an attempt of 1000 s after a wait of 50 s.
    job = log.job(0, 11_163, gpus=2, node="a", queue_s=40, status="node_fail")
    log.add(
        "attempts", job_id=job, attempt=1, start_time=when(11_253), end_time=when(12_253), run_s=1000, wait_s=50,
        gpu_count=2, node_count=1, status="completed",
    )  # fmt: skip
    log.job(0, 3600, gpus=4, node="b", status="failed")  # its node works on
    log.add("node_events", node_id="a", start_time=when(11_200), end_time=when(12_000), state="down", cause="gpu_lost")
    found = recorded_losses(Evidence(make_trace(**log.tables)))
    saving = 60 / 3660
    assert found.stopped == {"j0": 1, "j1": 0}
    assert found.gpu_s["j0"] == pytest.approx(2 * (12_163 * saving + (183 + 300) * (1 - saving)))
    assert found.gpu_s["j1"] == pytest.approx(4 * 3600 * saving)
    assert found.waited_gpu_s == {"j0": 2 * (40 + 50), "j1": 0}


def test_a_wait_that_nobody_knows_is_unknown(make_trace: MakeTrace) -> None:
    log = Log()
    log.job(0, 3600, node="a")
    log.job(0, 3600, node="a")
    log.tables["attempts"][1]["wait_s"] = None
    found = recorded_losses(Evidence(make_trace(**log.tables)))
    assert found.waited_gpu_s == {"j0": 0, "j1": None}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_what_outages_cost_is_what_the_simulator_knows(make_trace: MakeTrace, seed: int) -> None:
    """The rule counts restarts as work before a checkpoint, and jobs that end as their node fails: 10 % are enough."""
    world = steady(seed, period=3660.0, load=0.5)
    run = simulate(world)
    found = recorded_losses(Evidence(make_trace(**rows_of(world, run))))
    assert sum(found.stopped.values()) == sum(one.hit for one in run.attempts)
    assert sum(found.gpu_s.values()) / 3600 == pytest.approx(wasted_gpu_h(world, run), rel=0.1)
    assert sum(w or 0 for w in found.waited_gpu_s.values()) / 3600 == pytest.approx(waited_gpu_h(world, run), rel=1e-6)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_checkpoints_that_come_too_often_cost_what_the_simulator_says(make_trace: MakeTrace, seed: int) -> None:
    world = steady(seed, period=3660.0, load=0.5)
    found = told(make_trace, world, LossChange("each ten minutes", OFTEN))
    often = replace(world, period=660.0)
    assert found.changed_gpu_h == pytest.approx(wasted_gpu_h(often, simulate(often)), rel=0.12)
    assert found.low_gpu_h <= found.changed_gpu_h <= found.high_gpu_h
    assert found.verdict == "worse"


def test_where_nodes_fail_all_the_time_the_best_interval_is_shorter_and_saves(make_trace: MakeTrace) -> None:
    world = steady(0, period=3660.0, load=0.4, per_node_day=1.0, repair_h=0.5, days=120)
    found = told(make_trace, world, LossChange("daly", DALY))
    # Gangs of 6 nodes fail every 4 hours: sqrt(2 * 60 * 14,400) is about 1,310 s, and they hold most of the GPUs.
    best = replace(world, period=1370.0)
    assert found.verdict == "better"
    assert found.changed_gpu_h == pytest.approx(wasted_gpu_h(best, simulate(best)), rel=0.15)


def test_where_nodes_hardly_fail_the_best_interval_is_longer_and_saves(make_trace: MakeTrace) -> None:
    world = steady(0, period=3660.0, load=0.4, per_node_day=0.01, days=240)
    found = told(make_trace, world, LossChange("daly", DALY))
    assert found.verdict == "better"
    # Gangs of 6 fail every 400 hours: sqrt(2 * 60 * 1.4e6) is about 13,100 s; nearly nothing depends on it.
    best = replace(world, period=13_000.0)
    assert found.changed_gpu_h == pytest.approx(wasted_gpu_h(best, simulate(best)), rel=0.15)


@pytest.mark.parametrize(("lemons", "least", "most"), [(2, 0.25, 0.55), (0, 0.85, 1.0)])
def test_two_nodes_without_outages_save_as_much_as_they_fail(
    make_trace: MakeTrace, lemons: int, least: float, most: float
) -> None:
    world = steady(0, period=3660.0, per_node_day=0.05 if lemons else 0.1, lemons=lemons, times=20, load=0.4)
    found = told(make_trace, world, LossChange("repaired", without=LEMONS))
    good = replace(world, outages=[one for one in world.outages if one[0] > 1])
    truth = wasted_gpu_h(good, simulate(good))
    assert found.changed_gpu_h == pytest.approx(truth, rel=0.12)
    assert least < found.changed_gpu_h / found.recorded_gpu_h < most


def test_spares_that_make_everyone_wait_are_reported_by_the_waits(make_trace: MakeTrace) -> None:
    world = steady(0, period=3660.0, load=0.5)
    found = told(make_trace, world, LossChange("1 spare", spares=1, told_by="waited"))
    spared = replace(world, spares=1)
    assert found.recorded_gpu_h == pytest.approx(waited_gpu_h(world, simulate(world)), rel=1e-6)
    assert found.changed_gpu_h == pytest.approx(waited_gpu_h(spared, simulate(spared)), rel=0.15)
    assert found.verdict == "worse"
    assert found.words.startswith("GPU-hours spent waiting ")


def test_a_spare_saves_the_waits_of_wide_gangs_where_nothing_else_is_free(make_trace: MakeTrace) -> None:
    world, change = crowded(), LossChange("1 spare", spares=1, told_by="waited")
    found = told(make_trace, world, change)
    spared = replace(world, spares=1)
    assert found.recorded_gpu_h == pytest.approx(waited_gpu_h(world, simulate(world)), rel=1e-6)
    assert found.changed_gpu_h == pytest.approx(waited_gpu_h(spared, simulate(spared)), rel=0.15)
    assert found.verdict == "better"


def test_a_log_with_few_stopped_attempts_tells_nothing(make_trace: MakeTrace, golden: Golden) -> None:
    world = steady(0, period=3660.0, load=0.4, per_node_day=0.003)
    found = effect(make_trace, world, LossChange("daly", DALY))
    assert isinstance(found, str)
    golden(found)


def test_outages_of_nodes_that_the_jobs_did_not_feel_are_not_reported(make_trace: MakeTrace, golden: Golden) -> None:
    """Twice as many outages in the events as the jobs met: the twin stops too many."""
    world = steady(0, period=3660.0, load=0.4)
    rows = rows_of(world, simulate(world))
    more = steady(7, period=3660.0, load=0.4, per_node_day=1.0)
    rows["node_events"] += rows_of(more, simulate(more))["node_events"]
    trace = make_trace(**rows)
    (one,) = Twins(trace, 10_000).clusters
    found = loss_effect(one, trace, recorded_losses(Evidence(trace)), LossChange("daly", DALY))
    assert isinstance(found, str)
    golden(found)
