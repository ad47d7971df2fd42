"""Guidelines about outages, on clusters whose nodes fail as planted and on those where they hardly do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.guidelines.outage_world import HOUR, Job, World, crowded, rows_of, simulate, steady, waited_gpu_h
from tests.guidelines.planted import DAY, Log, when
from tracekit.calibration.losses import LossChange
from tracekit.characterize import run_query
from tracekit.guidelines.effects import recorded_losses
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import GUIDELINES, Finding, LossTrial
from tracekit.guidelines.run import guidelines
from tracekit.replay.outages.theory import best_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.guidelines.outage_world import Run
    from tests.reviewed import Golden
    from tracekit.guidelines.document import Judgement
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

RULES = ("cap-wide-gangs", "checkpoint-interval", "keep-spares", "repair-lemons", "restart-automatically")


def often() -> World:
    """Return a cluster in which gangs of six nodes fail every four hours."""
    return steady(0, period=3660.0, load=0.4, per_node_day=1.0, repair_h=0.5, days=120)


def lemons() -> World:
    """Return a cluster of twelve nodes, two of which fail once a day, the others once in twenty."""
    return steady(0, nodes=12, period=3660.0, per_node_day=0.05, lemons=2, times=20, load=0.4)


def judged(make_trace: MakeTrace, world: World, name: str, **options: Any) -> Judgement:
    (found,) = guidelines(make_trace(**rows_of(world, simulate(world))), only=[name], **options).judged
    return found


def finding(found: Judgement) -> Finding:
    assert found.finding is not None, found.why
    return found.finding


def value(found: Judgement, key: str) -> float:
    number = finding(found).numbers[key].value
    assert number is not None, key
    return number


def test_a_cluster_that_hardly_fails_gets_no_advice(make_trace: MakeTrace) -> None:
    world = steady(0, period=3660.0, load=0.4, per_node_day=0.02)
    found = guidelines(make_trace(**rows_of(world, simulate(world))), only=RULES).judged
    assert len(found) == len(RULES)
    assert {one.guideline.id: (one.verdict, one.why) for one in found if one.verdict != "does not hold"} == {}


@pytest.fixture(scope="module")
def often_failing(make_trace: MakeTrace) -> tuple[Run, Trace]:
    """Return what happens in the cluster of `often`, and the Trace of it."""
    world = often()
    run = simulate(world)
    return run, make_trace(**rows_of(world, run))


def test_gangs_that_fail_all_the_time_save_too_seldom(often_failing: tuple[Run, Trace]) -> None:
    run, trace = often_failing
    (found,) = guidelines(trace, only=["checkpoint-interval"], try_jobs=10_000).judged
    assert found.verdict == "holds"
    stops = sum(one.hit for one in run.attempts)
    node_s = sum((one.end - one.start) * len(one.nodes) for one in run.attempts)
    assert value(found, "stops") == stops
    assert value(found, "stops_per_1000_node_d") == pytest.approx(stops / node_s * DAY * 1000)
    # The planted rate is one outage of a node that works in a day.
    assert value(found, "stops_per_1000_node_d") == pytest.approx(1000, rel=0.15)
    assert value(found, "widest_nodes") == 6
    # Daly's interval is near the best one, which solves the equation of the exponential case.
    assert value(found, "best_interval_s") == pytest.approx(best_interval(60, 6 * stops / node_s), rel=0.01)
    assert [row["nodes"] for row in finding(found).rows] == [1, 6]
    # What the finding says is what the effect starts from.
    cost = sum(recorded_losses(Evidence(trace)).gpu_s.values()) / 3600
    assert value(found, "cost_gpu_hours") == pytest.approx(cost)
    assert found.losses is not None
    (effect,) = found.losses.effects
    assert effect.recorded_gpu_h == pytest.approx(cost)
    assert effect.verdict == "better"
    # Theory foretells the gain without the cluster's queue: both save about the same GPU-hours.
    held = sum(row["gpu_hours"] for row in finding(found).rows)
    assert value(found, "gain_share") * held == pytest.approx(effect.saved_gpu_h, rel=0.2)


def test_the_planted_lemons_are_named_and_their_outages_tried(make_trace: MakeTrace) -> None:
    world = lemons()
    found = judged(make_trace, world, "repair-lemons", try_jobs=10_000)
    assert found.verdict == "holds"
    assert {row["node_id"] for row in finding(found).rows} == {"n00", "n01"}
    of_lemons = sum(node < 2 for node, _, _ in world.outages)
    # The first failure of a node may come before anything is known of it.
    assert value(found, "failures_share") == pytest.approx(of_lemons / len(world.outages), abs=0.02)
    assert value(found, "nodes_share") == pytest.approx(2 / 12)
    assert found.losses is not None
    assert found.losses.effects[0].verdict == "better"
    trial = found.guideline.trial
    assert isinstance(trial, LossTrial)
    assert trial.changes(finding(found))[0].without == {"n00", "n01"}


def test_nodes_that_all_fail_often_are_not_lemons(often_failing: tuple[Run, Trace]) -> None:
    (found,) = guidelines(often_failing[1], only=["repair-lemons"]).judged
    assert found.verdict == "does not hold"
    assert finding(found).rows == ()


def test_gangs_that_wait_for_a_repair_get_a_spare(make_trace: MakeTrace) -> None:
    world = crowded()
    found = judged(make_trace, world, "keep-spares", try_jobs=10_000)
    assert found.verdict == "holds"
    # 48 GPUs wait from 2 h to 41 h, when the first job of one node ends.
    assert value(found, "stopped") == 30
    # A gang stops at 2 h; one job ends 41 h after the begin, the other half an hour later.
    assert value(found, "median_wait_s") >= 39 * HOUR
    waited = 30 * 48 * value(found, "median_wait_s") / HOUR
    assert value(found, "stalled_gpu_hours") == pytest.approx(waited)
    assert value(found, "widest_nodes") == 7
    assert found.losses is not None
    best = found.losses.effects[0]
    spared = replace(world, spares=1)
    assert (best.change, best.told_by, best.verdict) == ("1 spare kept free", "waited", "better")
    assert best.changed_gpu_h == pytest.approx(waited_gpu_h(spared, simulate(spared)), rel=0.15)
    assert all(text.startswith("Cannot tell") and "spares kept free: " in text for text in found.losses.untold)
    assert len(found.losses.untold) == 2


def test_the_time_without_enough_nodes_is_by_hand(make_trace: MakeTrace) -> None:
    # Of 8 nodes 3 are away for 10 of 100 hours: fewer than the 6 that the gang takes. Two alone leave enough.
    outages = [(0, 50 * HOUR, 60 * HOUR), (1, 50 * HOUR, 60 * HOUR), (2, 50 * HOUR, 70 * HOUR)]
    world = World(8, [Job(0, 6, 10 * HOUR), Job(99 * HOUR, 1, HOUR * 60 / 61)], outages, cost=0.0)
    rows = rows_of(world, simulate(world))
    rows["jobs"][-1]["end_time"] = rows["attempts"][-1]["end_time"] = when(100 * HOUR)
    found = GUIDELINES.find("keep-spares").find(Evidence(make_trace(**rows)))
    assert found.numbers["short_share"].value == pytest.approx(0.1)


def test_gangs_that_find_other_nodes_at_once_need_no_spare(often_failing: tuple[Run, Trace]) -> None:
    (found,) = guidelines(often_failing[1], only=["keep-spares"]).judged
    assert found.verdict == "does not hold"
    assert value(found, "median_wait_s") < 600


def test_wide_gangs_that_are_hit_before_they_end_should_be_capped(
    often_failing: tuple[Run, Trace], golden: Golden
) -> None:
    _, trace = often_failing
    (found,) = guidelines(trace, only=["cap-wide-gangs"], try_jobs=10_000).judged
    assert found.verdict == "holds"
    assert value(found, "gpus") == 64
    ettr = {row["gpus"]: row for row in run_query(trace, "failures/ettr", interruptions="node").to_dicts()}
    assert value(found, "ettr") == ettr[64]["ettr"]
    assert value(found, "rest_ettr") == pytest.approx(ettr[8]["productive_h"] / ettr[8]["wall_h"])
    hours = round(value(found, "median_run_s") / 3600, 6)
    hit = run_query(trace, "failures/by_gang", within_h=hours).to_dicts()[-1]
    assert (value(found, "hit_share"), hit["nodes"]) == (hit["hit_share"], 8)
    golden(found.no_effect)


def stopped_jobs(wait_s: float | None) -> Log:
    """Return five days with a job of two GPUs every three hours; each fourth is stopped, and goes on then, or never."""
    log = Log()
    for k in range(40):
        hit = k % 4 == 0
        never = wait_s is None
        name = log.job(k * 3 * HOUR, HOUR, gpus=2, node="a", status="node_fail" if hit else "completed")
        if hit and wait_s is not None:
            begin = k * 3 * HOUR + HOUR + wait_s
            log.add(
                "attempts", job_id=name, attempt=1, start_time=when(begin), end_time=when(begin + HOUR), run_s=HOUR,
                wait_s=wait_s, gpu_count=2, node_count=1, status="completed",
            )  # fmt: skip
        if hit and not never:
            log.tables["jobs"][-1]["status"] = "completed"
    return log


def test_jobs_that_nobody_starts_again_are_dropped(make_trace: MakeTrace) -> None:
    (found,) = guidelines(make_trace(**stopped_jobs(None).tables), only=["restart-automatically"]).judged
    assert found.verdict == "holds"
    assert {key: value(found, key) for key in ("stopped", "late", "never", "late_gpu_hours", "dropped_gpu_hours")} == {
        "stopped": 10, "late": 0, "never": 10, "late_gpu_hours": 0, "dropped_gpu_hours": 20,
    }  # fmt: skip
    assert value(found, "cost_share") == pytest.approx(20 / 80)


@pytest.mark.parametrize(("wait_s", "late"), [(3600.0, 0), (3601.0, 10)])
def test_a_start_after_more_than_an_hour_is_late(make_trace: MakeTrace, wait_s: float, late: int) -> None:
    (found,) = guidelines(make_trace(**stopped_jobs(wait_s).tables), only=["restart-automatically"]).judged
    assert found.verdict == ("holds" if late else "does not hold")
    assert (value(found, "late"), value(found, "never")) == (late, 0)
    assert value(found, "late_gpu_hours") == pytest.approx(late * 2 * wait_s / HOUR)
    assert value(found, "cost_share") == pytest.approx(late * 2 * wait_s / HOUR / 100)


@pytest.mark.parametrize("status", ["cancelled", "completed", "running"])
def test_jobs_that_their_users_gave_up_are_not_dropped(make_trace: MakeTrace, status: str) -> None:
    log = stopped_jobs(None)
    for job in log.tables["jobs"]:
        job["status"] = status
    (found,) = guidelines(make_trace(**log.tables), only=["restart-automatically"]).judged
    assert (found.verdict, value(found, "never"), value(found, "stopped")) == ("does not hold", 0, 10)


def test_long_attempts_lose_what_lost_work_says(make_trace: MakeTrace) -> None:
    log = Log()
    for k, status in enumerate(("failed", "preempted", "timeout", "cancelled", "completed", "unknown")):
        log.job(k * DAY, DAY + 1000 * (k + 1), gpus=4, status=status)
    log.job(9 * DAY, 2 * DAY + 700, gpus=8, node="a", status="cancelled")  # as its node failed
    log.add("node_events", node_id="a", start_time=when(11 * DAY + 600), end_time=when(12 * DAY), state="down")
    trace = make_trace(**log.tables)
    numbers = GUIDELINES.find("checkpoint-long").find(Evidence(trace)).numbers
    nothing, hourly = (
        float(run_query(trace, "failures/lost_work", rule="retried", checkpoint_h=h)["lost_gpu_hours"].sum())
        for h in (0, 1)
    )
    assert numbers["long_failures"].value == 4
    assert numbers["lost_gpu_hours"].value == pytest.approx(nothing)
    saved = numbers["saved_gpu_hours"].value
    assert saved == pytest.approx(nothing - hourly)


def test_the_best_interval_is_tried_with_the_costs_that_are_assumed() -> None:
    trial = GUIDELINES.find("checkpoint-interval").trial
    assert isinstance(trial, LossTrial)
    (change,) = trial.changes(Finding({}))
    assert isinstance(change, LossChange)
    assert change.saving is not None
    assert (change.saving.interval_s, change.saving.cost_s, change.saving.restart_s) == ("daly", 60, 300)
