"""The parts of a calibration, on cases worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.calibration.benches import bench_of
from tests.calibration.worlds import make_world
from tests.replay.builders import make_cluster, make_jobs
from tracekit.calibration.api import calibrate_jobs
from tracekit.calibration.delays import QUANTILES, delays_of_jobs, startup_delays, submitted_to_free_gpus
from tracekit.calibration.rules import HoldingLimits, Rules
from tracekit.calibration.score import agreeing, distance, score
from tracekit.calibration.search import Replays, most_held_while_waiting, search
from tracekit.calibration.workbench import JobTimes, Settings, Workbench
from tracekit.replay.jobs import in_time
from tracekit.replay.registry import named_policy


def test_waits_agree_within_five_minutes_or_a_quarter() -> None:
    recorded = np.array([0.0, 0.0, 1000.0, 1000.0, 10_000.0, 10_000.0])
    replayed = np.array([300.0, 301.0, 1300.0, 1301.0, 12_500.0, 12_501.0])
    assert agreeing(recorded, replayed).tolist() == [True, False, True, False, True, False]


def test_the_distance_of_equal_waits_is_nothing_and_grows_with_the_difference() -> None:
    waits = np.array([0.0, 60.0, 3600.0])
    assert distance(waits, waits) == 0
    # One job of 0 s that waits 300 s: log 2 job by job, and log 2 of the means.
    assert distance(np.zeros(1), np.full(1, 300.0)) == pytest.approx(2 * np.log(2))
    assert distance(waits, waits * 2) > distance(waits, waits * 1.5) > 0


def test_what_is_held_at_an_instant_counts_from_its_begin_to_just_before_its_end() -> None:
    begin, end, amount = np.array([0, 10, 10]), np.array([10, 20, 30]), np.array([1.0, 2.0, 4.0])
    assert in_time(np.array([-1, 0, 9, 10, 19, 20, 29, 30]), begin, end, amount).tolist() == [0, 1, 1, 6, 6, 4, 4, 0]


def test_a_job_comes_to_free_gpus_only_where_nothing_else_asks_for_them() -> None:
    # 8 GPUs. a holds 2 from 0 to 100 s; b comes at 10 s, when with its own 2 GPUs half of the cluster is asked for; c
    # comes at 20 s and makes it more; d is of a user who holds GPUs already; e comes when all is over.
    jobs = make_jobs(
        [(0, 2, 100), (10, 2, 100), (20, 1, 100), (30, 1, 100), (1000, 8, 10), (2000, 1, 10)],
        user=["a", "b", "c", "a", "e", "f"],
        recorded_start_ms=[0, 15_000, 20_000, 30_000, 1_000_000, 2_005_000],
        recorded_end_ms=[100_000, 115_000, 120_000, 130_000, 1_010_000, 2_015_000],
    )
    assert submitted_to_free_gpus(jobs, 8, 0.5).tolist() == [True, True, False, False, False, True]
    assert submitted_to_free_gpus(jobs, 8, 1.0).tolist() == [True, True, True, False, True, True]


def test_start_up_delays_are_those_of_jobs_that_found_free_gpus() -> None:
    rows = [(1000.0 * i, 1, 10.0) for i in range(40)]
    delays = np.arange(40) + 10
    jobs = make_jobs(
        rows,
        user=[f"u{i}" for i in range(40)],
        recorded_start_ms=[round(r[0] * 1000 + d * 1000) for r, d in zip(rows, delays, strict=True)],
        recorded_end_ms=[round(r[0] * 1000 + d * 1000 + 10_000) for r, d in zip(rows, delays, strict=True)],
    )
    found = startup_delays(jobs, 8, np.ones(40, bool))
    assert list(found) == ["1"]
    assert found["1"] == pytest.approx([10 + 39 * q for q in QUANTILES], abs=0.001)
    drawn = delays_of_jobs(jobs, found, seed=1)
    assert set(drawn.tolist()) <= {round(1000 * v) for v in found["1"]}
    assert (drawn == delays_of_jobs(jobs, found, seed=1)).all()
    assert startup_delays(jobs, 8, np.arange(40) < 29) == {}


def test_a_limit_is_what_someone_held_at_most_while_waiting() -> None:
    # u: two jobs of 4 GPUs run from 0 and 10 s on, a third waits from 20 s to 100 s. v never waits, and holds 12.
    jobs = make_jobs(
        [(0, 4, 100), (10, 4, 100), (20, 4, 100), (0, 12, 50)],
        user=["u", "u", "u", "v"],
        recorded_start_ms=[0, 10_000, 100_000, 0],
        recorded_end_ms=[100_000, 110_000, 200_000, 50_000],
    )
    everyone = np.ones(4, bool)
    assert most_held_while_waiting(jobs, jobs.user, everyone) == 8
    assert most_held_while_waiting(jobs, jobs.user, np.array([True, True, False, True])) == 4
    assert most_held_while_waiting(jobs, np.full(4, -1), everyone) == 0


def test_rules_name_the_policy_that_does_the_same() -> None:
    said = {
        Rules(): "fifo",
        Rules(scan="skip", relax_s=60): "fifo,scan=skip,relax=60",
        Rules(backfill="easy", estimates="limit"): "easy,noise=limit",
        Rules(order="priority", backfill="conservative"): "priority,backfill=conservative",
        Rules(quotas="reclaim", scan="skip"): "limits,lend=reclaim",
        Rules(limits=HoldingLimits(user_gpus=8), scan="skip"): "limits,of=user,gpus=8",
        Rules(limits=HoldingLimits(vc_gpus=8), scan="skip", fit="count"): "limits,gpus=8,fit=count",
        Rules(order="fair-share-user", half_life_s=60): "fair-share,of=user,half_life=60",
        Rules(order="smallest", estimates="limit"): "ssf,noise=limit",
        Rules(quotas="partitions"): "fifo",
    }
    assert {rules: named_policy(rules.policy).label for rules in said} == said
    assert all(rules.fault() is None for rules in said)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(quotas="limits", limits=HoldingLimits(vc_gpus=8)), "one of quotas"),
        (Rules(limits=HoldingLimits(8, 8)), "one of quotas"),
        (Rules(limits=HoldingLimits(8), backfill="easy"), "limits require"),
        (Rules(order="shortest", backfill="easy"), "backfill = 'easy' requires order = 'arrival' or 'priority'"),
        (Rules(order="shortest", relax_s=1), "relax_s requires"),
    ],
)
def test_rules_that_do_not_go_together_are_reported(rules: Rules, why: str) -> None:
    assert why in (rules.fault() or "")


def test_jobs_held_back_compete_later_and_wait_from_their_submission() -> None:
    # One GPU. a comes first but is held for 5 s; b takes the GPU at 1 s for 10 s; a starts when b ends.
    jobs = make_jobs([(0, 1, 10), (1, 1, 10)], recorded_start_ms=[11_000, 1000], recorded_end_ms=[21_000, 11_000])
    bench = Workbench(jobs, {"stated": lambda *_: make_cluster([1])}, np.ones(2, bool), np.array([5000, 0]))
    assert bench.times(Settings(Rules(), "stated", delays=False)).queue_s.tolist() == [11.0, 0.0]
    assert bench.recorded_s.tolist() == [11.0, 0.0]


@pytest.mark.parametrize(("policy", "second"), [(None, 10.0), ("kueue,cohort=off", 10.0), ("kueue", 0.0)])
def test_a_policy_that_lends_uses_all_nodes_of_a_twin_of_partitions(policy: str | None, second: float) -> None:
    # VCs a and b own a node each; two jobs of a's whole node come at once, and the second waits unless b lends its own.
    jobs = make_jobs([(0, 8, 10), (0, 8, 10)], vc="a", recorded_start_ms=[0, 10_000], recorded_end_ms=[10_000, 20_000])
    nodes = replace(make_cluster([8, 8], domain=["a", "b"], quota={"a": 8, "b": 8}), lendable=True)
    bench = Workbench(jobs, {"stated": lambda *_: nodes}, np.ones(2, bool))
    twin = Settings(Rules(quotas="partitions"), "stated", delays=False)
    assert bench.times(twin, policy).queue_s.tolist() == [0.0, second]


def test_searches_that_learn_from_different_jobs_share_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(make_world("passing", 1, 0.85, jobs=150))
    parts = [replace(bench, among=bench.among & (bench.jobs.submit_ms < at), delays=None) for at in (4e8, 8e8)]
    learnt = [part.among for part in parts]
    assert 0 < learnt[0].sum() < learnt[1].sum()
    replayed: list[Settings] = []
    times = Workbench.times

    def counted(self: Workbench, settings: Settings) -> JobTimes:
        replayed.append(settings)
        return times(self, settings)

    monkeypatch.setattr(Workbench, "times", counted)
    alone = [search(part) for part in parts]
    each = len(replayed)
    replayed.clear()
    shared = Replays(learnt)
    assert [search(part, replays=shared) for part in parts] == alone
    assert len(replayed) == len({one.settings for found in alone for one in found.tried}) < each


def test_of_equal_candidates_the_simplest_is_taken() -> None:
    """Nobody ever waits: every candidate is right, and the default is the simplest."""
    jobs = make_jobs(
        [(1000.0 * i, 1, 10.0) for i in range(20)],
        user=[f"u{i % 3}" for i in range(20)],
        vc=[f"v{i % 2}" for i in range(20)],
        recorded_start_ms=[1_000_000 * i for i in range(20)],
        recorded_end_ms=[1_000_000 * i + 10_000 for i in range(20)],
    )
    bench = Workbench(jobs, {"stated": lambda *_: make_cluster([8])}, np.ones(20, bool))
    found = search(bench)
    assert found.best == Settings(Rules(), "stated", delays=False)
    assert {t.stage for t in found.tried} >= {"order", "backfilling", "quotas and limits", "placement"}
    assert found.tried[0].distance == 0


def test_a_score_worked_by_hand() -> None:
    # Four jobs on one day: no intervals. Waits of 0, 600, 1200 and 4200 s; the twin has 0, 600, 600 and 4800.
    jobs = make_jobs([(0, 1, 10), (10, 1, 10), (20, 4, 10), (30, 8, 10)], vc=["a", "a", "b", None])
    recorded, twin = np.array([0.0, 600, 1200, 4200]), np.array([0.0, 600, 600, 4800])
    found = score(jobs, recorded, twin, np.ones(4, bool))
    whole = found.whole
    assert (whole["jobs"], whole["recorded_mean_s"], whole["twin_mean_s"], whole["ratio"]) == (4, 1500, 1500, 1.0)
    assert (whole["agreeing_share"], whole["unexplained_share"]) == (0.75, 0.1)
    assert whole["ratio_low"] is None
    assert (whole["recorded_p50_s"], whole["twin_p50_s"]) == (900, 600)
    assert found.grade == "close"
    rows = {(row["scope"], row["name"]): row["jobs"] for row in found.table.iter_rows(named=True)}
    assert rows == {
        ("all", "all"): 4,
        ("gpu_class", "1"): 2,
        ("gpu_class", "2-4"): 1,
        ("gpu_class", "5-8"): 1,
        ("vc", None): 1,
        ("vc", "a"): 2,
        ("vc", "b"): 1,
    }


@pytest.mark.parametrize(
    ("recorded", "twin", "grade"),
    [
        ([1000.0] * 4, [1000.0] * 4, "close"),
        ([1000.0] * 4, [1111.0] * 4, "fair"),
        ([10_000.0] * 4, [10_000.0, 10_000.0, 16_000.0, 4000.0], "fair"),
        ([10_000.0] * 4, [15_000.0, 15_000.0, 15_000.0, 10_000.0], "rough"),
        ([10_000.0] * 4, [30_000.0] * 4, "poor"),
        ([0.0] * 4, [59.0] * 4, "close"),
        ([0.0] * 4, [61.0] * 4, "poor"),
    ],
)
def test_grades_have_stated_limits(recorded: list[float], twin: list[float], grade: str) -> None:
    jobs = make_jobs([(i, 1, 10) for i in range(4)])
    assert score(jobs, np.array(recorded), np.array(twin), np.ones(4, bool)).grade == grade


@pytest.mark.parametrize(("policy", "order"), [("las,scan=skip", "attained"), ("srtf,scan=skip", "shortest-left")])
def test_orders_that_stop_jobs_are_tried_where_the_log_shows_it(policy: str, order: str) -> None:
    """A log of the engine's own replay; without a word of preemption in it, such an order is no candidate."""
    bench = bench_of(make_world("passing", 2, 1.0, jobs=600))
    ran, _ = bench.replay(Settings(Rules(), "stated", delays=False), policy)
    log = replace(bench.jobs, recorded_start_ms=ran.first_start_ms, recorded_end_ms=ran.end_ms)
    found = calibrate_jobs(replace(bench, jobs=log, preempts=True))
    assert found.settings.rules.order == order
    assert found.score.whole["agreeing_share"] == 1.0
    assert found.score.whole["twin_mean_s"] == pytest.approx(found.score.whole["recorded_mean_s"])
    assert calibrate_jobs(replace(bench, jobs=log)).settings.rules.order != order
