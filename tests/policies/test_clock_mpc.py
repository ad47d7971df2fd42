"""A clock for each job: cases worked by hand, the program against all choices there are, and what it is equal to."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import parse_policy
from tracekit.policies.literature.clocks import ClockProgram
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.comparison import ReplayResult

MODELS = load_models()


def due(low: float, high: float) -> Models:
    """Return models by which deadlines are so many run times after the submission."""
    return replace(MODELS, deadlines=replace(MODELS.deadlines, factor=(low, high)))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models = MODELS) -> ReplayResult:
    return Scenario.make(jobs, cluster, models=models).run(policy, log=True)


def test_a_cap_is_shared_out_job_by_job() -> None:
    # Four GPUs draw 300 W idle, and a busy one more by 225 W at the full clock, 176.22 at 0.9 and 137.16 at 0.8. 350 W
    # are left for two jobs alike. Time costs 1 / f: the higher the clock, the less time a further watt saves, so that
    # both go up step by step. Both at 0.9 would be 352.44 W; the first has it, the second stays at 0.8: 313.38 W.
    jobs = make_jobs([(0, 1, 9), (0, 1, 20)], utilization=1.0)
    found = run(jobs, make_cluster((4,)), "clock-mpc-like,cap_w=650,aim=speed,late=0,gap=0").outcome
    # Job 0 ends after 10 s, in which job 1 has done 8 s; it goes on at the full clock, for 12 s.
    assert found.end_ms.tolist() == [10_000, 22_000]
    joule = 300 * 22 + 10 * (176.22 + 137.16) + 12 * 225
    assert found.energy_kwh == pytest.approx(joule / 3.6e6, rel=1e-9)
    assert found.power is not None
    assert found.power.peak_w == pytest.approx(613.38)
    assert (found.power.over_ms, found.power.slowed_ms) == (0, 10_000)


def test_jobs_are_as_slow_as_their_deadlines_let_them() -> None:
    # Without a cap a GPU that works takes 120 / f + 180 f^2 joule for a second of work (u = 1): least at 0.7.
    # 20 % more time lets the clock down to 0.9, 60 % more to 0.7 and no further, and no more time leaves it full.
    cluster = make_cluster((4,))
    jobs = make_jobs([(0, 1, 63)], utilization=1.0)
    for factor, end, late in ((1.2, 70_000, 0.0), (1.6, 90_000, 0.0), (1.0, 63_000, 0.0), (0.5, 63_000, 1.0)):
        result = run(jobs, cluster, "clock-mpc-like,cap_w=inf,gap=0", due(factor, factor))
        assert result.outcome.end_ms.tolist() == [end], factor
        assert result.summary["late_share"] == late
    # Where lateness is free, the deadline counts for nothing.
    free = run(jobs, cluster, "clock-mpc-like,cap_w=inf,late=0,gap=0", due(0.5, 0.5))
    assert free.outcome.end_ms.tolist() == [90_000]


rows_of = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 4)),
    min_size=1,
    max_size=5,
)
costs = st.lists(st.lists(st.integers(0, 20), min_size=3, max_size=3), min_size=2, max_size=2)


@settings(max_examples=100)
@given(rows_of, costs, st.sampled_from([[9, 5, 2], [6, 5, 1], [4, 3, 2], [3, 3, 3]]), st.integers(0, 80))
def test_the_program_is_within_one_job_of_the_best_there_is(
    rows: list[tuple[int, int]], cost: list[list[int]], power: list[int], room: int
) -> None:
    kind, gpus = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    watts, price = np.array([power, power], np.float64), np.array(cost, np.float64)
    program = ClockProgram(watts, price)
    found = program.choose(kind, gpus, room)

    def sums(choice: tuple[int, ...]) -> tuple[float, float]:
        picked = np.array(choice)
        return float((gpus * watts[kind, picked]).sum()), float((gpus * price[kind, picked]).sum())

    every = [sums(choice) for choice in product(range(3), repeat=len(rows))]
    able = [total for drawn, total in every if drawn <= room]
    drawn, total = sums(tuple(found.tolist()))
    if not able:
        assert drawn == min(other for other, _ in every)
        return
    assert drawn <= room
    largest = max(float(g * (price[k].max() - price[k].min())) for k, g in rows)
    assert total <= min(able) + largest
    if min(total for _, total in every) == min(able) and max(drawn for drawn, _ in every) <= room:
        assert total == min(able)


@settings(max_examples=20)
@given(job_lists(), clusters(), st.sampled_from(["cap_w=inf,aim=speed", "least=1,share=0.1", "least=1"]))
def test_at_full_clocks_it_is_fifo(jobs: Jobs, cluster: Cluster, text: str) -> None:
    free = run(jobs, cluster, "fifo,scan=skip").outcome
    found = run(jobs, cluster, f"clock-mpc-like,{text},gap=0").outcome
    assert found.end_ms.tolist() == free.end_ms.tolist()
    assert found.energy_kwh == pytest.approx(free.energy_kwh, rel=1e-9, abs=1e-12)


@tried(
    9,
    25,
    job_lists(sizes=st.just(1), typed=False),
    clusters(changing=False),
    st.floats(0.3, 1.0),
    st.sampled_from([1.0, 0.52, 0.7]),
)
def test_with_one_clock_it_is_the_power_cap(jobs: Jobs, cluster: Cluster, share: float, u: float) -> None:
    jobs = replace(jobs, utilization=np.full(len(jobs), u))
    capped = run(jobs, cluster, f"power-cap,share={share},scan=skip").outcome
    found = run(jobs, cluster, f"clock-mpc-like,clocks=one,share={share},gap=0").outcome
    assert found.end_ms.tolist() == capped.end_ms.tolist()
    assert found.energy_kwh == pytest.approx(capped.energy_kwh, rel=1e-5, abs=1e-12)
    assert found.power is not None
    assert capped.power is not None
    if found.makespan_ms:
        assert found.power.peak_w == pytest.approx(capped.power.peak_w, abs=0.01)
    assert (found.power.over_ms, found.power.slowed_ms) == (capped.power.over_ms, capped.power.slowed_ms)


def energy_of_log(jobs: Jobs, cluster: Cluster, found: Outcome) -> float:
    """Return the energy by M7 at the rates that the log tells, which are the clocks (a = 1) [kWh]."""
    assert found.log is not None
    rates: dict[int, int] = {}
    before, joule = 0, 0.0
    for time, kind, job, _, _, value in found.log.tolist():
        if time > before:
            u = 0.52
            on_top = [
                int(jobs.devices[j]) * u * (300 * (0.4 + 0.6 * (rate / 1e6) ** 3) - 75) for j, rate in rates.items()
            ]
            joule += (min(time, found.makespan_ms) - before) * (75 * cluster.total_gpus + sum(on_top)) / 1000
            before = min(time, found.makespan_ms)
        if kind in {LOG_KINDS["start"], LOG_KINDS["rate"]}:
            rates[job] = value
        elif kind == LOG_KINDS["finish"]:
            del rates[job]
    return joule / 3.6e6


@tried(
    14,
    40,
    job_lists(typed=False),
    clusters(changing=False),
    st.floats(0.3, 1.0),
    st.sampled_from(["energy", "speed"]),
    st.sampled_from([0, 7]),
)
def test_the_laws_of_a_replay_and_the_cap_hold(jobs: Jobs, cluster: Cluster, share: float, aim: str, gap: int) -> None:
    found = run(jobs, cluster, f"clock-mpc-like,share={share},aim={aim},gap={gap}").outcome
    assert found.log is not None
    assert audit(jobs, cluster, found.log, found, preemptive=False) == []
    assert found.energy_kwh == pytest.approx(energy_of_log(jobs, cluster, found), rel=1e-6, abs=1e-9)
    assert found.power is not None
    lowest = 75 * cluster.total_gpus + cluster.total_gpus * 0.52 * (300 * (0.4 + 0.6 * 0.064) - 75)
    if share * 300 * cluster.total_gpus > lowest:
        assert found.power.over_ms == 0
        assert found.power.peak_w <= share * 300 * cluster.total_gpus + 0.01


def test_changing_nodes_and_bad_input() -> None:
    # The node leaves while job 0 runs on it: the job goes on to its end, and job 1 waits until the node is back.
    jobs = make_jobs([(0, 2, 100), (10, 1, 10)])
    cluster = make_cluster((2,), changes=[(5, 0, False), (200, 0, True)])
    found = run(jobs, cluster, "clock-mpc-like,cap_w=inf,aim=speed,gap=0").outcome
    assert found.end_ms.tolist() == [100_000, 210_000]
    # A cap of nothing: the lowest clock, and the time above the cap is told.
    none = run(make_jobs([(0, 1, 10)]), make_cluster((1,)), "clock-mpc-like,share=0").outcome
    assert none.end_ms.tolist() == [25_000]
    assert none.power is not None
    assert none.power.over_ms == 25_000
    with pytest.raises(UsageError, match="out of range"):
        parse_policy("clock-mpc-like,least=0")
    wide = run(make_jobs([(0, 9, 10), (0, 1, 10)]), make_cluster((1,)), "clock-mpc-like")
    assert wide.outcome.unschedulable.tolist() == [True, False]
