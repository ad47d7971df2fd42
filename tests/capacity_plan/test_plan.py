"""Plans of clusters whose scheduler is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.calibration.benches import bench_of
from tests.calibration.worlds import make_world
from tests.capacity_plan.queues import queue, twin_of
from tests.replay.builders import make_cluster
from tracekit.calibration.api import graded
from tracekit.calibration.rules import Rules
from tracekit.calibration.workbench import Settings
from tracekit.capacity_plan.plan import no_plan, plan_cluster
from tracekit.capacity_plan.question import HourlyCosts, JobGroup, PlanQuestion, wait_target
from tracekit.capacity_plan.replays import lost_process
from tracekit.capacity_plan.result import TWIN, CapacityPlan
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.calibration.api import ClusterCalibration

DAY = 86_400
WAITS = ("mean_wait_s", "mean_wait_low_s", "mean_wait_high_s")


def made(found: ClusterCalibration, **given: Any) -> CapacityPlan:
    plan = plan_cluster(found, PlanQuestion(**given))
    assert isinstance(plan, CapacityPlan), plan
    return plan


def daily(gpus: int = 8, jobs: int = 3, nodes: int = 1, days: int = 8) -> ClusterCalibration:
    """Return jobs of an hour that come together at noon each day: with one node they wait 0, 1, 2 h and so on."""
    rows = [(d * DAY + 12 * 3600, gpus, 3600.0) for d in range(days) for _ in range(jobs)]
    # 20 jobs more a day that never meet anybody.
    rows += [(d * DAY + 15 * 3600 + 60 * k, 1, 1.0) for d in range(days) for k in range(20)]
    rows.append((days * DAY, 1, 1.0))
    wave = [3600.0 * (k // nodes) for k in range(jobs)]
    start = [row[0] + (wave[k % jobs] if k < jobs * days else 0) for k, row in enumerate(rows)]
    return twin_of(rows, start, make_cluster([8] * nodes))


def test_a_plan_by_hand(golden: Golden) -> None:
    # Three whole-node jobs at noon: with N nodes they wait 0, 1 and 2 h; 0, 0 and 1 h; not at all. Every day is alike.
    plan = made(daily(), target=wait_target("mean<=30min"), group=JobGroup(size="8"), numbers=(1, 2, 3), resamples=5)
    rows = [{k: r[k] for k in ("nodes", "gpus", "mean_wait_s", "p50_wait_s", "p90_wait_s")} for r in plan.capacity]
    assert rows == [
        {"nodes": 1, "gpus": 8, "mean_wait_s": 3600.0, "p50_wait_s": 3600.0, "p90_wait_s": 7200.0},
        {"nodes": 2, "gpus": 16, "mean_wait_s": 1200.0, "p50_wait_s": 0.0, "p90_wait_s": 3600.0},
        {"nodes": 3, "gpus": 24, "mean_wait_s": 0.0, "p50_wait_s": 0.0, "p90_wait_s": 0.0},
    ]
    assert [r["within_target_share"] for r in plan.capacity] == pytest.approx([1 / 3, 2 / 3, 1])
    assert [r["meets_target"] for r in plan.capacity] == [False, True, True]
    assert [r["jobs_per_day"] for r in plan.capacity] == [23, 23, 23]
    held = 3 * 8 * 3600 + 20
    assert [r["held_share"] for r in plan.capacity] == pytest.approx([held / (8 * n * DAY) for n in (1, 2, 3)])
    for row in plan.capacity:
        assert row["mean_wait_low_s"] == row["mean_wait_s"] == row["mean_wait_high_s"]
    assert (plan.answers[0].found.number, plan.answers[0].found.low, plan.answers[0].found.high) == (2, 2, 2)
    golden(plan.sentences[0])
    # A mean below a second counts as one.
    assert [row.pop("recorded_mean_wait_s") for row in plan.more] == [3600.0] * 3
    assert plan.more == [
        {"model": None, "more_nodes": more, "nodes": 1 + more, **dict.fromkeys(WAITS, pytest.approx(wait))}
        for more, wait in ((1, 1200.0), (2, 1.0), (4, 1.0))
    ]
    assert plan.recorded["mean_wait_s"] == plan.recorded["twin_mean_wait_s"] == 3600


def test_more_jobs_by_hand() -> None:
    # Twice the jobs: six at noon wait 0 to 5 h on one node.
    plan = made(daily(), group=JobGroup(size="8"), numbers=(1, 2), growths=(1.0, 2.0), resamples=5)
    assert [(r["growth"], r["nodes"], r["mean_wait_s"]) for r in plan.capacity] == [
        (1.0, 1, 3600), (1.0, 2, 1200), (2.0, 1, 9000), (2.0, 2, 3600),
    ]  # fmt: skip
    assert plan.answers == ()
    assert plan.to_dict()["answer"] is None


def test_what_owning_and_waiting_cost_by_hand(golden: Golden) -> None:
    # A day of one node costs 24 * 2; three jobs wait 3 h a day together, at 10 an hour.
    costs = HourlyCosts(2.0, 10.0)
    plan = made(daily(), numbers=(1, 2, 3), resamples=5, costs=costs)
    names = ("owning_cost_per_day", "waiting_cost_per_day", "cost_per_day")
    assert [[r[n] for n in names] for r in plan.capacity] == [[48, 30, 78], [96, 10, 106], [144, 0, 144]]
    assert plan.cheapest is plan.capacity[0]
    golden(s for s in plan.sentences if "cost" in s)
    for one in (HourlyCosts(2.0), HourlyCosts(wait=10.0), HourlyCosts()):
        plan = made(daily(), numbers=(1,), resamples=5, costs=one)
        assert plan.capacity[0]["cost_per_day"] is None
        assert plan.cheapest is None


def test_gpus_of_nodes_that_are_away_do_not_count(golden: Golden) -> None:
    # Of two nodes one is away for two of eight days: 14 of 16 GPUs are up; four nodes are two pairs of the same.
    rows = [(d * DAY + 600 * k, 1, 300.0) for d in range(8) for k in range(20)]
    rows.append((8 * DAY, 1, 1.0))
    away = [(2 * DAY, 1, False), (4 * DAY, 1, True)]
    twin = twin_of(rows, [row[0] for row in rows], make_cluster([8, 8], changes=away))
    plan = made(twin, numbers=(1, 2, 4), resamples=5)
    assert (plan.recorded["gpus_up"], plan.recorded["availability_share"]) == (14, 0.875)
    assert [(row["gpus"], row["gpus_up"]) for row in plan.capacity] == [(8, 8), (16, 14), (32, 28)]
    asked = 20 * 300 / DAY
    assert [row["offered_share"] for row in plan.capacity] == pytest.approx([asked / up for up in (8, 14, 28)])
    assert [row["held_share"] for row in plan.capacity] == pytest.approx([asked / up for up in (8, 14, 28)])
    whole = made(twin_of(rows, [row[0] for row in rows], make_cluster([8, 8])), numbers=(2,), resamples=5)
    assert (whole.recorded["gpus_up"], whole.recorded["availability_share"]) == (16, 1)
    golden([plan.assumptions["outages"]["value"], whole.assumptions["outages"]["value"]])


def test_a_gang_that_no_longer_fits_never_starts_and_is_not_a_short_wait() -> None:
    rows = [(d * DAY + 60 * k, 1 if k else 16, 300.0) for d in range(6) for k in range(20)]
    rows.append((6 * DAY, 1, 1.0))
    twin = twin_of(rows, [row[0] for row in rows], make_cluster([8] * 4), rules=Rules(scan="skip"))
    plan = made(twin, numbers=(1, 2, 4), resamples=5, target=wait_target("mean<=1d"))
    small = plan.capacity[0]
    assert small["never_start_share"] == pytest.approx(1 / 20)
    assert (small["mean_wait_s"], small["meets_target"], small["waiting_cost_per_day"]) == (None, False, None)
    assert small["p50_wait_s"] == 0
    assert plan.capacity[1]["mean_wait_s"] is not None
    assert plan.answers[0].found.number == 2
    # The median of one node is short, and that of the small jobs alone; yet the cluster cannot do without the gangs.
    for group in (JobGroup(), JobGroup(size="1")):
        plan = made(twin, numbers=(1, 2, 4), resamples=5, target=wait_target("p50<=1min"), group=group)
        assert plan.capacity[0]["p50_wait_s"] == 0
        assert [row["meets_target"] for row in plan.capacity] == [False, True, True]
        assert plan.answers[0].found.number == 2


def test_nodes_that_the_load_fills_are_named_as_full(golden: Golden) -> None:
    # 20 gangs a day of two hours take a node 40 h a day.
    rows = [(d * DAY + 3600 * k, 8, 7200.0) for d in range(6) for k in range(20)]
    rows.append((6 * DAY, 1, 1.0))
    twin = twin_of(rows, [row[0] for row in rows], make_cluster([8] * 2), rules=Rules(scan="skip"))
    plan = made(twin, numbers=(1, 2), resamples=5, target=wait_target("p50<=30d"))
    assert [row["offered_share"] for row in plan.capacity] == pytest.approx([5 / 3, 5 / 6])
    assert (plan.answers[0].found.number, plan.answers[0].full) == (1, True)
    golden(plan.sentences[0])
    assert not made(twin, numbers=(2,), resamples=5, target=wait_target("p50<=30d")).answers[0].full


def test_a_target_that_start_up_delays_alone_exceed_is_never_kept(golden: Golden) -> None:
    found = daily()
    late = replace(found.bench.jobs, recorded_start_ms=found.bench.jobs.recorded_start_ms + 120_000)
    bench = replace(found.bench, jobs=late, delays=dict.fromkeys(("1", "5-8"), (120.0,) * 10))
    slow = graded(bench, Settings(Rules(), "stated", delays=True))
    plan = made(slow, target=wait_target("p50<=1min"), resamples=5)
    assert plan.answers[0].found.number is None
    assert plan.answers[0].found.best == 120
    golden(plan.sentences[0])
    assert plan.to_dict()["answer"]["reached"] is False
    hit = made(slow, target=wait_target("p50<=2min"), resamples=5)
    assert hit.answers[0].found.number == 1


def test_a_twin_of_which_no_effect_can_be_told_gives_no_plan(golden: Golden) -> None:
    found = daily()
    # The log waited two hours more than the rule says.
    late = found.bench.jobs.recorded_start_ms + 7_200_000
    wrong = graded(
        replace(found.bench, jobs=replace(found.bench.jobs, recorded_start_ms=late)), Settings(Rules(), "stated", False)
    )
    assert not wrong.score.carries
    reason = plan_cluster(wrong, PlanQuestion())
    assert reason == no_plan(wrong)
    assert isinstance(reason, str)
    golden(reason)
    assert no_plan(found) is None


def test_the_same_seed_gives_the_same_plan_and_another_one_another() -> None:
    found = queue(0, days=6, mean_s=3600)
    question = {"target": wait_target("p90<=10min"), "resamples": 6}
    first = made(found, **question)
    assert made(found, **question).to_dict() == first.to_dict()
    assert made(found, **question, seed=1).to_dict()["capacity"] != first.to_dict()["capacity"]


def test_processes_find_what_one_process_finds() -> None:
    found = queue(0, days=6, mean_s=3600)
    question = {"target": wait_target("p90<=10min"), "resamples": 6}
    assert made(found, **question, workers=2).to_dict() == made(found, **question).to_dict()


def test_what_goes_wrong_in_a_process_is_said_by_the_plan() -> None:
    found = queue(0, days=6, mean_s=3600)
    with pytest.raises(UsageError, match="the cluster has no quotas, and the log has no starts"):
        made(found, numbers=(8,), resamples=5, policies=("hived",), workers=2)
    with pytest.raises(
        UsageError, match="a process of the plan ended, perhaps because memory ran out; use fewer workers"
    ):
        lost_process(-9)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_more_nodes_are_never_clearly_worse_for_jobs_of_one_gpu(seed: int) -> None:
    # First in, first out, one GPU each: a server more makes no job wait longer, whatever the days.
    plan = made(queue(seed, days=6, mean_s=3600, servers=8, offered=7), numbers=tuple(range(6, 13)), resamples=6)
    for name in ("mean_wait_s", "p50_wait_s", "p90_wait_s"):
        waits = [row[name] for row in plan.capacity]
        assert waits == sorted(waits, reverse=True)
    assert [row["held_share"] for row in plan.capacity] == sorted(
        (row["held_share"] for row in plan.capacity), reverse=True
    )


@pytest.mark.parametrize("kind", ["easy", "partitions", "quotas", "user-limit", "nodes-down"])
def test_plans_of_worlds_with_other_schedulers(kind: str) -> None:
    rules = {
        "easy": Rules(backfill="easy", estimates="limit"),
        "partitions": Rules(quotas="partitions"),
        "quotas": Rules(quotas="limits", scan="skip"),
        "nodes-down": Rules(scan="skip"),
        "user-limit": Rules(scan="skip"),
    }[kind]
    found = graded(bench_of(make_world(kind, 1, 0.8, jobs=600)), Settings(rules, "stated", delays=False))
    if kind == "user-limit":
        found = replace(found, score=replace(found.score, grade="close"))  # the limit is not part of these rules
    plan = made(found, target=wait_target("p90<=2h"), numbers=(6, 8, 16), resamples=5, policies=("sjf",))
    assert [(r["policy"], r["nodes"]) for r in plan.capacity] == [(p, n) for p in (TWIN, "sjf") for n in (6, 8, 16)]
    twin = [row["mean_wait_s"] for row in plan.capacity[:3]]
    assert all(w is None or (math.isfinite(w) and w >= 0) for w in twin)
    assert twin[1] is not None
    assert twin[2] is not None
    assert twin[2] < twin[1]
    assert [one.policy for one in plan.answers] == [TWIN, "sjf"]
    assert any(s.startswith("under sjf: ") for s in plan.sentences)
    json.dumps(plan.to_dict(), allow_nan=False)


def test_nodes_of_each_gpu_model_vary_together_or_alone(golden: Golden) -> None:
    rows = [(d * DAY + 600 * k, 4, 1800.0) for d in range(6) for k in range(40)]
    rows.append((6 * DAY, 1, 1.0))
    cluster = make_cluster([8, 8, 4, 4], model=["A", "A", "B", "B"])
    twin = twin_of(rows, [row[0] for row in rows], cluster, rules=Rules(scan="skip"))
    every = made(twin, numbers=(2, 4, 6), resamples=5)
    assert [(r["by_model"], r["gpus"]) for r in every.capacity] == [
        ({"A": 1, "B": 1}, 12), ({"A": 2, "B": 2}, 24), ({"A": 3, "B": 3}, 36),
    ]  # fmt: skip
    assert [(r["model"], r["more_nodes"], r["nodes"]) for r in every.more] == [
        (model, more, 4 + more) for model in (None, "A", "B") for more in (1, 2, 4)
    ]
    alone = made(twin, numbers=(1, 3), model="B", resamples=5, target=wait_target("p90<=1h"))
    assert [(r["by_model"], r["nodes"]) for r in alone.capacity] == [({"A": 2, "B": 1}, 3), ({"A": 2, "B": 3}, 5)]
    golden(alone.sentences[0])
    with pytest.raises(UsageError, match="no GPU model 'C'"):
        made(twin, model="C")


def test_a_group_too_small_and_an_unknown_vc_are_refused() -> None:
    with pytest.raises(UsageError, match=r"the twin starts 18 of 8-GPU jobs; a plan needs at least 20"):
        made(daily(days=6), group=JobGroup(size="8"))
    with pytest.raises(UsageError, match="no VC 'nobody'"):
        made(daily(), group=JobGroup(vc="nobody"))


def test_a_queue_that_lasts_over_days_is_named_where_drawn_days_do_not_have_it(golden: Golden) -> None:
    # Fifteen days in a row of 45 ask for twice what there is: drawn one by one they leave no such queue.
    rows = [(d * DAY + 600.0 * k, 8, 8640.0 if 15 <= d < 30 else 1.0) for d in range(45) for k in range(20)]
    rows.append((45 * DAY, 1, 1.0))
    free, start = 0.0, []
    for at, _, run in rows:
        start.append(max(at, free))
        free = start[-1] + run
    plan = made(twin_of(rows, start, make_cluster([8])), numbers=(1,), resamples=40)
    assert plan.lasting is not None
    assert plan.lasting in plan.sentences
    assert not any("a further month" in sentence for sentence in plan.sentences)
    assert plan.to_dict()["covers_further_month"] is False
    golden(plan.lasting)
    alike = made(daily(), numbers=(1,), resamples=5)
    assert (alike.lasting, alike.to_dict()["covers_further_month"]) == (None, True)
    assert sum("a further month" in sentence for sentence in alike.sentences) == 1


def test_no_gain_is_larger_than_the_wait_in_the_log(golden: Golden) -> None:
    # Days that fill two nodes for 36 h and for 4 h in turn: in the log each queue is gone after a day, but in drawn
    # months, several long days in a row let it grow over weeks.
    rows = [(d * DAY + 60 * k, 8, 7200.0 if d % 2 == 0 else 800.0) for d in range(20) for k in range(36)]
    rows.append((20 * DAY, 1, 1.0))
    free, start = [0.0, 0.0], []
    for at, _, run in rows:
        start.append(max(at, min(free)))
        free[free.index(min(free))] = start[-1] + run
    plan = made(twin_of(rows, start, make_cluster([8, 8])), target=wait_target("mean<=2h"), resamples=10)
    (today,) = [row for row in plan.capacity if row["nodes"] == 2]
    fourth = next(row for row in plan.capacity if row["nodes"] == 3)
    log = plan.recorded["mean_wait_s"]
    assert today["mean_wait_s"] == pytest.approx(log, rel=0.01)
    assert today["mean_wait_high_s"] - fourth["mean_wait_high_s"] > log
    for row in plan.more:
        assert row["recorded_mean_wait_s"] == pytest.approx(log)
        assert 0 < row["mean_wait_low_s"] <= row["mean_wait_s"] <= row["mean_wait_high_s"]
    # The same jobs on three nodes.
    free, waits = [0.0] * 3, []
    for at, _, run in rows:
        waits.append(max(at, min(free)) - at)
        free[free.index(min(free))] = at + waits[-1] + run
    assert plan.more[0]["mean_wait_s"] == pytest.approx(np.mean(waits), rel=0.01)
    golden(s for s in plan.sentences if "more: " in s or "intervals" in s)


def test_quotas_that_stay_as_they_are_are_an_answer_of_their_own(golden: Golden) -> None:
    # Each of two VCs may use half of two nodes; only a waits: three 8-GPU jobs at noon, one after the other.
    rows = [(d * DAY + 12 * 3600, 8, 3600.0) for d in range(8) for _ in range(3)]
    rows += [(d * DAY + 15 * 3600 + 60 * k, 1, 1.0) for d in range(8) for k in range(20)]
    rows.append((8 * DAY, 1, 1.0))
    start = [row[0] + (3600.0 * (k % 3) if k < 24 else 0) for k, row in enumerate(rows)]
    vc = ["a"] * 24 + ["b"] * 161
    cluster = make_cluster([8, 8], quota={"a": 8, "b": 8})
    twin = twin_of(rows, start, cluster, vc=vc, rules=Rules(scan="skip", quotas="limits"))
    asked = {"target": wait_target("mean<=30min"), "group": JobGroup(size="8"), "numbers": (2, 4, 6), "resamples": 5}
    plan = made(twin, **asked)
    (answer,) = plan.answers
    assert answer.found.number == 4
    assert answer.fixed is not None
    assert (answer.fixed.number, answer.fixed.best) == (None, 3600)
    assert plan.to_dict()["answer"]["fixed_quotas"] == {"nodes": None, "nodes_low": None, "nodes_high": None}
    # Two nodes more are 8 GPUs more for a, or none.
    (two,) = [row for row in plan.more if row["more_nodes"] == 2]
    assert [two[name] for name in WAITS] == pytest.approx([1200, 1200, 3600])
    golden(plan.sentences[0])
    assert made(daily(), target=wait_target("mean<=30min"), numbers=(1, 2), resamples=5).answers[0].fixed is None


def test_a_plan_that_contradicts_the_log_says_why(golden: Golden) -> None:
    target, group = wait_target("mean<=65min"), JobGroup(size="8")
    found = daily()
    assert made(found, target=target, group=group, numbers=(1,), resamples=5).caveats == ()
    # The log waited a fifth longer than the twin does: 72 min.
    jobs = found.bench.jobs
    late = jobs.submit_ms + (jobs.recorded_start_ms - jobs.submit_ms) * 6 // 5
    slow = graded(
        replace(found.bench, jobs=replace(jobs, recorded_start_ms=late)), Settings(Rules(), "stated", delays=False)
    )
    plan = made(slow, target=target, group=group, numbers=(1, 2), resamples=5)
    assert plan.answers[0].found.number == 1
    assert plan.recorded["mean_wait_s"] == 4320
    # The second node came after four of eight days, in which jobs waited 0, 1 and 2 h, and then 0, 0 and 1 h.
    rows = [(d * DAY + 12 * 3600, 8, 3600.0) for d in range(8) for _ in range(3)]
    rows += [(d * DAY + 15 * 3600 + 60 * k, 1, 1.0) for d in range(8) for k in range(20)]
    rows.append((8 * DAY, 1, 1.0))
    start = [row[0] + (3600.0 * (k % 3 // (1 + (k >= 12))) if k < 24 else 0) for k, row in enumerate(rows)]
    grown = make_cluster([8, 8], absent=[1], changes=[(4 * DAY, 1, True)])
    joined = made(
        twin_of(rows, start, grown), target=wait_target("mean<=30min"), group=group, numbers=(2,), resamples=5
    )
    assert joined.answers[0].found.number == 2
    assert joined.recorded["mean_wait_s"] == 2400
    # On an incomplete last day, three jobs wait that no other day has.
    rows = [(d * DAY + 3600 * k, 8, 60.0) for d in range(6) for k in range(20)]
    rows += [(6 * DAY + 3600, 8, 36_000.0)] * 4
    start = [row[0] + max(k - 120, 0) * 36_000.0 for k, row in enumerate(rows)]
    last = made(twin_of(rows, start, make_cluster([8])), target=wait_target("mean<=10min"), numbers=(1,), resamples=5)
    assert last.answers[0].found.number == 1
    golden([plan.caveats[0], joined.caveats[0], last.caveats[0]])


def test_jobs_that_the_twin_never_starts_are_left_out_and_named(golden: Golden) -> None:
    rows = [(d * DAY + 60 * k, 1, 60.0) for d in range(6) for k in range(20)]
    rows += [(3 * DAY + 5, 64, 60.0), (6 * DAY, 1, 1.0)]
    twin = twin_of(rows, [row[0] for row in rows], make_cluster([8]), rules=Rules(scan="skip"))
    plan = made(twin, numbers=(1,), resamples=5)
    golden(s for s in plan.sentences if s.startswith("excluded from the plan"))
    assert plan.capacity[0]["never_start_share"] == 0
    assert np.isfinite(plan.capacity[0]["mean_wait_s"])
