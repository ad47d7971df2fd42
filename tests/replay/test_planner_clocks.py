"""Clocks that plans give: the energy at them by hand, and one-line errors for what is no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.mechanisms import ClockPower, Plan, Planner, View
from tracekit.replay.results.energy import energy_kwh, power_draw_mw

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

MODELS = load_models()


def run(
    jobs: Jobs, cluster: Cluster, plan: Callable[[View], Plan], *, cap_w: float = -0.001, **options: Any
) -> Outcome:
    power = ClockPower(power_draw_mw(jobs, cluster, MODELS), MODELS.power.s0, round(cap_w * 1000))
    planner = Planner(plan, clocks=power, **options)
    return simulate(jobs, cluster, assign(jobs, cluster), planner, name="toy", log=True)


def at(job: Any, gpus: Any, clock: float, **more: Any) -> Plan:
    """Return a plan with one clock for all, and the speed of that clock."""
    part = np.full(len(job), round(clock * 1_000_000))
    return Plan(np.asarray(job), np.asarray(gpus), rate=part, clock=part, **more)


def test_energy_at_the_clocks_that_there_were() -> None:
    # Half the clock for 10 s, then all of it: 5 s and 5 s of work. On top of 75 W a GPU, 67.5 W and 225 W.
    def plan(view: View) -> Plan:
        return at(view.job, view.job * 0 + 2, 0.5 if view.now_ms < 10_000 else 1.0, wake_ms=10_000)

    jobs = make_jobs([(0, 2, 10)], utilization=1.0)
    found = run(jobs, make_cluster((3,)), plan, cap_w=500)
    assert found.end_ms.tolist() == [15_000]
    assert found.energy_kwh == pytest.approx((3 * 75 * 15 + 2 * (67.5 * 10 + 225 * 5)) / 3.6e6, rel=1e-9)
    assert found.power is not None
    # 225 W idle: 360 W, and then 675 W.
    assert found.power.peak_w == pytest.approx(675)
    assert (found.power.over_ms, found.power.slowed_ms, found.power.changes) == (5_000, 10_000, 1)


def test_a_job_keeps_its_clock_while_it_grows_stops_and_goes_on() -> None:
    # One GPU at half the clock for 10 s, none until 20 s, then two at full clock: 5 s of 25 done, 20 left at speed 2.
    def plan(view: View) -> Plan:
        gpus = 1 if view.now_ms < 10_000 else 0 if view.now_ms < 20_000 else 2
        part = np.array([500_000 if gpus == 1 else 1_000_000])
        return Plan(view.job, np.array([gpus]), rate=part * max(gpus, 1), clock=part, wake_ms=view.now_ms + 10_000)

    jobs = make_jobs([(0, 1, 25)], utilization=1.0)
    found = run(jobs, make_cluster((2,)), plan)
    assert found.end_ms.tolist() == [30_000]
    assert found.energy_kwh == pytest.approx((150 * 30 + 67.5 * 10 + 2 * 225 * 10) / 3.6e6, rel=1e-9)


def test_without_clocks_in_the_plan_they_are_full() -> None:
    jobs, cluster = make_jobs([(0, 1, 10), (3, 2, 7)], utilization=[0.3, 0.9]), make_cluster((2, 2))
    found = run(jobs, cluster, lambda view: Plan(view.job, jobs.devices[view.job].astype(np.int64)))
    assert found.energy_kwh == pytest.approx(energy_kwh(jobs, cluster, found, MODELS), rel=1e-12)
    assert found.power is None


FAULTS = {
    "none": (lambda view: Plan(view.job, view.job * 0 + 1, clock=view.job * 0), "gave a clock of 0 ppm"),
    "too high": (lambda view: at(view.job, view.job * 0 + 1, 1.5), "gave a clock of 1500000 ppm"),
    "lengths": (lambda view: Plan(view.job, view.job * 0 + 1, clock=np.ones(3, np.int64)), "clocks are not a list"),
    "fractions": (lambda view: Plan(view.job, view.job * 0 + 1, clock=np.array([0.5])), "clocks are not a list"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_faulty_clock_is_an_error_of_one_line(case: str) -> None:
    plan, words = FAULTS[case]
    with pytest.raises(UsageError, match=words) as error:
        run(make_jobs([(0, 1, 10)]), make_cluster((1,)), plan)
    assert "\n" not in str(error.value)


def test_clocks_need_a_planner_that_knows_what_is_drawn() -> None:
    jobs, cluster = make_jobs([(0, 1, 10)]), make_cluster((1,))
    planner = Planner(lambda view: at(view.job, view.job * 0 + 1, 0.5))
    with pytest.raises(UsageError, match="needs a Planner with clocks"):
        simulate(jobs, cluster, assign(jobs, cluster), planner, name="toy")
    power = ClockPower(power_draw_mw(jobs, cluster, MODELS), 0.4)
    with pytest.raises(ValueError, match="cannot have separate clocks"):
        Planner(lambda view: at(view.job, view.job, 1.0), share=2, clocks=power)
