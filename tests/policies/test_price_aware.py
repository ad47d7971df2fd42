"""Jobs that wait for cheap power: a case worked by hand, what it is equal to, and each booking by another way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tried
from tests.policies.test_power_down import PER_JOB, switched
from tests.replay.auditor import audit
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tracekit.errors import UsageError
from tracekit.policies.interface import parse_policy
from tracekit.policies.literature.price_aware import booked_starts
from tracekit.replay.assumptions.costs import PowerPrices, power_prices
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

HOUR = 3_600_000
MODELS = load_models()


def priced(*series: float, day: tuple[float, ...] | None = None) -> Models:
    given_day = MODELS.power_price.day if day is None else day
    return replace(MODELS, power_price=replace(MODELS.power_price, series=series, day=given_day))


def run(jobs: Jobs, cluster: Cluster, policy: str, models: Models = MODELS) -> Outcome:
    return Scenario.make(jobs, cluster, models=models).run(policy, log=True).outcome


def test_a_case_worked_by_hand() -> None:
    # Prices 1, 0.5 and 2 in turn, two GPUs. Job 0 (1 GPU, 1 h) takes hour 1, the first cheap one. Job 1 (2 GPUs,
    # 0.5 h) finds one GPU booked there, and takes hour 4. Job 2 (1 GPU, 1 h) has the other GPU of hour 1.
    jobs = make_jobs([(0, 1, 3600), (600, 2, 1800), (1200, 1, 3600)], utilization=1.0)
    found = run(jobs, make_cluster((2,)), "price-aware-like,idle=inf", priced(1.0, 0.5, 2.0))
    assert found.first_start_ms.tolist() == [1 * HOUR, 4 * HOUR, 1 * HOUR]
    assert found.end_ms.tolist() == [2 * HOUR, 4 * HOUR + HOUR // 2, 2 * HOUR]
    # 0.15 kW idle for hours of 1 + 0.5 + 2 + 1 + half of 0.5; 0.225 kW more a busy GPU: 0.5 + 0.5 + 2 * 0.5 * 0.5.
    assert found.energy_cost == pytest.approx(0.15 * 4.75 + 0.225 * 1.5, rel=1e-9)
    # Two hours of patience: hour 2 costs more, hour 1 is full for job 1, so it starts at once.
    hasty = run(jobs, make_cluster((2,)), "price-aware-like,idle=inf,patience=7200", priced(1.0, 0.5, 2.0))
    assert hasty.first_start_ms.tolist() == [1 * HOUR, 600_000, 1 * HOUR]
    # Half of its run time is as long as a job may wait: nobody gets to the next hour, and they queue.
    none = run(jobs, make_cluster((2,)), "price-aware-like,stretch=0.5", priced(1.0, 0.5, 2.0))
    assert none.first_start_ms.tolist() == [0, HOUR, HOUR + HOUR // 2]


def test_nodes_that_are_off_cost_nothing_while_they_are() -> None:
    # Two nodes of a GPU. Node 1 is off from 0.5 h to the end at 2 h: it costs 0.5 h at 1, node 0 an hour at 1 and one
    # at 3; the job a further 0.225 kW in both hours.
    jobs = make_jobs([(0, 1, 7200)], utilization=1.0)
    found = run(jobs, make_cluster((1, 1)), "price-aware-like,patience=0,idle=1800,reserve=0", priced(1.0, 3.0))
    assert found.energy_cost == pytest.approx(0.075 * 0.5 + (0.075 + 0.225) * 4, rel=1e-9)
    assert found.energy_kwh == pytest.approx(0.075 * 0.5 + 0.3 * 2, rel=1e-9)


def test_the_prices_of_the_day_go_by_the_clock() -> None:
    day = tuple(float(hour) for hour in range(24))
    jobs = make_jobs([(0, 1, 10)])
    models = priced(day=day)
    late = replace(models, power_price=replace(models.power_price, utc_offset_h=-0.5))
    # From midnight on: 0, 1, 2 and half of 3; half an hour before it: half of 23, then 0, 1, 2.
    assert power_prices(models, jobs.origin).paid(3.5 * HOUR) / HOUR == pytest.approx(4.5)
    prices = power_prices(late, jobs.origin)
    assert (prices.paid(3.5 * HOUR) - prices.paid(0)) / HOUR == pytest.approx(11.5 + 0 + 1 + 2)
    assert (prices.paid(24 * HOUR) - prices.paid(0)) / HOUR == pytest.approx(sum(day))


@tried(
    7, 20, job_lists(horizon_s=20_000), clusters(), st.sampled_from(["fifo", "sjf"]), st.sampled_from(["stop", "skip"])
)
def test_without_patience_or_differences_it_is_power_down(jobs: Jobs, cluster: Cluster, order: str, scan: str) -> None:
    rest = f"order={order},scan={scan},idle=60"
    down = run(jobs, cluster, f"power-down,{rest}")
    flat = run(jobs, cluster, f"price-aware-like,{rest}", priced(0.25))
    for other in (run(jobs, cluster, f"price-aware-like,patience=0,{rest}"), flat):
        for name in PER_JOB:
            assert getattr(down, name).tolist() == getattr(other, name).tolist(), name
        assert down.log is not None
        assert other.log is not None
        assert down.log.tobytes() == other.log.tobytes()
        assert other.energy_kwh == pytest.approx(down.energy_kwh, rel=1e-12)
    # One price for all hours: the cost is the energy times the price.
    assert flat.energy_cost == pytest.approx(0.25 * (flat.energy_kwh or 0.0), rel=1e-9, abs=1e-12)
    free = run(jobs, cluster, f"{order},scan={scan}")
    on = run(jobs, cluster, f"price-aware-like,patience=0,idle=inf,order={order},scan={scan}")
    assert free.end_ms.tolist() == on.end_ms.tolist()


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8), st.integers(1, 4)), min_size=1, max_size=12),
    st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0, 3.0]), min_size=1, max_size=6),
    st.integers(0, 3),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.3]),
)
def test_each_booking_is_the_cheapest_that_there_was_room_for(
    rows: list[tuple[int, int, int]], series: list[float], lead: int, patience: int, gain: float
) -> None:
    # Quarters of hours, one by one.
    quarter = HOUR // 4
    rows = sorted(rows)
    arrival, run_ms, gpus = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    prices = PowerPrices(lead * quarter, np.array(series), "EUR")
    found = booked_starts(
        arrival * quarter, run_ms * quarter, gpus, np.full(len(rows), patience * quarter), 4.0, prices, gain
    )
    booked: dict[int, int] = {}
    for (at, run_q, count), start in zip(rows, (found // quarter).tolist(), strict=True):

        def cost(begin: int, run_q: int = run_q) -> float:
            return sum(series[(q + lead) // 4 % len(series)] for q in range(begin, begin + run_q))

        def hours(begin: int, run_q: int = run_q) -> set[int]:
            return {(q + lead) // 4 for q in range(begin, begin + max(run_q, 1))}

        able = [
            (cost(q), q)
            for q in range(at + 1, at + patience + 1)
            if (q + lead) % 4 == 0
            and all(booked.get(hour, 0) + count <= 4 for hour in hours(q))
            and cost(q) < cost(at)
            and cost(q) <= cost(at) - gain * abs(cost(at)) + 1e-9
        ]
        assert start == (min(able)[1] if able else at)
        for hour in hours(start):
            booked[hour] = booked.get(hour, 0) + count


@settings(max_examples=20)
@given(job_lists(horizon_s=20_000), clusters(), st.sampled_from(["all", "opportunistic"]))
def test_the_laws_of_a_replay_hold(jobs: Jobs, cluster: Cluster, who: str) -> None:
    models = priced(3.0, 1.0, 2.0)
    found = run(jobs, cluster, f"price-aware-like,who={who},scan=skip,idle=60", models)
    assert found.log is not None
    # For the auditor a job comes when its hour does.
    submits = {row["job"]: int(row["time_ms"]) for row in found.log if row["kind"] == 1}
    arrival = np.array([submits.get(j, int(jobs.submit_ms[j])) for j in range(len(jobs))])
    assert (arrival >= jobs.submit_ms).all()
    assert (arrival <= jobs.submit_ms + 21_600_000).all()
    order = np.argsort(arrival, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    log = found.log.copy()
    log["job"][log["job"] >= 0] = place[log["job"][log["job"] >= 0]]
    there = replace(jobs, submit_ms=arrival).rows(order)
    assert audit(there, switched(cluster, found), log, preemptive=False) == []
    assert found.run_ms[found.end_ms >= 0].tolist() == jobs.work_ms[found.end_ms >= 0].tolist()


def test_bad_input_is_an_error_of_one_line(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    for text, what in (("day = [1.0]", "24 hours"), ('unit = ""', "currency")):
        own.write_text(f"power_price.{text}", encoding="utf-8")
        with pytest.raises(UsageError, match=what):
            load_models(own)
    with pytest.raises(UsageError, match="out of range"):
        parse_policy("price-aware-like,fill=2")
    # No room at all for bookings: every job starts at once.
    jobs = make_jobs([(0, 1, 10)])
    found = run(jobs, make_cluster((1,)), "price-aware-like,fill=0", priced(3.0, 1.0))
    assert found.first_start_ms.tolist() == [0]
