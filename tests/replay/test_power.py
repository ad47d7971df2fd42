"""The power cap: a case worked by hand, and its laws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import parse_policy
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered, PowerCap
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.results.energy import energy_kwh, power_draw_mw
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.comparison import ReplayResult

HOUR = 3600
MODELS = load_models()
PER_JOB = ("first_start_ms", "end_ms", "run_ms", "nodes_spanned", "unschedulable", "held_milli_ms")
CLOCKS = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]


def run(jobs: Jobs, cluster: Cluster, policy: str, *, log: bool = True) -> ReplayResult:
    return Scenario.make(jobs, cluster).run(policy, log=log)


def test_a_case_worked_by_hand() -> None:
    # Four GPUs draw 300 W idle. A busy one draws 300 * (0.4 + 0.6 f^3) - 75 W more: 225 at full clock, 176.22 at 0.9,
    # 137.16 at 0.8. Two jobs: 750, 652.44, 574.32 W. One job: 525 W at full clock.
    jobs = make_jobs([(0, 1, 10), (0, 1, 20)], utilization=1.0)
    found = run(jobs, make_cluster((4,)), "power-cap,cap_w=650").outcome
    # Job 0 does 10 s of work at 0.8; job 1 has then 10 s left, at full clock.
    assert found.end_ms.tolist() == [12_500, 22_500]
    assert found.power is not None
    assert found.power.peak_w == pytest.approx(574.32)
    assert (found.power.over_ms, found.power.slowed_ms, found.power.changes) == (0, 12_500, 2)
    assert found.energy_kwh == pytest.approx((12.5 * 574.32 + 10 * 525) / 3.6e6, rel=1e-9)


def test_the_lowest_clock_is_the_last_and_time_above_the_cap_is_reported() -> None:
    jobs = make_jobs([(0, 4, 10), (100, 1, 10)], utilization=1.0)
    result = run(jobs, make_cluster((4,)), "power-cap,cap_w=500")
    # At 0.4 the four GPUs draw 526.08 W, still above the cap. One in use: 525 W at full clock, 476.22 at 0.9.
    at_04, at_09 = 1200 * (0.4 + 0.6 * 0.064), 225 + 300 * (0.4 + 0.6 * 0.729)
    assert [at_04, at_09] == pytest.approx([526.08, 476.22])
    assert result.outcome.end_ms.tolist() == [25_000, 111_112]
    told = result.outcome.power
    assert told is not None
    assert told.peak_w == pytest.approx(526.08)
    assert (told.over_ms, told.slowed_ms, told.changes) == (25_000, 25_000 + 11_112, 4)
    assert "the peak was 0.5 kW" in result.summary["assumptions"]["power cap"]["value"]
    energy = 25 * at_04 + 75 * 300 + 11.112 * at_09
    assert result.outcome.energy_kwh == pytest.approx(energy / 3.6e6, rel=1e-9)


@tried(18, 50, job_lists(), clusters(), st.sampled_from(["fifo", "sjf", "ssf"]), st.sampled_from(["stop", "skip"]))
def test_without_a_cap_it_is_the_order_and_the_energy_is_the_formula(
    jobs: Jobs, cluster: Cluster, order: str, scan: str
) -> None:
    free = run(jobs, cluster, f"{order},scan={scan}").outcome
    capped = run(jobs, cluster, f"power-cap,cap_w=inf,order={order},scan={scan}").outcome
    for name in PER_JOB:
        assert getattr(free, name).tolist() == getattr(capped, name).tolist(), name
    assert free.log is not None
    assert capped.log is not None
    assert free.log.tobytes() == capped.log.tobytes()
    assert capped.energy_kwh == pytest.approx(energy_kwh(jobs, cluster, capped, MODELS), rel=1e-9, abs=1e-15)
    assert capped.power is not None
    assert (capped.power.over_ms, capped.power.slowed_ms, capped.power.changes) == (0, 0, 0)


def power_w(jobs: Jobs, cluster: Cluster, running: set[int], clock: float) -> float:
    """Power of the GPUs with these jobs on them [W], written out from M7."""
    draws = power_draw_mw(jobs, cluster, MODELS)
    shape = MODELS.power.s0 + (1 - MODELS.power.s0) * clock**3
    on_top = sum(int(jobs.devices[j]) * (int(draws.busy[j]) * shape - int(draws.rest[j])) for j in running)
    return (int(draws.idle.sum()) + on_top) / 1000


def spans_of(jobs: Jobs, outcome: Outcome) -> list[tuple[int, set[int], set[int]]]:
    """Return (length [ms], running jobs, their rates [ppm]) of each time between instants, from the log alone."""
    rates: dict[int, int] = {}
    spans = []
    before = 0
    assert outcome.log is not None
    for time, kind, job, _, _, value in outcome.log.tolist():
        if time > before and time <= outcome.makespan_ms:
            spans.append((time - before, set(rates), set(rates.values())))
            before = time
        if kind in {LOG_KINDS["start"], LOG_KINDS["rate"]}:
            rates[job] = value
        elif kind == LOG_KINDS["finish"]:
            del rates[job]
    return spans


@tried(
    35, 100, job_lists(typed=False), clusters(changing=False), st.floats(0.2, 1.0), st.sampled_from(["stop", "skip"])
)
def test_the_clock_is_the_highest_that_keeps_the_cap(jobs: Jobs, cluster: Cluster, share: float, scan: str) -> None:
    found = run(jobs, cluster, f"power-cap,share={share},scan={scan}").outcome
    cap = cluster.total_gpus * 300 * share
    peak = energy = 0.0
    over = slowed = 0
    for length, running, rates in spans_of(jobs, found):
        keep = [f for f in CLOCKS if power_w(jobs, cluster, running, f) <= cap + 1e-3]
        clock = (keep[0] if keep else CLOCKS[-1]) if running else 1.0
        assert rates == ({round(clock * 1_000_000)} if running else set())
        power = power_w(jobs, cluster, running, clock)
        over += length * (power > cap + 1e-3)
        slowed += length * (clock < 1)
        peak = max(peak, power)
        energy += length * power
    assert found.power is not None
    assert (found.power.over_ms, found.power.slowed_ms) == (over, slowed)
    if found.makespan_ms:
        assert found.power.peak_w == pytest.approx(peak, abs=2e-3)
    assert found.energy_kwh == pytest.approx(energy / 3.6e9, rel=1e-5, abs=1e-12)


@tried(35, 100, job_lists(), clusters(), st.floats(0.05, 0.9), st.sampled_from(["place", "count"]))
def test_the_laws_of_a_replay_hold_under_a_cap(jobs: Jobs, cluster: Cluster, share: float, fit: str) -> None:
    found = run(jobs, cluster, f"power-cap,share={share},scan=skip,fit={fit}").outcome
    assert found.log is not None
    # Every end is at the millisecond at which the work is done at the rates that the log tells.
    sound = audit(
        jobs, cluster, found.log, found, placement="consolidate", fit=fit, scan="skip", conserve=True, preemptive=False
    )
    assert sound == []


def test_mean_jct_falls_as_the_cap_rises() -> None:
    means = np.zeros((6, 5))
    shares = (0.45, 0.55, 0.65, 0.8, 1.0)
    for seed in range(6):
        random = np.random.default_rng(seed)
        rows = zip(
            np.sort(random.uniform(0, 20_000, 400)).tolist(),
            random.choice([1, 1, 2, 4, 8], 400).tolist(),
            random.exponential(400, 400).tolist(),
            strict=True,
        )
        jobs = make_jobs([(t, int(g), r) for t, g, r in rows], utilization=random.uniform(0.3, 1, 400).tolist())
        for column, share in enumerate(shares):
            summary = run(jobs, make_cluster([8] * 4), f"power-cap,share={share}", log=False).summary
            means[seed, column] = summary["avg_jct_s"]
    assert (np.diff(means.mean(axis=0)) < 0).all(), means.mean(axis=0)


def test_energy_of_a_long_and_large_replay_stays_exact() -> None:
    # 30,000 GPUs for 5 years: 1.4e21 mW * ms, more than 64 bits hold.
    hours = 5 * 365 * 24
    jobs = make_jobs([(0, 30_000, hours * HOUR)], utilization=1.0)
    found = run(jobs, make_cluster([300] * 100), "power-cap,cap_w=inf", log=False).outcome
    assert found.energy_kwh == pytest.approx(30_000 * 0.3 * hours, rel=1e-12)


def test_relaxed_and_slowed_gangs_are_slowed_by_both() -> None:
    jobs = make_jobs([(0, 2, 10), (0, 2, 10), (0, 2, 10)], utilization=1.0)
    cluster = make_cluster((3, 3))
    watts = MODELS.power
    cap = PowerCap(
        Ordered(by_arrival, drift="none", relax_after_ms=1000),
        cap_mw=0,
        speed_ppm=(1_000_000, 500_000),
        drawn_ppm=(1_000_000, round((watts.s0 + (1 - watts.s0) / 8) * 1_000_000)),
        idle_mw=np.array([225_000, 225_000]),
        busy_mw=np.full(4, 300_000),
        rest_mw=np.full(4, 75_000),
    )
    spread = np.full((3, 3), 900_000, np.int32)
    found = simulate(jobs, cluster, assign(jobs, cluster), cap, spread=spread, log=True)
    # The third finds its two GPUs on two nodes after a second, and goes at 0.9 * 0.5.
    assert found.end_ms.tolist() == [20_000, 20_000, 1000 + 22_223]


def test_a_cap_where_there_can_be_none_is_an_error_of_one_line() -> None:
    none = np.zeros(1, np.int64)
    cap = PowerCap(Ordered(by_arrival, preemptive=True), 0, (1_000_000,), (1_000_000,), none, none, none)
    jobs, cluster = make_jobs([(0, 1, 10)]), make_cluster((1,))
    with pytest.raises(UsageError, match="the policy toy: a power cap works") as error:
        simulate(jobs, cluster, assign(jobs, cluster), cap, name="toy")
    assert "\n" not in str(error.value)


def test_a_cluster_beyond_a_gigawatt_is_an_error() -> None:
    jobs, cluster = make_jobs([(0, 1, 10)], utilization=1.0), make_cluster([4_000_000])
    with pytest.raises(UsageError, match="GW"):
        run(jobs, cluster, "power-cap,cap_w=inf")


def test_the_card_fills_its_parameters() -> None:
    policy = parse_policy("power-cap,cap_w=1000,order=sjf")
    assert policy.label == "power-cap,cap_w=1000,order=sjf"
    with pytest.raises(UsageError, match="out of range"):
        parse_policy("power-cap,share=1.5")
